# SPDX-License-Identifier: Apache-2.0
"""A node behind nutcracker is killed under load and comes back: with --max-absence nobody reads a
value that was replaced while it was away.

nutcracker takes a node out that fails, and sends its keys to the others. There they are overwritten
and deleted. The node comes back warm, and is asked for them again. A model of what each key may
hold finds what is older than the last acknowledged command."""

import time

import pytest
from pymemcache.client.base import Client
from pymemcache.exceptions import MemcacheError

import servers
from nodes import BRIEF, PATIENCE, Absence, nodes_in, nothing_old_is_read, old_values_come_back

NODES = 3
KEYS = 900

CONFIG = """\
senko:
  listen: 127.0.0.1:{port}
  hash: md5
  distribution: ketama
  auto_eject_hosts: true
  server_failure_limit: 1
  server_retry_timeout: 1000
  timeout: 300000
  backlog: 1024
  servers:
{servers}
"""


@pytest.fixture
def cluster(senko, program, tmp_path, request):
    nutcracker = program("nutcracker")
    with nodes_in(senko, tmp_path, NODES, request.param) as nodes:
        port, stats_port = servers.free_port(), servers.free_port()
        config = tmp_path / "nutcracker.yml"
        lines = ["   - %s:1 node%d" % (node.server.name, n) for n, node in enumerate(nodes)]
        config.write_text(CONFIG.format(port=port, servers="\n".join(lines)))
        with servers.nutcracker(nutcracker, config, tmp_path, port, stats_port):
            yield ("127.0.0.1", port), nodes


class Model:
    """Commands through the proxy, and what each key may hold after them. `None` is always allowed:
    a cache may forget.
    """

    def __init__(self, address):
        self.address = address
        self.client = None
        self.may_hold = {}
        self.errors = 0

    def run(self, command):
        """The command's answer; `MemcacheError` or `OSError` where there is none."""
        if self.client is None:
            self.client = Client(self.address, timeout=PATIENCE)
        try:
            return command(self.client)
        except (MemcacheError, OSError):
            self.client.close()
            self.client = None
            self.errors += 1
            raise

    def change(self, key, value):
        """Sets the key, or deletes it for `None`; tries until that is acknowledged."""
        end = time.monotonic() + PATIENCE
        while True:
            try:
                if value is None:
                    self.run(lambda c: c.delete(key, noreply=False))
                else:
                    assert self.run(lambda c: c.set(key, value, noreply=False))
                break
            except (MemcacheError, OSError):
                assert time.monotonic() < end, "the errors do not end"
        self.may_hold[key] = value

    def read(self, key):
        end = time.monotonic() + PATIENCE
        while True:
            try:
                return self.run(lambda c: c.get(key))
            except (MemcacheError, OSError):
                assert time.monotonic() < end, "the errors do not end"

    def stale(self, keys):
        """The keys whose value is none that they may hold, and how many have one."""
        found = {key: self.read(key) for key in keys}
        wrong = [key for key, value in found.items() if value is not None and value != self.may_hold[key]]
        return wrong, sum(value is not None for value in found.values())


def value(key, version):
    return (b"%s.%d." % (key.encode(), version)) * 60


def absence(cluster):
    """The stale keys after a node was away, and what its start said."""
    address, nodes = cluster
    model = Model(address)
    keys = ["key:%d" % n for n in range(KEYS)]
    for key in keys:
        model.change(key, value(key, 1))
    for node in nodes:
        node.server.settle()
    with_direct = Client(nodes[0].server.address, timeout=PATIENCE)
    absent = [key for key in keys if with_direct.get(key) is not None]
    others = [key for key in keys if key not in set(absent)]
    with_direct.close()
    assert KEYS / NODES / 3 < len(absent) < KEYS / NODES * 3
    assert model.errors == 0

    away = Absence(nodes[0], model, absent, others)
    # Some of that may fail before the proxy takes the node out.
    away.overwrite(value)
    assert away.survivors_are_hit() > 0

    def client():
        return Client(nodes[0].server.address, timeout=PATIENCE)

    # The proxy asks it again after a while.
    return away.end(client, lambda n: b"probe %d" % n)


@pytest.mark.parametrize("cluster", [BRIEF], indirect=True)
def test_nothing_older_than_acknowledged_is_read(cluster):
    nothing_old_is_read(absence(cluster))


@pytest.mark.parametrize("cluster", [[]], indirect=True)
def test_without_the_option_old_values_come_back(cluster):
    old_values_come_back(absence(cluster))
