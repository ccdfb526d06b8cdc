# SPDX-License-Identifier: Apache-2.0
"""A node of a cluster that is killed and started again where it was: for the tests of an absence
behind a proxy and behind clients.
"""

import contextlib
import json
import signal
import subprocess
import time

import servers

# Seconds for what takes as long as the machine likes.
PATIENCE = 300


class Node:
    """A senko that can be killed and started again where it was."""

    def __init__(self, senko, folder, options):
        folder.mkdir()
        port = servers.free_port()
        self.command = [
            senko, "serve", "-p", str(port), "--memory", "32m", "--policy", "lru", "--json",
            "--data-dir", str(folder / "data"), "--flash", "%s:512m" % (folder / "flash"), *options,
        ]  # fmt: skip
        self.server = servers.Server("flash", ("127.0.0.1", port))
        self.start()

    def start(self):
        """What its start says."""
        self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.server.process = self.process
        line = self.process.stdout.readline()
        assert line, "the node did not start"
        return json.loads(line)

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(PATIENCE)


@contextlib.contextmanager
def nodes_in(senko, folder, number, options):
    """So many nodes, in folders of their own."""
    nodes = []
    try:
        for n in range(number):
            nodes.append(Node(senko, folder / ("node%d" % n), options))
        yield nodes
    finally:
        for node in nodes:
            # A clean stop removes its shared memory.
            node.process.terminate()
            node.process.wait(PATIENCE)


# For the nodes of a test: a node that was away for longer than this comes back empty.
BRIEF = ["--max-absence", "1s"]


class Absence:
    """A node that is away for longer than `BRIEF` allows, and what clients find while it is and
    after. A model has the keys, by `change(key, value)`, and tells which of them are older than
    they may be, by `stale(keys)`."""

    def __init__(self, node, model, absent, others):
        self.node, self.model, self.absent, self.others = node, model, absent, others
        # A kill takes what is in write buffers. More than they hold comes behind the items.
        for _ in range(4):
            node.server.fill(1000)
        node.kill()
        self.killed = time.time()

    def overwrite(self, value):
        """Replaces the keys of the node, and deletes each third."""
        for n, key in enumerate(self.absent):
            self.model.change(key, None if n % 3 == 0 else value(key, 2))

    def survivors_are_hit(self):
        """The other nodes go on. How many of the absent keys are found."""
        wrong, hits = self.model.stale(self.others)
        assert not wrong and hits == len(self.others), "survivors keep hitting"
        wrong, hits = self.model.stale(self.absent)
        assert not wrong
        return hits

    def end(self, direct, probe_value):
        """Starts the node again, and waits until it is asked. `direct` makes a client of it alone.
        The stale keys, and what its start said.
        """
        # No more than the option allows is too long an absence, however fast all that was.
        while time.time() < self.killed + 3:
            time.sleep(0.1)
        said = self.node.start()
        client, probe, end = direct(), self.absent[1], time.monotonic() + PATIENCE
        for n in range(1_000_000):
            assert time.monotonic() < end, "the node does not come back"
            self.model.change(probe, probe_value(n))
            if client.get(probe) == self.model.may_hold[probe]:
                break
            time.sleep(0.05)
        wrong, _ = self.model.stale(self.absent)
        assert not self.model.stale(self.others)[0]
        return wrong, said


def nothing_old_is_read(absence):
    """With `BRIEF`: the node came back empty."""
    wrong, said = absence
    assert not wrong
    assert "--max-absence allows 1 s" in said["warm"]["why_empty"]


def old_values_come_back(absence):
    """Without it: what the option is for."""
    wrong, said = absence
    assert wrong and said["warm"]["flash_items"] > 0
