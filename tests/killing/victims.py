# SPDX-License-Identifier: Apache-2.0
"""Servers to kill: a senko with its files kept, and a small server in this process that comes back
with faults to order.
"""

import glob
import itertools
import os
import random
import re
import shutil
import socket
import subprocess
import tempfile
import threading
import time

import servers


class Senko:
    """`senko serve` on one port and one data folder, however often it is killed."""

    def __init__(self, binary, *options, memory=32 << 20, flash=192 << 20, threads=(1,)):
        """`threads`: how many each start has, in turn."""
        self.folder = tempfile.mkdtemp(prefix="senko-kill-", dir=os.environ.get("SENKO_TMP"))
        port = servers.free_port()
        self.address = ("127.0.0.1", port)
        self.process = None
        self.threads = itertools.cycle(threads)
        # Files in shared memory that outlive it.
        self.memory = set()
        self.log = open(os.path.join(self.folder, "log"), "ab")
        self.command = [os.path.abspath(binary), "serve", "-p", str(port), "-c", "100", "--memory", "%dk" % (memory >> 10)]
        self.warm = comes_back(binary)
        if self.warm:
            self.command += ["--data-dir", os.path.join(self.folder, "data")]
        self.command += ["--flash", "%s:%dk" % (os.path.join(self.folder, "flash"), flash >> 10), *options]

    def launch(self):
        self.process = subprocess.Popen([*self.command, "-t", str(next(self.threads))], stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, cwd=self.folder)

    def false_start(self, seconds):
        """Starts it and kills it before anybody spoke to it, perhaps before it could."""
        self.launch()
        time.sleep(seconds)
        self.kill()

    def start(self):
        """Starts it; the seconds until the first answer."""
        began = time.monotonic()
        self.launch()
        while True:
            try:
                with socket.create_connection(self.address, timeout=10) as s:
                    s.sendall(b"mn\r\n")
                    if s.recv(16) == b"MN\r\n":
                        took = time.monotonic() - began
                        self.memory |= memory_of(self.process)
                        return took
            except OSError:
                pass
            assert self.process.poll() is None, "the server ended by itself:\n" + self.said()
            assert time.monotonic() - began < 300, "the server does not answer:\n" + self.said()
            time.sleep(0.002)

    def kill(self):
        assert self.process.poll() is None, "the server ended by itself:\n" + self.said()
        self.process.kill()
        self.process.wait()

    def end(self):
        """As `systemctl stop` does it."""
        self.process.terminate()
        assert self.process.wait(180) == 0, self.said()

    def ask(self, request, end=b"END\r\n"):
        return servers.Server("flash", self.address).ask(request, end)

    def stats(self):
        return servers.Server("flash", self.address).stats()

    def wrote_to_flash(self):
        """Whether it has written a thousand items or so since its start."""
        return int(self.stats()["flash_written_bytes"]) > 4 << 20

    def said(self):
        with open(self.log.name, errors="replace") as log:
            return log.read()[-4000:]

    def remove(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.log.close()
        forget(self.memory)
        shutil.rmtree(self.folder, ignore_errors=True)


class Forgetful(Senko):
    """A senko whose items in shared memory are, at every third start, those of a kill before the
    last: as if what came since had never been written there. The server's own words stay, as it
    refuses a memory that says that it is of another start.
    """

    kept = None
    kills = 0

    def kill(self):
        super().kill()
        self.kills += 1
        now = {path: open(path, "rb").read() for path in self.memory if os.path.exists(path) and os.path.basename(path) != "server"}
        if self.kills % 3 == 0:
            for path, data in self.kept.items():
                with open(path, "r+b") as file:
                    file.write(data)
        else:
            self.kept = now


def memory_of(process):
    """The files in shared memory that outlive it."""
    with open("/proc/%d/maps" % process.pid) as maps:
        found = re.findall(r"(/\S*/senko-[0-9a-f]{16})/\S*$", maps.read(), re.MULTILINE)
    return {path for folder in set(found) for path in glob.glob(folder + "/*")}


def forget(memory):
    """Removes such files, and their folders."""
    for folder in {os.path.dirname(path) for path in memory}:
        shutil.rmtree(folder, ignore_errors=True)


def comes_back(binary):
    """Whether this senko keeps its flash items over a restart."""
    text = subprocess.run([binary, "serve", "--help"], capture_output=True, text=True, timeout=300).stdout
    return "--keep-dram" in text


class Item:
    __slots__ = ("data", "unique", "dead_at")

    def __init__(self, data, unique, dead_at):
        self.data = data
        self.unique = unique
        self.dead_at = dead_at


# Faults that a server can have after a restart.
FAULTS = ["deleted", "stale", "expired", "flushed", "unique", "torn", "alien"]


class Little:
    """A memcached in a few lines that forgets nothing when it is killed. With a fault it brings
    back, at some of its starts, what it may not; or (`late`) some time after the start, as a server
    that learns its keys again bit by bit might."""

    warm = True

    def __init__(self, fault=None, seed=1, late=False):
        self.random = random.Random(seed)
        self.fault = fault
        self.late = late
        self.items = {}
        self.unique = 0
        # Items that existed and do not any more: key -> Item, by fault.
        self.gone = {kind: {} for kind in FAULTS}
        self.lock = threading.Lock()
        self.life = None
        self.address = None

    def start(self):
        listener = socket.create_server(("127.0.0.1", self.address[1] if self.address else 0))
        self.address = listener.getsockname()
        self.life = Life(self, listener)
        if not self.late:
            self.sin()
        return 0.0

    def kill(self):
        self.life.end()

    end = kill

    def false_start(self, seconds):
        self.start()
        self.kill()

    def wrote_to_flash(self):
        return True

    def sin(self):
        """Does what its fault is."""
        with self.lock:
            if self.fault == "unique":
                self.unique = max(self.unique - 500, 0)
            elif self.fault == "torn":
                for item in self.random.sample(sorted(self.items.values(), key=id), min(len(self.items), 20)):
                    if len(item.data) > 30:
                        item.data = item.data[:-1] + b"!"
            elif self.fault == "alien":
                keys = [k for k in self.items if k.startswith(b"k")]
                for key in self.random.sample(keys, min(len(keys), 20)):
                    self.items[key] = self.items[self.random.choice(keys)]
            elif self.fault:
                for key, item in self.gone[self.fault].items():
                    back = Item(item.data, item.unique, None)
                    if self.fault == "stale" or key not in self.items:
                        self.items[key] = back
            for kind in self.gone.values():
                kind.clear()

    def remove(self):
        self.life.end()

    # ---- commands ----

    def find(self, key):
        item = self.items.get(key)
        if item and item.dead_at is not None and int(time.time()) >= item.dead_at:
            self.gone["expired"][key] = self.items.pop(key)
            return None
        return item

    def put(self, key, data, ttl):
        for kind in self.gone.values():
            kind.pop(key, None)
        if key in self.items:
            self.gone["stale"][key] = self.items[key]
        self.unique += 1
        self.items[key] = Item(data, self.unique, int(time.time()) + ttl if ttl else None)

    def flush(self):
        self.gone["flushed"].update(self.items)
        self.items.clear()

    def run(self, words, data):
        with self.lock:
            name = words[0]
            if name in (b"get", b"gets"):
                out = []
                for key in words[1:]:
                    item = self.find(key)
                    if item:
                        unique = b" %d" % item.unique if name == b"gets" else b""
                        out.append(b"VALUE %s 0 %d%s\r\n%s\r\n" % (key, len(item.data), unique, item.data))
                return b"".join(out) + b"END\r\n"
            if name == b"flush_all":
                if len(words) > 1:
                    threading.Timer(int(words[1]), self.flush_later).start()
                else:
                    self.flush()
                return b"OK\r\n"
            key = words[1]
            item = self.find(key)
            if name == b"delete":
                if item is None:
                    return b"NOT_FOUND\r\n"
                self.gone["deleted"][key] = self.items.pop(key)
                return b"DELETED\r\n"
            if name == b"touch":
                if item is None:
                    return b"NOT_FOUND\r\n"
                item.dead_at = int(time.time()) + int(words[2]) if int(words[2]) else None
                return b"TOUCHED\r\n"
            if name == b"incr":
                if item is None:
                    return b"NOT_FOUND\r\n"
                number = b"%d" % (int(item.data) + int(words[2]))
                self.gone["stale"][key] = Item(item.data, item.unique, item.dead_at)
                self.unique += 1
                item.data, item.unique = number, self.unique
                return number + b"\r\n"
            if name == b"add" and item is not None or name == b"replace" and item is None:
                return b"NOT_STORED\r\n"
            if name == b"cas":
                if item is None:
                    return b"NOT_FOUND\r\n"
                if item.unique != int(words[5]):
                    return b"EXISTS\r\n"
            self.put(key, data, int(words[3]))
            return b"STORED\r\n"

    def flush_later(self):
        with self.lock:
            self.flush()


class Life:
    """The connections of a Little between a start and a kill."""

    def __init__(self, server, listener):
        self.server = server
        self.listener = listener
        self.sockets = []
        self.dead = False
        self.threads = [threading.Thread(target=self.accept, daemon=True)]
        if server.late:
            self.threads.append(threading.Thread(target=self.sin_later, daemon=True))
        for thread in self.threads:
            thread.start()

    def sin_later(self):
        time.sleep(0.3)
        if not self.dead:
            self.server.sin()

    def accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.sockets.append(connection)
            thread = threading.Thread(target=self.serve, args=(connection,), daemon=True)
            self.threads.append(thread)
            thread.start()

    def serve(self, connection):
        ahead = b""
        try:
            while not self.dead:
                end = ahead.find(b"\r\n")
                if end < 0:
                    part = connection.recv(1 << 16)
                    if not part:
                        return
                    ahead += part
                    continue
                words = ahead[:end].split()
                data = None
                ahead = ahead[end + 2 :]
                if words[0] in (b"set", b"add", b"replace", b"cas"):
                    length = int(words[4])
                    while len(ahead) < length + 2:
                        part = connection.recv(1 << 16)
                        if not part:
                            return
                        ahead += part
                    data = ahead[:length]
                    ahead = ahead[length + 2 :]
                # A command may run and its answer be lost: the kill falls between the two.
                answer = self.server.run(words, data)
                if not self.dead:
                    connection.sendall(answer)
        except OSError:
            pass
        finally:
            # One that was accepted while `end` closed the others would wait forever.
            connection.close()

    def end(self):
        self.dead = True
        for s in [self.listener, *self.sockets]:
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            s.close()
        for thread in self.threads:
            if thread is not threading.current_thread():
                thread.join(5)
