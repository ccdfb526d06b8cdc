# SPDX-License-Identifier: Apache-2.0
"""Three nodes and a spare one, found by the clients themselves: meta-memcache (meta protocol only)
with its ring and its gutter.

A node is killed. The client sends its keys to the spare node (the gutter), where they live for a
short time. They are overwritten and deleted there. The node comes back warm, and is asked for them
again. With --max-absence nothing is read that is older than the last acknowledged command."""

import time

import pytest
from meta_memcache import CacheClient, MemcacheError, ServerAddress, connection_pool_factory_builder

import servers
from nodes import PATIENCE, Node

NODES = 3
KEYS = 600
TTL = 100_000
# Seconds that an item of a node which is away lives in the gutter: longer than this test.
GUTTER_TTL = 10_000


@pytest.fixture
def cluster(senko, tmp_path, request):
    nodes = [Node(senko, tmp_path / ("node%d" % n), request.param) for n in range(NODES)]
    gutter = servers.start_senko("dram")
    try:
        yield nodes, gutter
        assert gutter.process.poll() is None, "the spare node died"
    finally:
        gutter.stop()
        for node in nodes:
            # A clean stop removes its shared memory.
            node.process.terminate()
            node.process.wait(PATIENCE)


class Model:
    """Commands of one client, and what each key may hold after them. `None` is always allowed: a
    cache may forget.
    """

    def __init__(self, nodes, gutter):
        pools = connection_pool_factory_builder(connection_timeout=60, recv_timeout=PATIENCE, mark_down_period_s=0.2)
        # A node keeps its place on the ring by its name.
        ring = [ServerAddress(*node.server.address, server_id="node%d" % n) for n, node in enumerate(nodes)]
        spare = [ServerAddress(*gutter.address, server_id="gutter")]
        self.client = CacheClient.cache_client_with_gutter_from_servers(ring, spare, GUTTER_TTL, pools)
        # What could not be written to its own node: a user's hook, called by the client.
        self.failed = set()
        self.client.on_write_failure += lambda key: self.failed.add(key.key)
        self.may_hold = {}

    def change(self, key, value):
        """Sets the key, or invalidates it for `None`, until that is acknowledged."""
        end = time.monotonic() + PATIENCE
        while True:
            assert time.monotonic() < end, "the errors do not end"
            try:
                if self.client.invalidate(key) if value is None else self.client.set(key, value, TTL):
                    break
            except MemcacheError:
                pass
        self.may_hold[key] = value

    def stale(self, keys):
        """The keys whose value is none that they may hold, and how many have one."""
        found = {key.key: value for key, value in self.client.multi_get(keys).items()}
        assert set(found) == set(keys)
        wrong = [key for key, value in found.items() if value is not None and value != self.may_hold[key]]
        return wrong, sum(value is not None for value in found.values())


def value(key, version):
    return "%s.%d." % (key, version) * 20


def alone(node):
    """A client of one node."""
    pools = connection_pool_factory_builder(connection_timeout=60, recv_timeout=PATIENCE)
    return CacheClient.cache_client_from_servers([ServerAddress(*node.server.address)], pools)


def absence(cluster):
    """The stale keys after a node was away, and what its start said."""
    nodes, gutter = cluster
    model = Model(nodes, gutter)
    keys = ["key:%d" % n for n in range(KEYS)]
    for key in keys:
        model.change(key, value(key, 1))
    for node in nodes:
        node.server.settle()
    # The client's ring spreads the keys, and each is on one node only.
    held = [{key.key for key, value in alone(node).multi_get(keys).items() if value is not None} for node in nodes]
    assert sum(map(len, held)) == KEYS and set().union(*held) == set(keys)
    assert all(KEYS / NODES / 3 < len(part) < KEYS / NODES * 3 for part in held), [len(part) for part in held]
    absent = [key for key in keys if key in held[0]]
    others = [key for key in keys if key not in held[0]]
    assert not model.failed

    nodes[0].kill()
    killed = time.time()
    # At once, without an error: the spare node takes what the dead one does not.
    for n, key in enumerate(absent):
        model.change(key, None if n % 3 == 0 else value(key, 2))
    assert model.failed == set(absent), "the client tells what its own node does not know"
    wrong, hits = model.stale(others)
    assert not wrong and hits == len(others), "survivors keep hitting"
    wrong, hits = model.stale(absent)
    assert not wrong and hits == sum(model.may_hold[key] is not None for key in absent)
    # No more than the option allows is too long an absence, however fast all that was.
    while time.time() < killed + 3:
        time.sleep(0.1)

    said = nodes[0].start()
    # The client asks it again after a while.
    direct, probe, end = alone(nodes[0]), absent[1], time.monotonic() + PATIENCE
    for n in range(1_000_000):
        assert time.monotonic() < end, "the node does not come back"
        model.change(probe, "probe %d" % n)
        if direct.get(probe) == model.may_hold[probe]:
            break
        time.sleep(0.05)
    wrong, _ = model.stale(absent)
    assert not model.stale(others)[0]
    return wrong, said


@pytest.mark.parametrize("cluster", [["--max-absence", "1s"]], indirect=True)
def test_nothing_older_than_acknowledged_is_read(cluster):
    wrong, said = absence(cluster)
    assert not wrong
    assert "--max-absence allows 1 s" in said["warm"]["why_empty"]


@pytest.mark.parametrize("cluster", [[]], indirect=True)
def test_without_the_option_old_values_come_back(cluster):
    """The test above can fail: this is what the option is for."""
    wrong, said = absence(cluster)
    assert wrong and said["warm"]["flash_items"] > 0
