# SPDX-License-Identifier: Apache-2.0
"""What a key may hold, known exactly, whatever happened to the commands that were under way when
the server died.

A key belongs to one connection, so its commands are in order. Its state is the set of values that
it may hold; that it holds nothing is always possible, since a cache may forget. An answered command
moves the set to what its answer proves. Commands that were not answered have run up to some point
of their order, and that point is unknown: the set is the union of the states after each of them.

What the set leaves out on purpose, because no clock of a client decides it: an item may be expired
or flushed at any moment between the earliest and the latest that the command can have run, so a
value is called dead only when it is so by the latest moment. A value that was missed may be there
again later, as long as it is the last one stored: after a restart items come back one after the
other.
"""

import bisect

# 64 KB of text in which every offset looks different.
BLOCK = b"".join(b"%x," % (n * 2654435761 % 2**32) for n in range(8000))


def payload(key, version, length):
    """The value of a version: it names its key and version, and every byte of it follows from
    them.
    """
    head = b"%s#%d#" % (key, version)
    at = version * 7919 % (len(BLOCK) // 2)
    return (head + BLOCK[at : at + length])[: max(length, len(head))]


class Wrong(AssertionError):
    """The server answered what it may not."""


class Value:
    """A value that a key may hold. `number`: its version, or the number itself of a counter
    (`length` is None).
    """

    __slots__ = ("number", "length", "stored_by", "dead_at")

    def __init__(self, number, length, stored_by, dead_at):
        self.number = number
        self.length = length
        # Monotonic time by which it was surely stored.
        self.stored_by = stored_by
        # The second of the clock from which on it is surely expired; None: never.
        self.dead_at = dead_at

    def data(self, key):
        return b"%d" % self.number if self.length is None else payload(key, self.number, self.length)

    def same(self, other):
        return (self.number, self.length, self.dead_at) == (other.number, other.length, other.dead_at)


class Moment:
    """A time on both clocks: intervals by the monotonic one, expiry by the other."""

    __slots__ = ("mono", "wall")

    def __init__(self, mono, wall):
        self.mono = mono
        self.wall = wall

    def expiry(self, ttl):
        return int(self.wall) + ttl if ttl else None


class Flushes:
    """The `flush_all` that were answered; sent one after the other by one client."""

    def __init__(self):
        self.answered = []
        self.sent = []
        self.delayed = []

    def done(self, sent, answered, delay):
        if delay:
            # Surely in force a second after it was due. Items stored between the command and then
            # may or may not be gone.
            self.delayed.append((int(answered.wall) + delay + 1, sent.mono))
        else:
            self.answered.append(answered.mono)
            self.sent.append(sent.mono)

    def bound(self, now):
        """What was stored by this time is surely flushed for a command sent now."""
        n = bisect.bisect_right(self.answered, now.mono)
        bound = self.sent[n - 1] if n else 0
        for due, sent in self.delayed:
            if now.wall >= due and sent > bound:
                bound = sent
        return bound


class Uniques:
    """Which content each CAS unique ever seen belongs to. One belongs to one content, for ever."""

    def __init__(self):
        self.seen = {}

    def see(self, unique, key, value):
        content = (key, value.number, value.length)
        before = self.seen.setdefault(unique, content)
        if before != content:
            raise Wrong("the unique %d of %r was that of %r before" % (unique, content, before))


class Command:
    """One command on one key, as it was sent."""

    __slots__ = ("kind", "key", "value", "ttl", "delta", "unique", "of")

    def __init__(self, kind, key, value=None, ttl=0, delta=0, unique=0, of=None):
        self.kind = kind
        self.key = key
        self.value = value
        self.ttl = ttl
        self.delta = delta
        self.unique = unique
        # The content that the unique of a cas belonged to.
        self.of = of

    def text(self):
        key = self.key
        if self.kind in ("get", "gets"):
            return b"%s %s\r\n" % (self.kind.encode(), key)
        if self.kind == "delete":
            return b"delete %s\r\n" % key
        if self.kind == "touch":
            return b"touch %s %d\r\n" % (key, self.ttl)
        if self.kind == "incr":
            return b"incr %s %d\r\n" % (key, self.delta)
        data = self.value.data(key)
        unique = b" %d" % self.unique if self.kind == "cas" else b""
        return b"%s %s 0 %d %d%s\r\n%s\r\n" % (self.kind.encode(), key, self.ttl, len(data), unique, data)

    def __repr__(self):
        more = {"touch": self.ttl, "incr": self.delta, "cas": "%s of %s" % (self.unique, self.of)}.get(self.kind, "")
        value = "" if self.value is None else " %d ttl %d" % (self.value.number, self.ttl)
        return "%s%s %s" % (self.kind, value, more)


def retimed(value, moment, ttl):
    return Value(value.number, value.length, value.stored_by, moment.expiry(ttl))


class Model:
    """The keys of one connection."""

    def __init__(self, flushes, uniques):
        self.flushes = flushes
        self.uniques = uniques
        self.keys = {}
        self.history = {}
        self.hits = 0
        self.misses = 0

    def remember(self, command, answer):
        past = self.history.setdefault(command.key, [])
        past.append((command, answer))
        if len(past) > 24:
            del past[:8]

    def wrong(self, command, answer, sent, why):
        past = "\n".join("  %r -> %r" % event for event in self.history.get(command.key, []))
        may = ", ".join("%d (dead at %s)" % (v.number, v.dead_at) for v in self.keys.get(command.key, []))
        text = "%s: %r %r answered %r\nsent at %.3f\nit may hold: %s\nits past, the latest last:\n%s"
        raise Wrong(text % (why, command.key, command, answer, sent.wall, may or "nothing", past))

    def alive(self, key, sent):
        """What the key may hold for a command sent then."""
        may = self.keys.get(key)
        if not may:
            return []
        bound = self.flushes.bound(sent)
        second = int(sent.wall)
        return [v for v in may if v.stored_by > bound and (v.dead_at is None or second < v.dead_at)]

    # ---- answered ----

    def answered(self, command, answer, sent, now):
        """Takes an answer: a word of the protocol, a number, None for a miss, or (data, unique)."""
        self.remember(command, answer if not isinstance(answer, tuple) else (answer[0][:40], answer[1]))
        alive = self.alive(command.key, sent)
        kind = command.kind
        if kind in ("get", "gets"):
            self.read(command, answer, sent, alive)
            return
        if isinstance(answer, bytes) and answer.startswith(b"SERVER_ERROR"):
            # Refused for want of memory; the old value may have gone.
            return
        # These say that the server holds something.
        finds = {"delete": b"DELETED", "touch": b"TOUCHED", "add": b"NOT_STORED", "replace": b"STORED", "cas": b"EXISTS"}
        if not alive and (answer == finds.get(kind) or isinstance(answer, int)):
            self.wrong(command, answer, sent, "it found what can't be there")
        stored = command.value
        if stored is not None:
            stored.stored_by, stored.dead_at = now.mono, now.expiry(command.ttl)
        good = True
        if kind == "set":
            good = answer == b"STORED"
            alive = [stored]
        elif kind == "delete":
            good = answer in (b"DELETED", b"NOT_FOUND")
            alive = []
        elif kind in ("add", "replace"):
            good = answer in (b"STORED", b"NOT_STORED")
            alive = [stored] if answer == b"STORED" else alive
        elif kind == "cas":
            good = answer in (b"STORED", b"EXISTS", b"NOT_FOUND")
            if answer == b"STORED":
                if not any((v.number, v.length) == command.of for v in alive):
                    self.wrong(command, answer, sent, "it stored by the unique of a content that is gone")
                alive = [stored]
        elif kind == "touch":
            good = answer in (b"TOUCHED", b"NOT_FOUND")
            if answer == b"TOUCHED":
                alive = [retimed(v, now, command.ttl) for v in alive]
        elif kind == "incr":
            good = answer == b"NOT_FOUND" or isinstance(answer, int)
            if isinstance(answer, int):
                from_these = [v for v in alive if v.length is None and v.number + command.delta == answer]
                if not from_these:
                    self.wrong(command, answer, sent, "it counted on from what can't be there")
                alive = [Value(answer, None, now.mono, v.dead_at) for v in from_these]
        if not good:
            self.wrong(command, answer, sent, "a strange answer")
        self.keys[command.key] = alive

    def read(self, command, answer, sent, alive):
        if answer is None:
            self.misses += 1
            return
        data, unique = answer
        found = [v for v in alive if v.data(command.key) == data]
        if not found:
            self.wrong(command, (data[:60], unique), sent, "a value that it can't hold")
        if command.kind == "gets":
            self.uniques.see(unique, command.key, found[0])
        self.hits += 1
        self.keys[command.key] = found

    # ---- not answered ----

    def unanswered(self, commands, died):
        """These were sent and the server died: of each key's, the first few ran."""
        now, union = {}, {}
        for command in commands:
            self.remember(command, "the server died")
            key = command.key
            if key not in now:
                now[key] = list(self.keys.get(key, []))
                union[key] = list(now[key])
            now[key] = self.step(command, now[key], died)
            union[key] += [v for v in now[key] if not any(v.same(u) for u in union[key])]
        self.keys.update(union)

    def step(self, command, may, died):
        """What the key may hold after the command, given what it may have held (or nothing)
        before.
        """
        kind, stored = command.kind, command.value
        if stored is not None:
            stored.stored_by, stored.dead_at = died.mono, died.expiry(command.ttl)
        if kind == "set":
            return [stored]
        if kind == "delete":
            return []
        if kind == "add":
            return may + [stored]
        if kind == "replace":
            return [stored] if may else []
        if kind == "cas":
            return may + [stored] if any((v.number, v.length) == command.of for v in may) else may
        if kind == "touch":
            return [retimed(v, died, command.ttl) for v in may]
        if kind == "incr":
            return [Value(v.number + command.delta, None, died.mono, v.dead_at) for v in may if v.length is None]
        return may
