# SPDX-License-Identifier: Apache-2.0
"""`watch` as an operator uses it: behind a password, beside clients, on both tiers, and forgotten
in another terminal."""

import re
import socket
import subprocess
import threading
import time

import pytest
from pymemcache.client.base import Client

import servers

SECRET = "correct-horse"
LINE = re.compile(rb"^ts=\d+\.\d+ gid=(\d+) type=(\w+) (.*)$")


class Watcher:
    """A connection that watches."""

    def __init__(self, address, topics, password=None):
        self.socket = socket.create_connection(address, timeout=300)
        self.file = self.socket.makefile("rb")
        if password:
            user = b"shop " + password.encode()
            self.socket.sendall(b"set any 0 0 %d\r\n%s\r\n" % (len(user), user))
            assert self.file.readline() == b"STORED\r\n"
        self.socket.sendall(b"watch %s\r\n" % topics)
        self.answer = self.file.readline()

    def event(self):
        """The next event: its number, its type, and the rest."""
        line = self.file.readline()
        match = LINE.match(line)
        assert match, line
        return int(match[1]), match[2].decode(), match[3].decode()

    def close(self):
        self.file.close()
        self.socket.close()


def wait_for(condition, what, seconds=300):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "%s did not happen" % what
        time.sleep(0.02)


def connects(address):
    try:
        socket.create_connection(address, timeout=10).close()
        return True
    except OSError:
        return False


def test_a_watcher_behind_a_password_sees_what_clients_do(senko, tmp_path):
    (tmp_path / "users").write_text("shop:%s\n" % SECRET)
    address = ("127.0.0.1", servers.free_port())
    flash = ["--flash", "%s:128m" % (tmp_path / "flash"), "-m", "64", "-t", "2"]
    words = [senko, "serve", "-p", str(address[1]), "--auth-file", "users", *flash]
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=tmp_path)
    try:
        wait_for(lambda: process.poll() is not None or connects(address), "the start")
        stranger = Watcher(address, b"fetchers")
        assert stranger.answer == b"CLIENT_ERROR unauthenticated\r\n"
        stranger.close()
        # It is gone before anybody watches: else its end would be told.
        admin = Client(address, timeout=300)
        admin.set("any", "shop " + SECRET, noreply=False)
        wait_for(lambda: admin.stats()[b"curr_connections"] == 1, "the stranger's end")
        watcher = Watcher(address, b"mutations deletions connevents", SECRET)
        assert watcher.answer == b"OK\r\n"
        client = Client(address, timeout=300)
        client.set("any", "shop " + SECRET, noreply=False)
        assert client.set("k", b"v" * 5000, noreply=False) and client.delete("k", noreply=False)
        client.close()
        seen = []
        # The client comes, stores, deletes and goes.
        while not seen or seen[-1][1] != "conn_close":
            seen.append(watcher.event())
        kinds = [kind for _, kind, _ in seen]
        assert kinds == ["conn_new", "item_store", "deleted", "conn_close"], seen
        assert seen[1][2].startswith("key=k status=stored cmd=set ") and seen[1][2].endswith(" size=5000")
        assert " reason=normal " in seen[3][2]
        assert SECRET not in repr(seen)
        numbers = [number for number, _, _ in seen]
        assert numbers == sorted(set(numbers))
        watcher.close()
        admin.close()
    finally:
        process.terminate()
        process.wait(300)


@pytest.mark.parametrize("kind", ["dram", "flash"])
def test_a_forgotten_watcher_costs_its_lines_and_nothing_else(kind):
    server = servers.start_senko(kind, "-t", "2")
    if server is None:
        pytest.skip("SENKO_BIN is not set")
    try:
        forgotten = Watcher(server.address, b"fetchers mutations")
        assert forgotten.answer == b"OK\r\n"
        client = Client(server.address, timeout=300)
        keys = {"key-%04d" % n: b"%d" % n * 50 for n in range(200)}
        end = time.monotonic() + 300
        while int(server.stats()["log_watcher_skipped"]) == 0:
            assert time.monotonic() < end, "no line was dropped"
            assert client.set_many(keys, noreply=False) == []
            server.settle()
            found = client.get_many(keys)
            assert found == keys, "%d of %d" % (len(found), len(keys))
        assert int(server.stats()["log_watchers"]) == 1
        # It is looked at again: what it lost is told.
        while not forgotten.file.readline().startswith(b"skipped="):
            pass
        # Lines are dropped until it has caught up, so a set may be told only the next time.
        seen = threading.Event()

        def store():
            while not seen.is_set():
                client.set("last", b"1", noreply=False)
                seen.wait(0.01)

        storing = threading.Thread(target=store)
        storing.start()
        try:
            while b"key=last " not in forgotten.file.readline():
                pass
        finally:
            seen.set()
            storing.join()
        forgotten.close()
        wait_for(lambda: server.stats()["log_watchers"] == "0", "the watcher's end")
    finally:
        server.stop()
