# SPDX-License-Identifier: Apache-2.0
"""The DBM, with the interface of dbm.gnu and dbm.ndbm, and with transactions.

>>> import senko_flash.dbm, tempfile
>>> folder = tempfile.TemporaryDirectory()
>>> with senko_flash.dbm.open(folder.name + "/data", "c") as db:
...     db["apple"] = "red"
...     with db.transaction() as tx:
...         tx["plum"] = tx["apple"]
...     list(db.items())
[(b'apple', b'red'), (b'plum', b'red')]
>>> folder.cleanup()
"""

import os as _os
from collections.abc import ItemsView as _ItemsView
from collections.abc import MutableMapping as _MutableMapping
from collections.abc import ValuesView as _ValuesView

from . import _native
from ._native import Conflict, Snapshot, Transaction, error

__all__ = ["open", "error", "Conflict", "Database", "Snapshot", "Table", "Transaction"]

_ABSENT = object()


class _Items(_ItemsView):
    def __iter__(self):
        return self._mapping.range()


class _Values(_ValuesView):
    def __iter__(self):
        return self._mapping._values()


class _Mapping(_MutableMapping):
    """What tables and databases share: a mapping of bytes to bytes, in the order of its keys."""

    __slots__ = ()

    def items(self):
        return _Items(self)

    def values(self):
        return _Values(self)

    def pop(self, key, default=_ABSENT):
        """Removes a key and gives its value, in one transaction."""
        value = self._take(key)
        if value is not None:
            return value
        if default is _ABSENT:
            raise KeyError(key)
        return default

    def popitem(self):
        """Removes the first record and gives it."""

        def first(tx):
            for key, value in self.range():
                if tx.get(key) == value:
                    del tx[key]
                    return key, value
            raise KeyError("the database is empty")

        return self.run(first)

    def run(self, fn, *, durability=None):
        """Calls `fn(tx)` in a transaction and gives what it gives. On a Conflict it is called again."""
        while True:
            try:
                with self.transaction(durability=durability) as tx:
                    return fn(tx)
            except Conflict:
                pass

    def table(self, name, *, create=False):
        """A table of the database, which is a mapping too. `create` makes one that is not there."""
        return Table(self, self._table(name, create=create))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Database(_native.Database, _Mapping):
    """An open database: a mapping over its table "main". `open` makes it."""

    items = _Mapping.items
    values = _Mapping.values


class Table(_Mapping):
    """Another table of a database, which it keeps open."""

    __slots__ = ("_database", "_native")

    def __init__(self, database, native):
        self._database = database
        self._native = native

    def __getattr__(self, name):
        return getattr(self._native, name)

    def __getitem__(self, key):
        return self._native[key]

    def __setitem__(self, key, value):
        self._native[key] = value

    def __delitem__(self, key):
        del self._native[key]

    def __contains__(self, key):
        return key in self._native

    def __iter__(self):
        return iter(self._native)

    def __len__(self):
        return len(self._native)

    def __repr__(self):
        return repr(self._native)

    def keys(self):
        return self._native.keys()

    def get(self, key, default=None):
        return self._native.get(key, default)

    def setdefault(self, key, default=b""):
        return self._native.setdefault(key, default)

    def clear(self):
        self._native.clear()


def open(path, flag="r", mode=0o666, *, durability="buffered", cache_bytes=None):
    """Opens a database.

    `flag` is 'r' to read, 'w' to write, 'c' to make it if it is not there, 'n' to begin empty.
    `durability` is what one write waits for: 'none', 'buffered' (it survives the process) or
    'synced' (it survives a power failure). `sync()` makes all of them synced.
    """
    # The mode is the system's: it takes the umask away itself.
    path = _os.fsdecode(path)
    return Database(path, flag, mode, durability=durability, cache_bytes=cache_bytes)
