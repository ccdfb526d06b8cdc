# SPDX-License-Identifier: Apache-2.0
"""The cycles: start, load, kill at a random moment, start again, check; every answer of it judged
by the model.
"""

import random
import time

from .load import Client, Crowd, Flusher, Quiet
from .model import Flushes, Uniques


# A load in whose middle a kill falls has had so many answers, however busy the machine is.
LEAST = 1000


class Report:
    """What a run came to."""

    def __init__(self):
        self.kills = self.stops = self.commands = self.hits = self.misses = self.flushes = 0
        self.found = self.may = 0
        self.starts = []

    def __str__(self):
        starts = sorted(self.starts)
        return (
            "%d kills, %d stops, %d commands, %d hits, %d misses, %d flushes; after restarts %d of %d keys that may hold a value held one; "
            "first answer after %.3f s at most, %.3f s in the middle"
        ) % (
            self.kills, self.stops, self.commands, self.hits, self.misses, self.flushes, self.found, self.may,
            starts[-1], starts[len(starts) // 2],
        )  # fmt: skip


def run(victim, kills, seed, keys=3000, clients=4, longest=1.2, pause=2.5, progress=None, each_on_flash=False):
    """So many kills, with stops among them; raises `Wrong` with a key's past if an answer can't be
    right. With `each_on_flash` no kill comes before items have gone to flash.
    """
    draw = random.Random(seed)
    flushes, uniques = Flushes(), Uniques()
    crowd_of = [Client(n, keys, flushes, uniques, seed) for n in range(clients)]
    flusher = Flusher(flushes, seed, pause)
    report = Report()
    while report.kills < kills:
        if report.starts and draw.random() < 0.1:
            victim.false_start(draw.uniform(0, 0.1))
        report.starts.append(victim.start())
        if not victim.warm:
            # A server that forgets everything deals its uniques out anew.
            uniques.seen.clear()
            for client in crowd_of:
                client.seen.clear()
        # Often everything is read back before anything is changed; often the load begins while the
        # server still learns what it has.
        if draw.random() < 0.5:
            check(crowd_of, victim, report)
        # On a busy machine a load has flushes and kills before anything of it goes to flash. So the
        # last one has neither, if nothing has come back yet.
        must_come_back = report.kills + 1 == kills and report.found == 0
        crowd = Crowd(victim.address, crowd_of, Quiet() if must_come_back else flusher)
        # Mostly in the middle of the load, now and then in the middle of the start.
        if must_come_back or each_on_flash:
            crowd.wait_for(LEAST, victim.wrote_to_flash)
        elif draw.random() < 0.15:
            time.sleep(draw.uniform(0, 0.05))
        else:
            time.sleep(draw.uniform(0.1, longest))
            crowd.wait_for(LEAST)
        if draw.random() < 0.2:
            # The load ends first: then nothing is uncertain, and everything answered has to hold.
            crowd.end()
            check(crowd_of, victim, report)
            victim.kill()
            report.kills += 1
        elif draw.random() < 0.1:
            # Told to stop, it answers what it has received.
            victim.end()
            crowd.end()
            report.stops += 1
        else:
            victim.kill()
            crowd.end()
            report.kills += 1
        if progress:
            progress(report)
    report.starts.append(victim.start())
    if not victim.warm:
        uniques.seen.clear()
    check(crowd_of, victim, report)
    report.commands = sum(c.commands for c in crowd_of)
    report.hits = sum(c.model.hits for c in crowd_of)
    report.misses = sum(c.model.misses for c in crowd_of)
    report.flushes = flusher.count
    return report


def check(clients, victim, report):
    for client in clients:
        found, may = client.check(victim.address)
        report.found += found
        report.may += may
