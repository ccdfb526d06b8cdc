# SPDX-License-Identifier: Apache-2.0
"""The store from Python: keys, batches, versions, expiry, care, forks and Ctrl-C."""

import collections.abc
import datetime
import doctest
import errno
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

import senko_flash.dbm
from senko_flash import store as kv


@pytest.fixture
def path(tmp_path):
    return tmp_path / "data.kv"


@pytest.fixture
def store(path):
    with kv.open(path, "c", keep_versions=3, block_bytes=1 << 20) as store:
        yield store


def test_the_examples_of_the_documentation_run():
    done = doctest.testmod(kv)
    assert done.attempted > 0 and done.failed == 0


def test_a_store_is_a_mapping_of_bytes(store):
    assert isinstance(store, collections.abc.MutableMapping)
    store.update({"b": "2", b"a": b"1", "ü": bytearray(b"3")})
    assert len(store) == 3 and set(store) == {b"a", b"b", "ü".encode()}
    assert dict(store.items()) == {b"a": b"1", b"b": b"2", "ü".encode(): b"3"}
    assert sorted(store.values()) == [b"1", b"2", b"3"]
    assert store["a"] == b"1" and "absent" not in store and store.get("absent", 7) == 7
    assert store.pop("b") == b"2" and store.pop("b", None) is None
    with pytest.raises(KeyError):
        store["b"]
    with pytest.raises(KeyError):
        del store["b"]
    with pytest.raises(TypeError):
        store[1] = b"x"
    with pytest.raises(ValueError, match="keys have 1 to 65536"):
        store[b""] = b"x"
    for n in range(2500):
        store["%d" % n] = "x"
    store.clear()
    assert len(store) == 0


def test_flags_and_errors(path):
    for flag in "rw":
        with pytest.raises(kv.error) as raised:
            kv.open(path, flag)
        assert raised.value.errno == errno.ENOENT
    with pytest.raises(kv.error, match="No such file") as raised:
        kv.verify(path)
    assert raised.value.errno == errno.ENOENT
    with pytest.raises(ValueError, match="flag is"):
        kv.open(path, "n")
    with pytest.raises(ValueError, match="durability is"):
        kv.open(path, "c", durability="x")
    with pytest.raises(ValueError, match="blocks have"):
        kv.open(path, "c", block_bytes=1)
    with kv.open(path, "c") as store:
        store["a"] = "1"
        with pytest.raises(kv.error):
            kv.open(path, "w")
        # 0 was accepted, and could mean at once or never.
        for ttl in [-1, 0, 0.0, datetime.timedelta()]:
            with pytest.raises(ValueError, match="ttl is above 0"):
                store.put("a", "2", ttl=ttl)
            with pytest.raises(ValueError, match="ttl is above 0"):
                store.batch().put("a", "2", ttl=ttl)
    with kv.open(path) as store:
        assert store["a"] == b"1"
        with pytest.raises(kv.error, match="accepts no writes"):
            store["a"] = "2"
    with pytest.raises(kv.error, match="the store is closed"):
        store["a"]
    store.close()


def test_a_file_of_another_kind_is_told_with_its_name(tmp_path):
    """The error had neither the file nor what opens it."""
    ordered, unordered, other = (tmp_path / name for name in ["a.db", "b.kv", "c.png"])
    senko_flash.dbm.open(ordered, "c").close()
    kv.open(unordered, "c").close()
    other.write_bytes(b"PNG" * 40_000)
    for of, flags, file, text in [
        (kv, "rwc", ordered, "open it with senko_flash.dbm"),
        (senko_flash.dbm, "rwc", unordered, "open it with senko_flash.store"),
        (kv, "rwc", other, "not a Senko store"),
        (senko_flash.dbm, "rwc", other, "not a Senko database"),
    ]:
        for flag in flags:
            with pytest.raises(of.error, match=text) as raised:
                of.open(file, flag)
            assert raised.value.filename == str(file)
            assert raised.value.errno == errno.EINVAL


def test_a_batch_is_written_as_a_whole_or_not_at_all(store):
    store["gone"] = "1"
    with store.batch(durability="synced") as batch:
        batch.put("a", "1")
        batch.put("b", "2", ttl=3600)
        batch.delete("gone")
        assert len(batch) == 3 and "a" not in store
    assert store.multi_get(["a", "gone", "b"]) == [b"1", None, b"2"]
    assert len({entry.time for entry in store.scan()}) == 1
    with pytest.raises(ZeroDivisionError):
        with store.batch() as batch:
            batch.put("c", "3")
            1 / 0
    assert "c" not in store


def test_a_batch_that_has_ended_takes_nothing_and_writes_nothing(store):
    with store.batch() as written:
        written.put("a", "1")
    with pytest.raises(ZeroDivisionError):
        with store.batch() as dropped:
            dropped.put("b", "2")
            1 / 0
    with pytest.raises(ValueError):
        with store.batch() as refused:
            refused.put("c" * 65537, "3")
    for batch in (written, dropped, refused):
        for use in (
            lambda: batch.put("d", "4"),
            lambda: batch.delete("a"),
            lambda: batch.__enter__(),
            lambda: store.write(batch),
        ):
            with pytest.raises(kv.error, match="^the batch has ended$"):
                use()
        assert len(batch) == 0
    assert list(store.items()) == [(b"a", b"1")]


def test_many_keys_at_once(store):
    for n in range(3000):
        store["%d" % n] = "%d" % (n * n)
    keys = ["%d" % n for n in range(0, 6000, 3)]
    found = store.multi_get(iter(keys))
    assert found == [b"%d" % (n * n) if n < 3000 else None for n in range(0, 6000, 3)]
    before = store.snapshot()
    store.clear()
    assert before.multi_get(keys) == found and before["2"] == b"4"
    assert len(list(before.scan())) == len(list(before)) == 3000
    assert dict(before) == dict(before.items()) and len(set(before.values())) == 3000
    assert "snapshot" in repr(before) and "0 writes" in repr(store.batch())
    assert store.multi_get([]) == []


def test_versions_and_expiry(store):
    one = store.put("k", "1")
    two = store.put("k", "2", ttl=datetime.timedelta(hours=1))
    store.delete("k")
    newest, before, first = store.history("k")
    assert newest.value is None and newest.time > two
    assert (before.value, before.time) == (b"2", two) and before.expires_at > time.time()
    assert first == kv.Version(one, b"1", None)
    assert store.get("k") is None
    assert store.get("k", at=two) == b"2" and store.get("k", at=one) == b"1"
    assert store.get("k", "none", at=one - 1) == "none"
    moment = datetime.datetime.fromtimestamp(two / 1e6, datetime.timezone.utc)
    assert store.get("k", at=moment + datetime.timedelta(microseconds=1)) == b"2"
    store.put("short", "x", expires_at=1)
    assert "short" not in store


def test_eight_threads_lose_no_addition(store):
    def add():
        for _ in range(50):
            store.update("n", lambda old: str(int(old or 0) + 1))

    threads = [threading.Thread(target=add) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store["n"] == b"400"
    assert store.compare_and_swap("n", "0", "1") is None
    assert store.compare_and_swap("n", "400", None) > 0 and "n" not in store


def test_a_change_that_writes_to_its_own_key_ends(store):
    """It was called for ever."""
    calls = []

    def change(old):
        calls.append(old)
        store["k"] = str(len(calls))
        return "never"

    with pytest.raises(kv.error, match="during each of 1000 tries"):
        store.update("k", change)
    assert len(calls) == 1000 and store["k"] == b"1000"


def test_backup_verify_compact_and_stats(store, path, tmp_path):
    for n in range(2000):
        store["%d" % (n % 500)] = os.urandom(1000)
    told = store.backup(tmp_path / "copy.kv")
    assert told["elements"] >= 500 and told["bytes"] > 500_000 and told["time"] > 0
    with pytest.raises(kv.error, match="copy.kv"):
        store.backup(tmp_path / "copy.kv")
    with kv.open(tmp_path / "copy.kv") as copy:
        assert dict(copy.items()) == dict(store.items())
    stats = store.stats()
    assert stats["puts"] == 2000 and stats["file_bytes"] > 0
    for key in list(store)[10:]:
        store.delete(key)
    store.compact()
    assert store.stats()["compactions"] > 0 and len(store) == 10
    store.close()
    checked = kv.verify(path)
    assert checked.problems == [] and checked.counts["elements"] >= 10
    with open(path, "r+b") as file:
        file.write(bytes(4096))
    with pytest.raises(kv.error):
        damaged = kv.verify(path)
        assert damaged.problems
        raise kv.error("told as problems")


def test_the_child_of_a_fork_is_refused(store):
    store["a"] = "1"
    snapshot, scan = store.snapshot(), store.scan()
    child = os.fork()
    if child == 0:
        refused = 0
        reads = (lambda: store["a"], lambda: snapshot["a"], lambda: next(scan))
        calls = (*reads, store.sync, store.close)
        for call in calls:
            try:
                call()
            except OSError as error:
                refused += "before a fork" in str(error)
        os._exit(refused)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5
    assert store["a"] == b"1"


def test_a_killed_interpreter_loses_nothing_synced(path):
    program = """
import itertools, sys, senko_flash.store
store = senko_flash.store.open(sys.argv[1], "c", block_bytes=1 << 20)
for n in itertools.count():
    store[str(n)] = str(n) * 20
    if n % 100 == 99:
        store.sync()
        print(n, flush=True)
"""
    with subprocess.Popen([sys.executable, "-c", program, path], stdout=subprocess.PIPE) as victim:
        synced = [int(victim.stdout.readline()) for _ in range(10)][-1]
        victim.kill()
    with kv.open(path, "w") as store:
        keys = [str(n) for n in range(synced + 1)]
        assert store.multi_get(keys) == [key.encode() * 20 for key in keys]


def test_ctrl_c_ends_a_scan(store):
    for n in range(3000):
        store[str(n)] = b"x"
    with pytest.raises(KeyboardInterrupt):
        for n, _ in enumerate(store.scan()):
            if n == 0:
                os.kill(os.getpid(), signal.SIGINT)
    assert len(store) == 3000


def test_threads_that_pop_records_take_each_once(path):
    """popitem used to raise the KeyError of a key that another thread had taken."""
    taken = []

    def take():
        while True:
            try:
                taken.append(store.popitem())
            except KeyError as error:
                assert error.args == ("the store is empty",)
                return

    with kv.open(path, "c") as store:
        with store.batch() as batch:
            for n in range(500):
                batch.put(str(n), str(n))
        threads = [threading.Thread(target=take) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(store) == 0
    assert sorted(taken) == sorted((str(n).encode(),) * 2 for n in range(500))


def test_what_is_open_at_the_end_of_a_program_is_kept(path):
    """What a daemon thread refers to is not dropped, and unwritten records used to be lost."""
    program = """
import sys, threading, senko_flash.store
store = senko_flash.store.open(sys.argv[1], "c", durability="none")
store["k"] = "v"
threading.Thread(target=lambda kept: threading.Event().wait(), args=[store], daemon=True).start()
del store
closed = senko_flash.store.open(sys.argv[1] + "-closed", "c")
closed.close()
"""
    command = [sys.executable, "-c", program, path]
    assert subprocess.run(command, check=True, capture_output=True).stderr == b""
    with kv.open(path) as store:
        assert store["k"] == b"v"
