# SPDX-License-Identifier: Apache-2.0
"""pylibmc (libmemcached): every command of its client, text and binary, on DRAM, flash and
memcached.
"""

import os
import time

import pylibmc
import pytest

SIZES = [0, 1, 100, 4000, 4096, 5000, 100_000, 1_000_000]


@pytest.fixture(params=["text", "binary"])
def client(server, request):
    c = pylibmc.Client([server.name], binary=request.param == "binary", behaviors={"tcp_nodelay": True, "cas": True})
    yield c
    c.disconnect_all()


def test_set_get(server, client):
    assert client.get("k") is None
    assert client.get("k", "default") == "default"
    assert client.set("k", "value") is True
    server.settle()
    assert client.get("k") == "value"
    client["item"] = 5
    server.settle()
    assert client["item"] == 5
    assert "item" in client
    del client["item"]
    with pytest.raises(KeyError):
        client["item"]


@pytest.mark.parametrize("size", SIZES)
def test_sizes(server, client, size):
    value = os.urandom(size)
    assert client.set("k", value)
    server.settle()
    assert client.get("k") == value
    assert client.get_multi(["k"]) == {"k": value}


@pytest.mark.parametrize(
    "value",
    [True, False, 0, -5, 2**40, 2**70, 1.5, "", "text", "Grüße 閃光", b"bytes\x00\xff", [1, 2, 3], {"a": (1, None)}],
    ids=repr,
)
def test_types(server, client, value):
    assert client.set("k", value)
    server.settle()
    assert client.get("k") == value


def test_compressed(server, client):
    value = "compress me " * 10_000
    assert client.set("k", value, min_compress_len=100)
    noise = os.urandom(50_000)
    assert client.set("noise", noise, min_compress_len=100)
    server.settle()
    assert client.get("k") == value
    assert client.get("noise") == noise


def test_multi(server, client):
    values = {"key%d" % i: "v" * (i * 41) for i in range(200)}
    assert client.set_multi(values) == []
    server.settle()
    assert client.get_multi(list(values) + ["nothing"]) == values
    assert client.set_multi({"a": 1, "b": 2}, key_prefix="p:") == []
    server.settle()
    assert client.get_multi(["a", "b"], key_prefix="p:") == {"a": 1, "b": 2}
    assert client.get("p:a") == 1
    assert client.delete_multi(["key1", "key2"]) is True
    assert client.get_multi(["key1", "key2", "key3"]) == {"key3": values["key3"]}


def test_add_replace(server, client):
    # The text client answers False, the binary one raises.
    try:
        assert client.replace("k", "v0") is False
    except pylibmc.NotFound:
        pass
    assert client.add("k", "v1") is True
    server.settle()
    assert client.add("k", "v2") is False
    server.settle()
    assert client.replace("k", "v3") is True
    assert client.get("k") == "v3"
    assert client.add_multi({"m1": "a", "k": "b"}) == ["k"]
    assert client.get_multi(["m1", "k"]) == {"m1": "a", "k": "v3"}


def test_append_prepend(server, client):
    assert client.set("k", "mid")
    server.settle()
    assert client.append("k", "-end")
    server.settle()
    assert client.prepend("k", "start-")
    server.settle()
    assert client.get("k") == "start-mid-end"


def test_append_to_nothing(server, client):
    assert not client.append("k", "x")
    assert not client.prepend("k", "x")


def test_cas(server, client):
    assert client.set("k", "v1")
    server.settle()
    value, unique = client.gets("k")
    assert value == "v1"
    assert client.cas("k", "v2", unique) is True
    server.settle()
    assert client.cas("k", "v3", unique) is False
    assert client.get("k") == "v2"
    client.delete("k")
    with pytest.raises(pylibmc.NotFound):
        client.cas("k", "v4", unique)


def test_delete(server, client):
    assert client.delete("k") is False
    client.set("k", "v")
    server.settle()
    assert client.delete("k") is True
    assert client.get("k") is None


def test_incr_decr(server, client):
    with pytest.raises(pylibmc.NotFound):
        client.incr("n")
    client.set("n", 10)
    server.settle()
    assert client.incr("n") == 11
    assert client.incr("n", 9) == 20
    server.settle()
    assert client.decr("n", 5) == 15
    assert client.decr("n", 100) == 0
    client.set_multi({"a": 1, "b": 2})
    server.settle()
    client.incr_multi(["a", "b"], delta=5)
    assert client.get_multi(["a", "b"]) == {"a": 6, "b": 7}


def test_incr_of_text(server, client):
    client.set("s", "text")
    server.settle()
    with pytest.raises(pylibmc.Error):
        client.incr("s")


def test_touch(server, client):
    assert client.touch("k", 10) is False
    client.set("k", "v")
    server.settle()
    assert client.touch("k", 100) is True
    server.settle()
    assert client.get("k") == "v"


def test_expiry(server, client):
    client.set("short", "v", time=1)
    client.set("long", "v", time=100)
    client.set("touched", "v", time=100)
    server.settle()
    client.touch("touched", 1)
    time.sleep(2.2)
    assert client.get_multi(["short", "long", "touched"]) == {"long": "v"}


def test_flush_and_stats(server, client):
    client.set("k", "v")
    server.settle()
    stats = client.get_stats()
    assert len(stats) == 1
    assert int(stats[0][1]["curr_items"]) >= 1
    assert client.get_stats("settings")
    assert client.flush_all() is True
    assert client.get("k") is None


def test_too_large(server, client):
    with pytest.raises(pylibmc.Error):
        client.set("k", os.urandom(2_000_000))
    client.disconnect_all()
    assert client.get("k") is None


def test_noreply_and_buffering(server):
    client = pylibmc.Client([server.name], behaviors={"_noreply": True, "tcp_nodelay": True})
    for i in range(100):
        client.set("n%d" % i, i)
    check = pylibmc.Client([server.name])
    values = {"n%d" % i: i for i in range(100)}
    end = time.monotonic() + 300
    # Sets of different threads' keys are not stored in their order.
    while check.get_multi(list(values)) != values and time.monotonic() < end:
        time.sleep(0.01)
    server.settle()
    assert check.get_multi(list(values)) == values


def test_no_block(server):
    client = pylibmc.Client([server.name], binary=True, behaviors={"no_block": True, "tcp_nodelay": True})
    for i in range(500):
        client.set("b%d" % i, "v%d" % i)
    assert client.get("b499") == "v499"
    server.settle()
    assert client.get_multi(["b%d" % i for i in range(500)]) == {"b%d" % i: "v%d" % i for i in range(500)}


def test_clone_and_threads(server, client):
    pool = pylibmc.ClientPool(client, 4)
    with pool.reserve() as one, pool.reserve() as two:
        one.set("k", "v")
        assert two.get("k") == "v"
    assert client.clone().get("k") == "v"
