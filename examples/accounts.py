# SPDX-License-Identifier: Apache-2.0
"""Moves money between two accounts in one transaction, lists them in order, takes a backup.

    python3 accounts.py FOLDER
"""

import os
import sys

import senko_flash.dbm
import senko_flash.store


def move(tx):
    # `run` calls it again if another thread's commit conflicts with it.
    ann, ben = int(tx.get("ann", b"100")), int(tx.get("ben", b"100"))
    tx["ann"], tx["ben"] = str(ann - 30), str(ben + 30)


folder = sys.argv[1] if len(sys.argv) > 1 else "."
with senko_flash.dbm.open(os.path.join(folder, "accounts.db"), "c") as accounts:
    accounts.run(move, durability="synced")
    for name, balance in accounts.items():
        print(name.decode(), "has", balance.decode())
    accounts.backup(os.path.join(folder, "accounts.backup"))

with senko_flash.store.open(os.path.join(folder, "sessions.kv"), "c") as sessions:
    sessions.put("session:7", "ann", ttl=3600)
    with sessions.batch(durability="synced") as batch:
        batch.put("user:ann", "Ann")
        batch.put("user:ben", "Ben")
    print(sessions["session:7"].decode(), len(sessions))
    sessions.backup(os.path.join(folder, "sessions.backup"))
