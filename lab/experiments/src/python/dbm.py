# SPDX-License-Identifier: Apache-2.0
"""Rates of senko_flash.dbm over dbm.gnu's, and of its shelves over a table of SQLite.

Arguments: the folder to work in, records, rounds, objects of a shelf. One line of JSON on stdout:
each figure's values, round by round, or why it is missing.
"""

import itertools
import json
import os
import pickle
import shelve
import sqlite3
import struct
import sys
import tempfile
import time

import senko_flash.dbm

FOLDER, RECORDS, ROUNDS, OBJECTS = sys.argv[1], *map(int, sys.argv[2:5])
VALUE = bytes(range(100))
# Each 4-byte key once, in no order.
KEYS = [struct.pack(">I", n * 2654435761 % 2**32) for n in range(RECORDS)]


def gnu_keys(db):
    key = db.firstkey()
    while key is not None:
        yield key
        key = db.nextkey(key)


def rates(db, keys):
    """Records a second: set, got, walked over."""
    times = [time.perf_counter()]
    for key in KEYS:
        db[key] = VALUE
    times.append(time.perf_counter())
    for key in KEYS:
        db[key]
    times.append(time.perf_counter())
    count = sum(1 for _ in keys(db))
    times.append(time.perf_counter())
    assert count == RECORDS, f"{count} records of {RECORDS} were walked over"
    return [RECORDS / (end - start) for start, end in itertools.pairwise(times)]


def in_turn(work):
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        return work(os.path.join(folder, "data"))


def ours(path):
    with senko_flash.dbm.open(path, "n") as db:
        return rates(db, iter)


def gnus(path):
    import dbm.gnu

    # Fast, as it is unless asked otherwise: nothing is synced.
    with dbm.gnu.open(path, "n") as db:
        return rates(db, gnu_keys)


def filled(mapping):
    began = time.perf_counter()
    for n in range(OBJECTS):
        mapping[str(n)] = {"n": n, "text": "small", "list": [n, None]}
    return OBJECTS / (time.perf_counter() - began)


def our_shelf(path):
    with shelve.Shelf(senko_flash.dbm.open(path, "n", durability="synced")) as shelf:
        return filled(shelf)


class Table(dict):
    """What dbm.sqlite3 does for a write: one statement, which commits."""

    def __init__(self, path):
        self.db = sqlite3.connect(path, isolation_level=None)
        self.db.execute("PRAGMA journal_mode = wal")
        self.db.execute("PRAGMA synchronous = full")
        self.db.execute("CREATE TABLE Dict (key BLOB UNIQUE NOT NULL, value BLOB NOT NULL)")

    def __setitem__(self, key, value):
        values = "VALUES (CAST(? AS BLOB), CAST(? AS BLOB))"
        self.db.execute(f"REPLACE INTO Dict (key, value) {values}", (key, value))

    def close(self):
        self.db.close()


def their_shelf(path):
    with shelve.Shelf(Table(path)) as shelf:
        return filled(shelf)


figures, missing = {}, {}
names = ["set_over_gnu", "get_over_gnu", "iterate_over_gnu"]
try:
    import dbm.gnu
except ImportError:
    why = "this Python has no dbm.gnu (Debian package python3-gdbm, for Debian's Python)"
    missing.update(dict.fromkeys(names, why))
else:
    for _ in range(ROUNDS):
        for name, one, other in zip(names, in_turn(ours), in_turn(gnus)):
            figures.setdefault(name, []).append((one, other))
for _ in range(ROUNDS):
    pair = (in_turn(our_shelf), in_turn(their_shelf))
    figures.setdefault("shelve_over_sqlite3", []).append(pair)
print(json.dumps({"figures": figures, "missing": missing}))
