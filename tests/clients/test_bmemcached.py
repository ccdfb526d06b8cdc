# SPDX-License-Identifier: Apache-2.0
"""bmemcached (pure Python, binary protocol): every command of its client, on DRAM, flash and
memcached.
"""

import os
import time

import bmemcached
import pytest
from bmemcached.exceptions import MemcachedException

SIZES = [0, 1, 100, 4000, 4096, 5000, 100_000, 1_000_000]


@pytest.fixture(params=[bmemcached.DistributedClient, bmemcached.ReplicatingClient], ids=lambda c: c.__name__)
def client(server, request):
    c = request.param([server.name], socket_timeout=300)
    yield c
    c.disconnect_all()


def test_set_get(server, client):
    assert client.get("k") is None
    assert client.get("k", "default") == "default"
    assert client.set("k", "value")
    server.settle()
    assert client.get("k") == "value"


@pytest.mark.parametrize("size", SIZES)
def test_sizes(server, client, size):
    value = os.urandom(size)
    assert client.set("k", value, compress_level=0)
    server.settle()
    assert client.get("k") == value
    assert client.get_multi(["k", "nothing"]) == {"k": value}


@pytest.mark.parametrize("value", [True, 0, 5, 2**40, 1.5, "", "Grüße 閃光", b"bytes\x00\xff", [1, 2, 3], {"a": (1, None)}], ids=repr)
def test_types(server, client, value):
    assert client.set("k", value)
    server.settle()
    assert client.get("k") == value


def test_compressed(server, client):
    value = "compress me " * 10_000
    assert client.set("k", value, compress_level=9)
    server.settle()
    assert client.get("k") == value


def test_multi(server, client):
    values = {"key%d" % i: "v" * (i * 41) for i in range(200)}
    assert not client.set_multi(values)
    server.settle()
    assert client.get_multi(list(values) + ["nothing"]) == values
    with_cas = client.get_multi(["key1", "key2"], get_cas=True)
    assert with_cas["key1"][0] == values["key1"] and with_cas["key1"][1] > 0
    assert client.delete_multi(["key1", "key2"])
    assert client.get_multi(["key1", "key2", "key3"]) == {"key3": values["key3"]}


def test_set_multi_cas(server, client):
    stored, unique = client.set("a", "1", get_cas=True)
    assert stored and unique
    client.set("taken", "0")
    server.settle()
    # A unique of 0 means: only if there is nothing.
    results = client.set_multi_cas({("a", unique): "2", ("b", 0): "3", ("taken", 0): "4", ("c", 12345): "5", "plain": "6"})
    assert results["a"] and results["a"] != unique and results["b"] and results["plain"]
    assert results["taken"] is None and results["c"] is None
    server.settle()
    assert client.get_multi(["a", "b", "c", "taken", "plain"]) == {"a": "2", "b": "3", "taken": "0", "plain": "6"}


def test_add_replace(server, client):
    assert not client.replace("k", "v0")
    assert client.add("k", "v1")
    server.settle()
    assert not client.add("k", "v2")
    server.settle()
    assert client.replace("k", "v3")
    assert client.get("k") == "v3"
    assert client.replace("k", "v4", get_cas=True)[0]
    assert client.add("new", "v", get_cas=True)[0]


def test_cas(server, client):
    assert client.set("k", "v1")
    server.settle()
    value, unique = client.gets("k")
    assert value == "v1"
    assert client.cas("k", "v2", unique)
    server.settle()
    assert not client.cas("k", "v3", unique)
    assert client.get("k") == "v2"
    value, unique = client.get("k", get_cas=True)
    server.settle()
    stored, newer = client.cas("k", "v4", unique, get_cas=True)
    assert stored and newer != unique


def test_delete(server, client):
    client.set("k", "v")
    server.settle()
    unique = client.gets("k")[1]
    assert not client.delete("k", cas=unique + 1000)
    assert client.get("k") == "v"
    server.settle()
    assert client.delete("k", cas=unique)
    assert client.get("k") is None
    client.set("k", "v")
    server.settle()
    assert client.delete("k")
    assert client.get("k") is None


def test_incr_decr(server, client):
    assert client.incr("n", 1) == 0
    assert client.incr("n", 5) == 5
    server.settle()
    assert client.incr("n", 5) == 10
    server.settle()
    assert client.decr("n", 3) == 7
    assert client.decr("n", 100) == 0
    assert client.decr("fresh", 1) == 0


def test_expiry(server, client):
    client.set("short", "v", time=1)
    client.set("long", "v", time=100)
    server.settle()
    time.sleep(2.2)
    assert client.get("short") is None
    assert client.get("long") == "v"


def test_flush_and_stats(server, client):
    client.set("k", "v")
    server.settle()
    stats = client.stats()
    (values,) = stats.values()
    assert int(values["curr_items"]) >= 1
    (settings,) = client.stats("settings").values()
    assert settings
    assert client.flush_all()
    assert client.get("k") is None
    client.set("k", "v")
    assert client.flush_all(time=100)
    assert client.get("k") == "v"
    client.flush_all()


def test_too_large(server, client):
    with pytest.raises(MemcachedException):
        client.set("k", os.urandom(2_000_000), compress_level=0)
    assert client.get("k") is None
    assert client.set("k", "v")
    assert client.get("k") == "v"


def test_longest_key(server, client):
    key = "k" * 250
    assert client.set(key, "v")
    server.settle()
    assert client.get(key) == "v"


def test_reconnects(server, client):
    client.set("k", "v")
    client.disconnect_all()
    server.settle()
    assert client.get("k") == "v"
