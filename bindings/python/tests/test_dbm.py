# SPDX-License-Identifier: Apache-2.0
"""The DBM from Python: what dbm.gnu has, transactions, threads, forks and kills."""

import collections.abc
import ctypes
import doctest
import errno
import operator
import os
import pickle
import shelve
import signal
import subprocess
import sys
import threading

import pytest

import senko_flash.dbm as dbm


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "data")


@pytest.fixture
def db(path):
    with dbm.open(path, "c") as db:
        yield db


def test_the_examples_of_the_documentation_run():
    assert doctest.testmod(dbm).attempted > 0
    assert doctest.testmod(dbm).failed == 0


def test_a_database_is_a_mapping_of_bytes_in_order(db):
    assert isinstance(db, collections.abc.MutableMapping)
    db.update({"b": "2", b"a": b"1", "ü": bytearray(b"3")})
    assert db.keys() == [b"a", b"b", "ü".encode()]
    assert list(db.values()) == [b"1", b"2", b"3"]
    assert db.pop("b") == b"2" and db.pop("b", None) is None
    with pytest.raises(KeyError):
        db.pop("b")
    assert db.popitem() == (b"a", b"1")
    assert db.setdefault("x") == b"" and db.setdefault("y", "1") == b"1"
    with pytest.raises(KeyError):
        del db["absent"]
    with pytest.raises(TypeError):
        db[1] = b"x"
    with pytest.raises(ValueError, match="keys have at most 1024"):
        db["k" * 1025] = b"x"
    db.clear()
    assert len(db) == 0
    with pytest.raises(KeyError):
        db.popitem()


def test_firstkey_and_nextkey_walk_over_all_keys(db):
    assert db.firstkey() is None
    for n in range(1000):
        db["%03d" % n] = b"x"
    walked, key = [], db.firstkey()
    while key is not None:
        walked.append(key)
        key = db.nextkey(key)
    assert walked == db.keys() and len(walked) == 1000


def test_reorganize_shrinks_the_file(db, path):
    value = os.urandom(1000)
    other = db.table("other", create=True)
    for n in range(20_000):
        db["%05d" % n] = value
    other["k"] = "stays"
    for n in range(100, 20_000):
        del db["%05d" % n]
    db.sync()
    before = os.path.getsize(path)
    snapshot = db.snapshot()
    with pytest.raises(dbm.error, match="1 have not"):
        db.reorganize()
    del snapshot
    db.reorganize()
    assert os.path.getsize(path) < before / 2
    assert len(db) == 100 and db["00099"] == value and other["k"] == b"stays"
    other["k"] = "changes"
    with db.transaction() as tx:
        tx["new"] = tx.table("other")["k"]
    db.close()
    with dbm.open(path) as again:
        assert len(again) == 101 and again["new"] == b"changes"
        with pytest.raises(dbm.error, match="opened to be read"):
            again.reorganize()
    with pytest.raises(dbm.error, match="closed"):
        db.reorganize()


def test_a_backup_is_taken_while_writes_go_on(db, tmp_path):
    db.update({"k%04d" % n: "v" for n in range(1000)})
    db.table("log", create=True)["1"] = "began"
    copy = tmp_path / "copy.db"
    with db.transaction() as tx:
        tx["open"] = "not committed"
        assert db.backup(copy)["records"] == 1001
    with pytest.raises(OSError):
        db.backup(copy)
    assert not os.path.exists(str(copy) + ".part")
    with dbm.open(copy, "r") as copied:
        assert len(copied) == 1000 and copied.tables() == ["log", "main"]
        assert "open" in db and "open" not in copied
    with dbm.open(copy, "r") as copied:
        with pytest.raises(OSError):
            copied.backup(copy)


def test_a_reorganized_database_is_the_one_that_was_opened(tmp_path, monkeypatch):
    """After a change of the folder it used to be another database, or a new one, without a word."""
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
        monkeypatch.chdir(folder)
        db = dbm.open("data", "c")
        db["from"] = folder.name
        db.close()
    monkeypatch.chdir(first)
    db = dbm.open("data", "w")
    monkeypatch.chdir(second)
    db.reorganize()
    assert db["from"] == b"first"
    # Another file that took the name stays.
    os.rename(first / "data", first / "aside")
    os.rename(second / "data", first / "data")
    with pytest.raises(dbm.error, match="another file"):
        db.reorganize()
    db["from"] = "aside"
    db.close()
    for name, value in [("data", b"second"), ("aside", b"aside")]:
        with dbm.open(first / name) as db:
            assert db["from"] == value
    assert os.listdir(second) == []


def test_a_reorganization_that_was_killed_does_not_block_the_next(path):
    program = """
import sys, senko_flash.dbm
db = senko_flash.dbm.open(sys.argv[1], "w")
while True:
    db.reorganize()
"""
    with dbm.open(path, "c") as db:
        db.run(lambda tx: tx.update((b"%05d" % n, b"v" * 100) for n in range(20_000)))
    draft = path + ".part"
    while not os.path.exists(draft):
        with subprocess.Popen([sys.executable, "-c", program, path]) as victim:
            while not os.path.exists(draft):
                assert victim.poll() is None
            victim.kill()
        # It may have been complete by then.
    with dbm.open(path, "w") as db:
        db.reorganize()
        assert len(db) == 20_000
    assert not os.path.exists(draft)


def test_ctrl_c_in_a_reorganization_loses_nothing(path):
    program = """
import sys, senko_flash.dbm
with senko_flash.dbm.open(sys.argv[1], "c") as db:
    for n in range(3000):
        db[str(n)] = str(n)
    try:
        print("running", flush=True)
        while True:
            db.reorganize()
    except KeyboardInterrupt:
        print("ended", flush=True)
"""
    with subprocess.Popen([sys.executable, "-c", program, path], stdout=subprocess.PIPE) as running:
        assert running.stdout.readline() == b"running\n"
        running.send_signal(signal.SIGINT)
        assert running.stdout.readline() == b"ended\n"
    with dbm.open(path, "w") as db:
        assert dict(db) == {str(n).encode(): str(n).encode() for n in range(3000)}


def test_ranges_and_prefixes(db):
    # More than a batch.
    for n in range(2000):
        db["%04d" % n] = str(n)
    assert [k for k, _ in db.range("0500", "1500")] == [b"%04d" % n for n in range(500, 1500)]
    assert [k for k, _ in db.range("1998", reverse=True)] == [b"1999", b"1998"]
    assert [k for k, _ in db.prefix("001")] == [b"%04d" % n for n in range(10, 20)]
    assert [k for k, _ in db.prefix("001", reverse=True)][0] == b"0019"


def test_flags(path):
    with pytest.raises(dbm.error) as raised:
        dbm.open(path)
    assert raised.value.errno == 2 and isinstance(raised.value, OSError)
    with pytest.raises(ValueError, match="flag is"):
        dbm.open(path, "x")
    with pytest.raises(ValueError, match="durability is"):
        dbm.open(path, "c", durability="x")
    with dbm.open(path, "c") as db:
        db["a"] = "1"
        with pytest.raises(dbm.error):
            dbm.open(path, "w")
    with dbm.open(path, "r") as db:
        assert db["a"] == b"1"
        with pytest.raises(dbm.error, match="opened to be read"):
            db["a"] = "2"
    with pytest.raises(dbm.error, match="closed"):
        db["a"]
    with dbm.open(path, "n") as db:
        assert db.keys() == []


def test_a_transaction_commits_or_rolls_back(db):
    with db.transaction() as tx:
        tx["a"] = "1"
        assert "a" in tx and "a" not in db
    assert db["a"] == b"1"
    with pytest.raises(ZeroDivisionError):
        with db.transaction() as tx:
            tx["a"] = "2"
            1 / 0
    assert db["a"] == b"1"
    with pytest.raises(dbm.error, match="has ended"):
        tx["a"]


def test_a_transaction_and_a_snapshot_read_as_a_mapping_does(db, path):
    with db.transaction() as tx:
        tx.update({"b": "2", "a": b"1"})
        tx.update([("c", "3"), ("d", "4")])
        assert tx.pop("d") == b"4" and tx.pop("d", None) is None
        with pytest.raises(KeyError):
            tx.pop("d")
        with pytest.raises(TypeError, match="2 more"):
            tx.pop("d", 1, 2)
        assert tx.setdefault("a", "9") == b"1" and tx.setdefault("e") == b""
        assert tx.keys() == list(tx) == [b"a", b"b", b"c", b"e"] and len(tx) == 4
        assert tx.values() == [b"1", b"2", b"3", b""]
        assert tx.items()[::-1] == tx.range(reverse=True)
        assert dict(tx) == {b"a": b"1", b"b": b"2", b"c": b"3", b"e": b""}
        assert [key for key, _ in tx.range("b", "d", reverse=True)] == [b"c", b"b"]
        assert tx.prefix("c", reverse=True) == [(b"c", b"3")]
        assert len(db) == 0 and path in repr(tx)
    now = db.snapshot()
    with db.transaction() as tx:
        tx.clear()
        assert len(tx) == 0
    assert list(now.items()) == list(now.range()) and list(now.values()) == [b"1", b"2", b"3", b""]
    assert dict(now)[b"c"] == b"3" and path in repr(now) and len(db) == 0


def test_a_run_that_changes_what_it_reads_ends(db):
    tries = []

    def change(tx):
        tries.append(tx.get("a"))
        assert len(tries) <= 100
        db["a"] = str(len(tries))
        tx["b"] = "lost"

    with pytest.raises(dbm.Conflict):
        db.run(change)
    assert len(tries) == 100
    assert db["a"] == b"100" and "b" not in db


def test_of_two_transactions_one_conflicts(db):
    db["n"] = "0"
    one, two = db.transaction(), db.transaction()
    one["n"] = one["n"] + b"1"
    two["n"] = two["n"] + b"2"
    one.commit()
    with pytest.raises(dbm.Conflict):
        two.commit()
    assert db["n"] == b"01"


def test_eight_threads_lose_no_addition(db):
    db["n"] = "0"

    def add():
        for _ in range(100):
            db.run(lambda tx: tx.__setitem__("n", str(int(tx["n"]) + 1)))

    threads = [threading.Thread(target=add) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert db["n"] == b"800"


def test_popitem_takes_a_record_of_a_table_that_is_never_empty(db):
    """It used to look for the first record in a newer state than that of its transaction."""
    db["a"] = "1"
    begin = db.transaction

    def begin_and_let_another_thread_commit(**durability):
        tx = begin(**durability)
        if "a" in db:
            with begin() as other:
                other["b"] = other.pop("a")
        return tx

    db.transaction = begin_and_let_another_thread_commit
    assert db.popitem() == (b"b", b"1")
    with pytest.raises(KeyError, match="the database is empty"):
        db.popitem()
    with begin() as tx:
        tx.update(a="1", b="2")
        assert tx.popitem() == (b"a", b"1")
    assert db.keys() == [b"b"]


def test_what_is_put_and_written_is_counted(db):
    before = db.stats()
    db["key"] = "value"
    db.sync()
    stats = db.stats()
    assert stats["bytes_put"] == before["bytes_put"] + len("key") + len("value")
    assert stats["bytes_written"] > before["bytes_written"]
    assert stats["bytes_discarded"] == 0


def test_a_snapshot_stays_and_tables_are_apart(db):
    other = db.table("other", create=True)
    db["k"] = "main"
    other["k"] = "other"
    now = db.snapshot()
    db["k"] = other["k"] = "new"
    assert now["k"] == b"main" and now.table("other")["k"] == b"other"
    assert db.tables() == ["main", "other"]
    assert list(other.items()) == [(b"k", b"new")]
    with db.transaction() as tx:
        tx["k"], tx.table("other")["k"] = "1", "2"
    assert (db["k"], other["k"]) == (b"1", b"2")
    assert db.stats()["open_snapshots"] == 1
    with pytest.raises(dbm.error, match="no table"):
        db.table("absent")
    # It took the database's own table away, and every call failed from then on.
    with pytest.raises(ValueError, match="is the database itself"):
        db.drop_table("main")
    db.drop_table("other")
    assert db.tables() == ["main"] and db["k"] == b"1"


def test_a_shelf_of_many_objects(path):
    value = lambda n: {"n": n, "text": "x" * (n % 50), "list": [n, None, 1.5]}
    with shelve.Shelf(dbm.open(path, "c")) as shelf:
        for n in range(100_000):
            shelf[str(n)] = value(n)
    with shelve.Shelf(dbm.open(path, "r")) as shelf:
        assert len(shelf) == 100_000
        assert all(shelf[key] == value(int(key)) for key in shelf)


def test_a_value_may_be_longer_than_64_mib(path):
    """Values have up to 1 GiB. The default of the engine's transactions used to be the limit."""
    value = b"v" * (65 << 20)
    with dbm.open(path, "c") as db:
        db["k"] = value
        assert db["k"] == value
    with dbm.open(path, "w", transaction_bytes=1 << 20) as db:
        with pytest.raises(dbm.error, match="the limit is 1048576"):
            db["k"] = value
        assert len(db["k"]) == len(value)


def test_an_error_of_the_system_has_its_number_and_the_name(path, tmp_path):
    with pytest.raises(dbm.error) as raised:
        dbm.open(path)
    assert (raised.value.errno, raised.value.filename) == (errno.ENOENT, path)
    assert str(raised.value) == f"[Errno 2] No such file or directory: {path!r}"
    with dbm.open(path, "c") as db:
        # The program itself reads the file. The next writer used to wait for 30 seconds before it
        # was refused, without the name of the process.
        with open(path, "rb") as file:
            file.read()
        program = "import sys, senko_flash.dbm as dbm; dbm.open(sys.argv[1], 'w')"
        command = [sys.executable, "-c", program, path]
        second = subprocess.run(command, capture_output=True, text=True)
        assert f"[Errno 16] {path} is in use by process {os.getpid()}: {path!r}" in second.stderr
        db["k"] = "v"


def test_a_full_disk_has_its_number(tmp_path):
    """It used to be an error without errno."""
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", tmp_path]).returncode:
        pytest.skip("this user may not mount a small file system")
    try:
        db = dbm.open(tmp_path / "data", "c")
        with pytest.raises(dbm.error, match="no space left") as raised:
            for n in range(1000):
                db[str(n)] = os.urandom(10_000)
        assert raised.value.errno == errno.ENOSPC
        del db
    finally:
        subprocess.run(["umount", "--lazy", tmp_path], check=True)


def test_the_end_of_a_program_with_busy_daemon_threads(path):
    """Threads that took the GIL back while the interpreter ended used to abort the process."""
    program = """
import sys, threading, senko_flash.dbm

class Long:
    def __del__(self):
        sum(range(2_000_000))  # The interpreter ends meanwhile.

def work():
    while True:
        db["k"] = "v"
        db.keys()

sys.setswitchinterval(1e-6)
db = senko_flash.dbm.open(sys.argv[1], "c")
kept = [Long() for _ in range(5)]
for _ in range(4):
    threading.Thread(target=work, daemon=True).start()
while "k" not in db:
    pass
"""
    for _ in range(5):
        ended = subprocess.run([sys.executable, "-c", program, path], capture_output=True)
        assert (ended.returncode, ended.stderr) == (0, b"")


def test_what_is_open_at_the_end_of_a_program_is_kept(path):
    """What a daemon thread refers to is not dropped, and unwritten records used to be lost."""
    program = """
import os, sys, threading, senko_flash.dbm
db = senko_flash.dbm.open(sys.argv[1], "c", durability="none")
db["k"] = "v"
threading.Thread(target=lambda kept: threading.Event().wait(), args=[db], daemon=True).start()
del db
closed = senko_flash.dbm.open(sys.argv[1] + "-closed", "c")
closed.close()
if os.fork() == 0:
    sys.exit()  # It flushes nothing of its parent's.
assert os.wait()[1] == 0
"""
    command = [sys.executable, "-c", program, path]
    assert subprocess.run(command, check=True, capture_output=True).stderr == b""
    with dbm.open(path) as db:
        assert db["k"] == b"v"


def test_the_child_of_a_fork_is_refused(db):
    db["a"] = "1"
    iterator = iter(db)
    child = os.fork()
    if child == 0:
        refused = 0
        for work in (lambda: db["a"], db.keys, lambda: next(iterator), db.close):
            try:
                work()
            except dbm.error as error:
                refused += "before a fork" in str(error)
        os._exit(refused)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 4
    assert db["a"] == b"1"


def test_a_killed_interpreter_loses_nothing_synced(path):
    program = """
import itertools, sys, senko_flash.dbm
db = senko_flash.dbm.open(sys.argv[1], "c")
for n in itertools.count():
    db[str(n)] = str(n) * 20
    if n % 100 == 99:
        db.sync()
        print(n, flush=True)
"""
    with subprocess.Popen([sys.executable, "-c", program, path], stdout=subprocess.PIPE) as victim:
        synced = [int(victim.stdout.readline()) for _ in range(20)][-1]
        victim.kill()
        # Lines that it wrote before it was killed count too.
        synced = max([synced, *(int(line) for line in victim.stdout if line.endswith(b"\n"))])
    with dbm.open(path, "w") as db:
        assert all(db[str(n)] == str(n).encode() * 20 for n in range(synced + 1))


def test_ctrl_c_ends_an_iteration(db):
    with db.transaction() as tx:
        for n in range(5000):
            tx[str(n)] = b"x"
    with pytest.raises(KeyboardInterrupt):
        for n, _ in enumerate(db):
            if n == 0:
                os.kill(os.getpid(), signal.SIGINT)
    assert pickle.loads(pickle.dumps(db.keys())) == db.keys()


def test_ctrl_c_ends_a_transactions_list_and_the_transaction_is_rolled_back(db):
    with db.transaction() as tx:
        for n in range(20_000):
            tx["%05d" % n] = b"x"
    # Ctrl-C is there before the list begins, and no bytecode between looks for it.
    seen, interrupt = [], ctypes.pythonapi.PyErr_SetInterrupt
    with pytest.raises(KeyboardInterrupt):
        with db.transaction() as tx:
            tx["new"] = b"x"
            seen.extend(map(operator.methodcaller("__call__"), [interrupt, tx.keys]))
    assert len(seen) == 1, "the list went on to its end"
    assert len(db) == 20_000
    # Lists of several parts are those of one.
    with db.transaction() as tx:
        assert tx.keys() == db.keys() and len(tx.range("00005", "19995")) == 19_990
        assert len(tx.prefix("1")) == 10_000 and len(tx.prefix("00", reverse=True)) == 1000
        tx["k"] = b"x"
        db["08192x"] = b"another came between two parts"
        with pytest.raises(dbm.Conflict):
            tx.commit()
