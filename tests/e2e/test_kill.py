# SPDX-License-Identifier: Apache-2.0
"""SIGKILL at random moments under load: whatever the server says afterwards, it is never stale,
deleted, expired, flushed or torn, and no CAS unique comes twice.

SENKO_KILL_CYCLES says how many kills (30; CI), SENKO_KILL_SEED which (a new one each time; it is
printed). With SENKO_KILL_ANSWER a start may take so many seconds to its first answer: for a machine
that does nothing else (1 is the goal).
"""

import bisect
import json
import os
import random
import signal
import subprocess
import time

import pytest

from killing.load import Crowd, Wire
from killing.model import Command, Flushes, Model, Moment, Uniques, Value, Wrong, payload
from killing.run import run
from killing.victims import FAULTS, Forgetful, Little, Senko, comes_back

CYCLES = int(os.environ.get("SENKO_KILL_CYCLES", "30"))
SEED = int(os.environ.get("SENKO_KILL_SEED", "0")) or time.time_ns() % 10**9
ANSWER = float(os.environ.get("SENKO_KILL_ANSWER", "inf"))


@pytest.mark.slow
def test_killed_under_load(senko):
    print("SENKO_KILL_SEED=%d" % SEED)
    share = {"one thread": [], "other threads at each start": [], "posix": ["--io", "posix"]}
    if comes_back(senko):
        share["posix"] += ["--keep-dram"]
    for n, (name, options) in enumerate(share.items()):
        # Little memory, so that a load that is short of cores fills it too: only what went to flash
        # comes back.
        threads = (2, 1, 3) if name.startswith("other") else (1,)
        victim = Senko(senko, *options, memory=(22 if len(threads) == 1 else 38) << 20, threads=threads)
        try:
            report = run(victim, max(CYCLES // len(share), 1), SEED + n, progress=tell)
        except Wrong:
            print(victim.said())
            raise
        finally:
            victim.remove()
        print("%s: %s" % (name, report))
        assert report.hits > report.kills * 20, "the load found next to nothing"
        # Most of what a key held was in DRAM, and goes with it.
        assert not victim.warm or report.found > 0, "nothing ever came back"
        assert max(report.starts) < ANSWER, report.starts


def tell(report):
    if (report.kills + report.stops) % 50 == 0:
        print("%d kills, %d stops, %d found" % (report.kills, report.stops, report.found), flush=True)


def test_every_byte_on_both_sides_of_a_kill(senko):
    """`senko load --verify` overwrites every key, and knows after the kill which version each must
    have: an older one would be a fault.
    """
    victim = Senko(senko, memory=64 << 20, flash=512 << 20)
    load = [senko, "load", "-s", "%s:%d" % victim.address, "--verify", "--timeout", "300s", "--keys", "30000", "--value-size", "100-6000", "--vary-size", "-c", "16"]
    try:
        for version in range(1, 5):
            victim.start()
            if version > 1:
                checked(load, "--read-back", "--generation", str(version - 1))
            checked(load, "--load", "--generation", str(version), "--pipeline", "8")
            checked(load, "--read-back", "--generation", str(version))
            victim.kill()
        victim.start()
        checked(load, "--read-back", "--generation", "4", *(["--expect-found", "0.5"] if victim.warm else []))
    finally:
        victim.remove()


@pytest.mark.slow
def test_a_kill_in_the_middle_of_a_load(senko):
    """Killed while `senko load` overwrites every key in order: what was stored is of the new
    version, but for what was under way, and what was not yet asked for of the old one. A load that
    ends before its kill, because this process had to wait for a processor, is repeated."""
    keys, connections, pipeline = 150_000, 16, 8
    under_way = connections * pipeline
    victim = Senko(senko, memory=64 << 20, flash=1 << 30, threads=(2, 3, 1))
    load = [senko, "load", "-s", "%s:%d" % victim.address, "--verify", "--timeout", "300s", "--keys", str(keys)]
    load += ["--value-size", "100-6000", "--vary-size", "-c", str(connections)]
    draw = random.Random(SEED)

    def read_back(generation, first, last):
        """The keys found, and how many of them do not have this version."""
        range_ = ["--first-key", str(first), "--last-key", str(last - 1)]
        done = subprocess.run([*load, "--read-back", "--json", "--generation", str(generation), *range_], capture_output=True, text=True, timeout=1500)
        report = json.loads(done.stdout.splitlines()[0])
        return report["hits"], sum(report["faults"].values())

    try:
        victim.start()
        checked(load, "--load", "--generation", "1", "--pipeline", str(pipeline))
        generation, kills = 1, 0
        while kills < 3:
            generation += 1
            assert generation < 30, "the loads end before their kills"
            before = int(victim.stats()["cmd_set"])
            loading = subprocess.Popen([*load, "--load", "--generation", str(generation), "--pipeline", str(pipeline)], stderr=subprocess.DEVNULL)
            enough = draw.randrange(keys // 8, keys // 2)
            done = 0
            while done < enough and loading.poll() is None:
                done = int(victim.stats()["cmd_set"]) - before
            victim.kill()
            # It would try to connect again for a while.
            loading.kill()
            ended = loading.wait()
            victim.start()
            if ended == 0:
                continue
            assert ended == -signal.SIGKILL and done >= enough, "the load failed"
            kills += 1
            # Between the last look and the kill some more were stored, however many. From one of
            # these keys on there is none of the new version.
            edges = [*range(done, keys, keys // 16), keys]
            first_old = bisect.bisect_left(edges, True, key=lambda edge: edge == keys or read_back(generation - 1, edge, keys)[1] == 0)
            # A key behind this one has the new version, so those before it were all asked for.
            asked = edges[max(first_old - 1, 0)]
            found, wrong = read_back(generation, 0, asked)
            assert wrong <= under_way, (generation, done, asked, wrong)
            if edges[first_old] < keys:
                found += read_back(generation - 1, edges[first_old], keys)[0]
            assert not victim.warm or found > keys * 0.2, (found, done)
            # The whole of it, so that the next has one version to overwrite.
            checked(load, "--load", "--generation", str(generation), "--pipeline", str(pipeline))
    finally:
        victim.remove()


def checked(command, *more):
    done = subprocess.run([*command, *more], capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stdout + done.stderr


def fill(address, keys, length):
    """Stores so many values, and what pushes them out of DRAM, all the way to the device."""
    wire = Wire(address)
    for first in range(0, keys, 200):
        part = range(first, min(first + 200, keys))
        wire.send(b"".join(Command("set", b"f%d" % n, value=Value(n, length, 0, None)).text() for n in part))
        assert all(wire.line() == b"STORED" for _ in part)
    wire.close()


def held(address, keys, length):
    """Which keys are there; what they hold is right."""
    found = set()
    wire = Wire(address)
    for first in range(0, keys, 100):
        part = range(first, min(first + 100, keys))
        wire.send(b"get %s\r\n" % b" ".join(b"f%d" % n for n in part))
        for key, (data, _) in wire.values().items():
            assert data == payload(key, int(key[1:]), length), key
            found.add(key)
    wire.close()
    return found


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_a_settled_fill_comes_back(senko, end):
    """What lies in regions that were written is back, at least 99 % of it, soon
    after the server answers.
    """
    victim = Senko(senko, memory=64 << 20, flash=512 << 20)
    try:
        if not victim.warm:
            pytest.skip("this senko starts with empty flash")
        victim.start()
        keys, length = 40_000, 2000
        fill(victim.address, keys, length)
        before = int(victim.stats()["flash_written_bytes"])
        # More than memory of other items, that are asked for: the keys have left DRAM and the write
        # buffers.
        push(victim, 120 << 20)
        assert int(victim.stats()["flash_written_bytes"]) > before
        there = held(victim.address, keys, length)
        assert len(there) > keys * 0.95, len(there)
        victim.kill() if end == "kill" else victim.end()
        print("first answer after %.3f s" % victim.start())
        until = time.monotonic() + 300
        while True:
            back = held(victim.address, keys, length)
            if len(back & there) >= len(there) * 0.99 or time.monotonic() > until:
                break
            time.sleep(0.2)
        print("%d of %d came back" % (len(back & there), len(there)))
        assert len(back & there) >= len(there) * 0.99
    finally:
        victim.remove()


def push(victim, total):
    wire = Wire(victim.address)
    count = total // 2100
    for first in range(0, count, 200):
        wire.send(b"".join(b"set p%d 0 0 2000\r\n%s\r\n" % (n, b"." * 2000) for n in range(first, first + 200)))
        assert all(wire.line() == b"STORED" for _ in range(200))
        # A key that is never requested would only pass by those that fill the main queue.
        for _ in range(2):
            wire.send(b"get %s\r\n" % b" ".join(b"p%d" % n for n in range(first, first + 200)))
            assert len(wire.values()) == 200
    wire.close()


# ---- the checker itself ----


def test_a_server_without_fault_passes():
    for seed in range(2):
        report = run(Little(seed=seed), 6, seed, keys=300, longest=0.3, pause=0.3)
        assert report.hits > 100 and report.found > report.may * 0.2, str(report)


@pytest.mark.parametrize("late", [False, True], ids=["at once", "later"])
@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_is_seen(fault, late):
    """A server that brings back what it may not, in one way at a time, is found out soon."""
    for seed in range(2):
        with pytest.raises(Wrong):
            run(Little(fault, seed, late), 30, seed, keys=300, longest=0.5, pause=0.3)


def test_a_memory_of_yesterday_is_seen(senko):
    """A real server, wronged: what it comes back from is not what it left."""
    victim = Forgetful(senko, memory=22 << 20)
    if not victim.warm:
        victim.remove()
        pytest.skip("this senko starts with empty flash")
    try:
        with pytest.raises(Wrong):
            run(victim, 30, SEED, each_on_flash=True)
    finally:
        victim.remove()


def models(*commands):
    model = Model(Flushes(), Uniques())
    for command, answer in commands:
        model.answered(command, answer, Moment(1, 1000), Moment(2, 1001))
    return model


def may(model, key=b"k"):
    return sorted(v.number for v in model.keys[key])


def value(number):
    return Value(number, 40, 0, None)


def counter(number):
    return Value(number, None, 0, None)


def test_unanswered_commands_ran_up_to_some_point():
    start = (Command("set", b"k", value=value(1)), b"STORED")
    cases = [
        ([Command("set", b"k", value=value(2))], [1, 2]),
        ([Command("delete", b"k")], [1]),
        ([Command("delete", b"k"), Command("add", b"k", value=value(2))], [1, 2]),
        ([Command("delete", b"k"), Command("replace", b"k", value=value(2))], [1]),
        ([Command("replace", b"k", value=value(2)), Command("set", b"k", value=value(3))], [1, 2, 3]),
        ([Command("cas", b"k", value=value(2), unique=9, of=(1, 40))], [1, 2]),
        ([Command("cas", b"k", value=value(2), unique=9, of=(7, 40))], [1]),
    ]
    for commands, wanted in cases:
        model = models(start)
        model.unanswered(commands, Moment(3, 1002))
        assert may(model) == wanted, commands


def test_counters_ran_up_to_some_point():
    model = models((Command("set", b"k", value=counter(5)), b"STORED"))
    model.unanswered(
        [Command("incr", b"k", delta=1), Command("set", b"k", value=counter(100)), Command("incr", b"k", delta=3)], Moment(3, 1002)
    )
    # Not 8 or 9: the 3 is added after the set.
    assert may(model) == [5, 6, 100, 103]
    model.answered(Command("incr", b"k", delta=2), 102, Moment(4, 1003), Moment(4, 1003))
    assert may(model) == [102]
    with pytest.raises(Wrong):
        model.answered(Command("incr", b"k", delta=2), 107, Moment(4, 1003), Moment(4, 1003))


def get(model, number, mono, wall):
    data = payload(b"k", number, 40)
    model.answered(Command("get", b"k"), (data, 0), Moment(mono, wall), Moment(mono, wall))


def test_an_end_is_the_latest_that_it_can_be():
    model = models((Command("set", b"k", value=value(1), ttl=3), b"STORED"))
    # Answered in second 1001, so it may have been stored in 1001 and live through 1003.
    get(model, 1, 3, 1003.9)
    with pytest.raises(Wrong):
        get(model, 1, 3, 1004.0)
    model = models((Command("set", b"k", value=value(1), ttl=3), b"STORED"))
    model.unanswered([Command("touch", b"k", ttl=0)], Moment(3, 1002))
    get(model, 1, 4, 2000)


def test_a_flush_takes_what_was_surely_stored_before_it():
    flushes = Flushes()
    for stored, wanted in [(4, False), (6, True)]:
        model = Model(flushes, Uniques())
        model.answered(Command("set", b"k", value=value(1)), b"STORED", Moment(1, 1000), Moment(stored, 1000))
        flushes.done(Moment(5, 1000), Moment(7, 1000), 0)
        get(model, 1, 6.5, 1000)  # sent before the flush was answered
        if wanted:
            get(model, 1, 8, 1000)
        else:
            with pytest.raises(Wrong):
                get(model, 1, 8, 1000)


def test_a_unique_belongs_to_one_content():
    uniques = Uniques()
    uniques.see(5, b"a", value(1))
    uniques.see(5, b"a", value(1))
    with pytest.raises(Wrong):
        uniques.see(5, b"a", value(2))


def test_what_was_gone_is_not_found_again():
    for kind, answer in [("delete", b"DELETED"), ("touch", b"TOUCHED"), ("add", b"NOT_STORED"), ("replace", b"STORED"), ("cas", b"STORED")]:
        model = models((Command("set", b"k", value=value(1)), b"STORED"), (Command("delete", b"k"), b"DELETED"))
        command = Command(kind, b"k", value=value(2), of=(1, 40))
        with pytest.raises(Wrong):
            model.answered(command, answer, Moment(3, 1002), Moment(3, 1002))


def test_a_crowd_tells_what_one_of_it_found():
    class Bad:
        def run(self, address, stop):
            raise Wrong("found")

    with pytest.raises(Wrong):
        Crowd(None, [], Bad()).end()
