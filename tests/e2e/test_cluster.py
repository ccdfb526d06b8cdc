# SPDX-License-Identifier: Apache-2.0
"""Three nodes behind nutcracker (twemproxy): what goes in comes out, each node has its share, and a
client that knows ketama itself finds every key on the node that nutcracker chose."""

import os

import pylibmc
import pytest
from pymemcache.client.base import Client

import servers

NODES = 3
KEYS = 3000
# Of few size classes: items leave DRAM class by class.
SIZES = (0, 1, 100, 700, 1999)

CONFIG = """\
senko:
  listen: 127.0.0.1:{port}
  hash: md5
  distribution: ketama
  auto_eject_hosts: false
  timeout: 300000
  backlog: 1024
  preconnect: true
  servers:
{servers}
"""


@pytest.fixture
def cluster(senko, program, tmp_path):
    nutcracker = program("nutcracker")
    nodes = [servers.start_senko("flash") for _ in range(NODES)]
    port, stats_port = servers.free_port(), servers.free_port()
    config = tmp_path / "nutcracker.yml"
    config.write_text(CONFIG.format(port=port, servers="\n".join("   - %s:1" % node.name for node in nodes)))
    try:
        with servers.nutcracker(nutcracker, config, tmp_path, port, stats_port):
            yield ("127.0.0.1", port), nodes
    finally:
        for node in nodes:
            node.stop()


def test_three_nodes_behind_nutcracker(cluster):
    address, nodes = cluster
    client = Client(address, timeout=300)
    values = {"key:%d" % i: os.urandom(SIZES[i % len(SIZES)]) for i in range(KEYS)}
    for key, value in values.items():
        assert client.set(key, value, noreply=False)
    for node in nodes:
        node.settle()

    keys = list(values)
    found = {}
    for start in range(0, KEYS, 100):
        found.update(client.get_many(keys[start : start + 100]))
    assert found == values

    # Each node has between half and double its share of the keys.
    direct = [Client(node.address, timeout=300) for node in nodes]
    shares = [sum(len(d.get_many(keys[s : s + 100])) for s in range(0, KEYS, 100)) for d in direct]
    assert sum(shares) == KEYS
    assert all(KEYS / NODES / 2 < share < KEYS / NODES * 2 for share in shares), shares

    # Commands that change items in place go through as well.
    assert client.set("n", "5", noreply=False)
    assert client.incr("n", 3, noreply=False) == 8
    assert client.append("key:1", "-more", noreply=False)
    assert client.get("key:1") == values["key:1"] + b"-more"
    assert client.touch("key:2", 100, noreply=False)
    assert client.delete("key:3", noreply=False)
    assert client.get("key:3") is None


def test_a_ketama_client_finds_the_same_nodes(cluster):
    address, nodes = cluster
    through_proxy = Client(address, timeout=300)
    for i in range(500):
        assert through_proxy.set("ring:%d" % i, str(i), noreply=False)
    for node in nodes:
        node.settle()
    ring = pylibmc.Client([node.name for node in nodes], behaviors={"ketama_weighted": True, "hash": "md5"})
    wrong = [i for i in range(500) if ring.get("ring:%d" % i) != str(i).encode()]
    assert not wrong, "%d of 500 keys lie on another node than the client thinks" % len(wrong)
    ring.disconnect_all()
