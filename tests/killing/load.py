# SPDX-License-Identifier: Apache-2.0
"""Connections that send a mix of commands and have each answer judged by the model, until the
server dies.
"""

import random
import socket
import threading
import time

from .model import Command, Model, Moment, Value, Wrong

# Shares of the commands, of 100.
MIX = [("get", 30), ("gets", 6), ("set", 28), ("delete", 9), ("add", 6), ("replace", 3), ("cas", 6), ("touch", 6), ("incr", 6)]
KINDS = [kind for kind, share in MIX for _ in range(share)]
# A part of the values has no end, the rest lives so many seconds.
TTLS = [0, 0, 0, 0, 0, 1, 2, 3, 60]
LENGTHS = [40, 120, 300, 300, 900, 2000, 3900, 3900, 9000, 20_000]


def moment():
    return Moment(time.monotonic(), time.time())


class Died(Exception):
    """The server is gone."""


class Wire:
    """A connection that reads answers of the classic text protocol."""

    def __init__(self, address):
        try:
            self.socket = socket.create_connection(address, timeout=300)
        except OSError as error:
            raise Died(str(error)) from None
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.ahead = b""
        self.at = 0
        # When the bytes that are here had come.
        self.came = moment()

    def close(self):
        self.socket.close()

    def send(self, data):
        try:
            self.socket.sendall(data)
        except OSError as error:
            raise Died(str(error)) from None

    def more(self):
        try:
            part = self.socket.recv(1 << 18)
        except TimeoutError:
            raise Wrong("no answer in five minutes: the connection hangs") from None
        except OSError as error:
            raise Died(str(error)) from None
        if not part:
            raise Died("the server closed")
        self.came = moment()
        self.ahead = self.ahead[self.at :] + part
        self.at = 0

    def line(self):
        while True:
            end = self.ahead.find(b"\r\n", self.at)
            if end >= 0:
                line = self.ahead[self.at : end]
                self.at = end + 2
                return line
            self.more()

    def block(self, length):
        while len(self.ahead) - self.at < length + 2:
            self.more()
        data = self.ahead[self.at : self.at + length]
        if self.ahead[self.at + length : self.at + length + 2] != b"\r\n":
            raise Wrong("no line end after a value")
        self.at += length + 2
        return data

    def values(self):
        """The answer of a get: {key: (data, unique)}."""
        found = {}
        while True:
            line = self.line()
            if line == b"END":
                return found
            words = line.split()
            if len(words) < 4 or words[0] != b"VALUE":
                raise Wrong("a strange answer to get: %r" % line)
            found[words[1]] = (self.block(int(words[3])), int(words[4]) if len(words) > 4 else 0)

    def answer(self, command):
        if command.kind in ("get", "gets"):
            found = self.values()
            if not set(found) <= {command.key}:
                raise Wrong("another key was answered: %r" % list(found))
            return found.get(command.key)
        line = self.line()
        return int(line) if line.isdigit() else line


class Client:
    """One connection's keys and what it does with them. It outlives the server."""

    def __init__(self, number, keys, flushes, uniques, seed):
        self.random = random.Random(seed * 1000 + number)
        self.model = Model(flushes, uniques)
        self.texts = [b"k%d-%d" % (number, n) for n in range(keys)]
        self.counters = [b"n%d-%d" % (number, n) for n in range(keys // 20 + 1)]
        self.version = 1
        # Items that a cas may name: (key, unique, content), some of them long out of date.
        self.seen = []
        self.commands = 0

    def fresh(self, length):
        self.version += 1
        return Value(self.version, length, 0, None)

    def draw(self):
        """The next command."""
        r = self.random
        kind = r.choice(KINDS)
        ttl = r.choice(TTLS)
        if kind == "incr" or r.random() < 0.05:
            key = r.choice(self.counters)
            if kind not in ("incr", "get", "gets", "delete", "touch", "set"):
                kind = "set"
            # Counters start far from each other, so that a number says whose it is.
            value = Value((self.version + 1) * 100_000, None, 0, None)
            self.version += 1
        else:
            # Half of the commands go to a tenth of the keys: those are in DRAM, and some have
            # several commands under way at once.
            hot = r.random() < 0.5
            key = self.texts[int(r.random() * len(self.texts) / (10 if hot else 1))]
            value = self.fresh(r.choice(LENGTHS))
        if kind == "cas":
            if not self.seen:
                kind = "set"
            else:
                key, unique, of = r.choice(self.seen)
                return Command("cas", key, value=self.fresh(r.choice(LENGTHS)), ttl=ttl, unique=unique, of=of)
        if kind in ("set", "add", "replace"):
            return Command(kind, key, value=value, ttl=ttl)
        return Command(kind, key, ttl=ttl, delta=1 + r.randrange(9))

    def batch(self, wire, commands):
        """Sends commands and judges their answers; those without one are entered when the server
        dies.
        """
        sent = moment()
        done = 0
        try:
            wire.send(b"".join(c.text() for c in commands))
            for command in commands:
                answer = wire.answer(command)
                self.model.answered(command, answer, sent, wire.came)
                done += 1
                if command.kind == "gets" and answer is not None and command.key[:1] == b"k":
                    value = self.model.keys[command.key][0]
                    self.note(command.key, answer[1], (value.number, value.length))
        except Died:
            self.model.unanswered(commands[done:], moment())
            raise
        finally:
            self.commands += done

    def note(self, key, unique, content):
        if len(self.seen) < 200:
            self.seen.append((key, unique, content))
        else:
            self.seen[self.random.randrange(200)] = (key, unique, content)

    def run(self, address, stop):
        """Sends until the server dies or `stop` is set."""
        wire = None
        try:
            wire = Wire(address)
            while not stop.is_set():
                self.batch(wire, [self.draw() for _ in range(self.random.choice((1, 4, 16, 40)))])
        except Died:
            pass
        finally:
            if wire:
                wire.close()

    def check(self, address):
        """Reads every key; how many had a value, and how many may have one."""
        wire = Wire(address)
        found = may = 0
        try:
            keys = self.texts + self.counters
            for first in range(0, len(keys), 100):
                part = keys[first : first + 100]
                sent = moment()
                wire.send(b"gets %s\r\n" % b" ".join(part))
                values = wire.values()
                for key in part:
                    alive = self.model.alive(key, sent)
                    may += bool(alive)
                    found += key in values
                    self.model.answered(Command("gets", key), values.get(key), sent, wire.came)
        finally:
            wire.close()
        return found, may


class Flusher:
    """Sends a flush_all now and then, one at a time; with a delay, none before that one was due."""

    def __init__(self, flushes, seed, pause):
        self.random = random.Random(seed)
        self.flushes = flushes
        self.pause = pause
        self.not_before = 0
        self.count = 0

    def run(self, address, stop):
        while not stop.wait(self.random.expovariate(1 / self.pause)):
            if time.time() < self.not_before:
                continue
            delay = self.random.choice((0, 0, 1))
            sent = moment()
            try:
                wire = Wire(address)
                wire.send(b"flush_all %d\r\n" % delay if delay else b"flush_all\r\n")
                self.not_before = time.time() + delay + 2 if delay else 0
                if wire.line() != b"OK":
                    raise Wrong("flush_all was refused")
                self.flushes.done(sent, wire.came, delay)
                self.count += 1
                wire.close()
            except Died:
                return


class Quiet:
    """A flusher that sends nothing."""

    def run(self, address, stop):
        pass


class Crowd:
    """Clients and flusher in threads of their own; what one of them finds wrong is raised by
    `end`.
    """

    def __init__(self, address, clients, flusher):
        self.stop = threading.Event()
        self.errors = []
        self.clients = clients
        self.before = sum(client.commands for client in clients)
        self.threads = [threading.Thread(target=self.guard, args=(who, address)) for who in [*clients, flusher]]
        for thread in self.threads:
            thread.start()

    def guard(self, who, address):
        try:
            who.run(address, self.stop)
        except BaseException as error:  # told by `end`, whatever it is
            self.errors.append(error)

    def wait_for(self, least, condition=lambda: True):
        """Waits for so many answers and for the condition, as long as there is hope of them."""
        end = time.monotonic() + 300
        while sum(client.commands for client in self.clients) - self.before < least or not condition():
            if self.errors or time.monotonic() > end:
                return
            time.sleep(0.01)

    def end(self):
        self.stop.set()
        for thread in self.threads:
            thread.join()
        if self.errors:
            raise self.errors[0]
