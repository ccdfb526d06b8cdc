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
from nodes import BRIEF, PATIENCE, Absence, nodes_in, nothing_old_is_read, old_values_come_back

NODES = 3
KEYS = 600
TTL = 100_000
# Seconds that an item of a node which is away lives in the gutter: longer than this test.
GUTTER_TTL = 10_000


@pytest.fixture
def cluster(senko, tmp_path, request):
    with nodes_in(senko, tmp_path, NODES, request.param) as nodes:
        gutter = servers.start_senko("dram")
        try:
            yield nodes, gutter
            assert gutter.process.poll() is None, "the spare node died"
        finally:
            gutter.stop()


class Model:
    """Commands of one client, and what each key may hold after them. `None` is always allowed: a
    cache may forget.
    """

    def __init__(self, nodes, gutter):
        pools = connection_pool_factory_builder(connection_timeout=300, recv_timeout=PATIENCE, mark_down_period_s=0.2)
        # A node keeps its place on the ring by its name.
        ring = [ServerAddress(*node.server.address, server_id="node%d" % n) for n, node in enumerate(nodes)]
        spare = [ServerAddress(*gutter.address, server_id="gutter")]
        self.client = CacheClient.cache_client_with_gutter_from_servers(ring, spare, GUTTER_TTL, pools)
        # Keys that could not be written to their own node: a user's hook, called by the client.
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
    pools = connection_pool_factory_builder(connection_timeout=300, recv_timeout=PATIENCE)
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

    away = Absence(nodes[0], model, absent, others)
    # At once, without an error: the spare node takes what the dead one does not.
    away.overwrite(value)
    assert model.failed == set(absent), "the client tells what its own node does not know"
    assert away.survivors_are_hit() == sum(model.may_hold[key] is not None for key in absent)
    # The client asks it again after a while.
    return away.end(lambda: alone(nodes[0]), lambda n: "probe %d" % n)


@pytest.mark.parametrize("cluster", [BRIEF], indirect=True)
def test_nothing_older_than_acknowledged_is_read(cluster):
    nothing_old_is_read(absence(cluster))


@pytest.mark.parametrize("cluster", [[]], indirect=True)
def test_without_the_option_old_values_come_back(cluster):
    old_values_come_back(absence(cluster))
