# SPDX-License-Identifier: Apache-2.0
"""pymemcache: every command of its client, values of all sizes, on DRAM, flash and memcached."""

import json
import os
import pickle
import time

import pytest
from pymemcache import serde
from pymemcache.client.base import Client, PooledClient
from pymemcache.client.hash import HashClient
from pymemcache.exceptions import MemcacheClientError, MemcacheIllegalInputError, MemcacheServerError, MemcacheUnknownCommandError

SIZES = [0, 1, 11, 100, 1000, 3900, 4096, 4097, 10_000, 65_536, 300_000, 1_000_000]


@pytest.fixture(params=["reply", "noreply"])
def client(server, request):
    c = Client(server.address, default_noreply=request.param == "noreply", timeout=300)
    yield c
    c.close()


def settle(server, client):
    """What was sent without waiting for a reply has been carried out, and lies on flash where there
    is flash.
    """
    client.version()
    server.settle()


def test_set_get(server, client):
    assert client.get("k") is None
    assert client.get("k", "default") == "default"
    assert client.set("k", "value") is True
    settle(server, client)
    assert client.get("k") == b"value"
    assert client.get(b"k") == b"value"


@pytest.mark.parametrize("size", SIZES)
def test_sizes(server, client, size):
    value = os.urandom(size)
    client.set("k", value, noreply=False)
    settle(server, client)
    assert client.get("k") == value
    assert client.gets("k")[0] == value
    assert client.get_many(["k", "nothing"]) == {"k": value}
    assert client.get("k") == value


def test_many(server, client):
    values = {"key%d" % i: os.urandom(i * 37) for i in range(200)}
    assert client.set_many(values) == []
    settle(server, client)
    assert client.get_many(list(values)) == values
    assert {k: v[0] for k, v in client.gets_many(list(values)).items()} == values
    assert client.get_multi(["key1", "nothing"]) == {"key1": values["key1"]}
    assert client.delete_many(["key1", "key2"]) is True
    client.version()
    left = client.get_many(["key1", "key2", "key3"])
    assert left == {"key3": values["key3"]}
    assert client.delete_multi(["key3"]) is True
    assert client.get_many([]) == {}


def test_add_replace(server, client):
    assert client.replace("k", "v0", noreply=False) is False
    assert client.add("k", "v1", noreply=False) is True
    settle(server, client)
    assert client.add("k", "v2", noreply=False) is False
    assert client.get("k") == b"v1"
    settle(server, client)
    assert client.replace("k", "v3", noreply=False) is True
    client.add("k", "v4")
    client.replace("k", "v5")
    assert client.get("k") == b"v5"


def test_append_prepend(server, client):
    assert client.append("k", "x", noreply=False) is False
    assert client.prepend("k", "x", noreply=False) is False
    client.set("k", "mid", flags=5)
    settle(server, client)
    client.append("k", "-end")
    settle(server, client)
    client.prepend("k", "start-")
    settle(server, client)
    assert client.get("k") == b"start-mid-end"


def test_cas(server, client):
    assert client.cas("k", "v", b"1", noreply=False) is None
    client.set("k", "v1", noreply=False)
    settle(server, client)
    value, unique = client.gets("k")
    assert value == b"v1"
    assert client.cas("k", "v2", unique, noreply=False) is True
    settle(server, client)
    assert client.cas("k", "v3", unique, noreply=False) is False
    assert client.get("k") == b"v2"
    assert client.gets("nothing") == (None, None)


def test_delete(server, client):
    assert client.delete("k", noreply=False) is False
    client.set("k", "v")
    settle(server, client)
    assert client.delete("k", noreply=False) is True
    assert client.get("k") is None
    client.set("k", "v")
    settle(server, client)
    client.delete("k")
    assert client.get("k") is None


def test_incr_decr(server, client):
    assert client.incr("n", 1, noreply=False) is None
    assert client.decr("n", 1, noreply=False) is None
    client.set("n", "10")
    settle(server, client)
    assert client.incr("n", 5, noreply=False) == 15
    settle(server, client)
    assert client.decr("n", 20, noreply=False) == 0
    assert client.incr("n", 2**64 - 1, noreply=False) == 2**64 - 1
    assert client.incr("n", 1, noreply=False) == 0
    client.set("n", "5")
    settle(server, client)
    client.incr("n", 1, noreply=True)
    client.decr("n", 3, noreply=True)
    assert client.get("n") == b"3"
    client.set("n", "text", noreply=False)
    settle(server, client)
    with pytest.raises(MemcacheClientError):
        client.incr("n", 1, noreply=False)


def test_touch(server, client):
    assert client.touch("k", 10, noreply=False) is False
    client.set("k", "v")
    settle(server, client)
    assert client.touch("k", 100, noreply=False) is True
    settle(server, client)
    assert client.get("k") == b"v"
    assert client.touch("k", -1, noreply=False) is True
    assert client.get("k") is None


def test_expiry(server, client):
    client.set("short", "v", expire=1)
    client.set("long", "v", expire=100)
    client.set("touched", "v", expire=100)
    settle(server, client)
    client.touch("touched", 1, noreply=False)
    time.sleep(2.2)
    assert client.get_many(["short", "long", "touched"]) == {"long": b"v"}


def test_flags(server):
    class Serde:
        """Keeps the flags that came back."""

        seen = None

        def serialize(self, key, value):
            return value, 12345

        def deserialize(self, key, value, flags):
            self.seen = flags
            return value

    keeper = Serde()
    with_serde = Client(server.address, serde=keeper, timeout=300)
    with_serde.set("k", b"v", noreply=False)
    server.settle()
    assert with_serde.get("k") == b"v"
    assert keeper.seen == 12345
    with_serde.set("k", b"v", flags=7, noreply=False)
    server.settle()
    with_serde.get("k")
    assert keeper.seen == 7
    with_serde.close()


def test_pickled_and_compressed(server):
    big = {"text": "word " * 50_000, "list": list(range(10_000))}
    unicode_text = "Grüße, 閃光, \N{SNOWMAN}" * 100
    for chosen in (serde.pickle_serde, serde.compressed_serde):
        client = Client(server.address, serde=chosen, timeout=300)
        client.set("big", big, noreply=False)
        client.set("text", unicode_text, noreply=False)
        client.set("number", 12345678901234567890, noreply=False)
        client.set("bytes", b"\x00\xff\r\n" * 1000, noreply=False)
        server.settle()
        assert client.get("big") == big
        assert client.get("text") == unicode_text
        assert client.get("number") == 12345678901234567890
        assert client.get("bytes") == b"\x00\xff\r\n" * 1000
        client.close()


def test_unicode_keys(server):
    client = Client(server.address, allow_unicode_keys=True, timeout=300)
    client.set("schlüssel-鍵", "v", noreply=False)
    server.settle()
    assert client.get("schlüssel-鍵") == b"v"
    client.close()


def test_prefix(server):
    client = Client(server.address, key_prefix=b"p:", timeout=300)
    client.set_many({"a": "1", "b": "2"}, noreply=False)
    server.settle()
    assert client.get_many(["a", "b"]) == {"a": b"1", "b": b"2"}
    client.close()
    plain = Client(server.address, timeout=300)
    assert plain.get("p:a") == b"1"
    plain.close()


def test_flush_all(server, client):
    client.set("k", "v")
    settle(server, client)
    assert client.flush_all() is True
    assert client.get("k") is None
    client.set("k", "v")
    settle(server, client)
    assert client.flush_all(delay=100) is True
    assert client.get("k") == b"v"
    client.flush_all()
    client.version()


def test_stats_and_version(server, client):
    client.set("k", "v", noreply=False)
    client.get("k")
    stats = client.stats()
    assert int(stats[b"curr_items"]) >= 1
    assert int(stats[b"cmd_get"]) >= 1
    assert b"version" in stats
    settings = client.stats("settings")
    assert settings[b"cas_enabled"] is True or settings[b"cas_enabled"] == b"yes"
    client.stats("items")
    client.stats("slabs")
    client.stats("sizes")
    assert client.version()


def test_cache_memlimit(server, client):
    limit = int(client.stats()[b"limit_maxbytes"]) >> 20
    assert client.cache_memlimit(limit) is True


def test_raw_command(server, client):
    client.set("k", "v", noreply=False)
    assert client.raw_command("mn") == b"MN"
    assert client.raw_command("mg k v", "\r\nv\r\n").startswith(b"VA 1")
    settle(server, client)
    assert client.raw_command("gat 0 k", "END\r\n") == b"VALUE k 0 1\r\nv\r\n"
    assert b"VALUE k 0 1 " in client.raw_command("gats 100 k", "END\r\n")
    assert client.raw_command("verbosity 0") == b"OK"


def test_quit(server, client):
    client.set("k", "v", noreply=False)
    client.quit()
    assert client.get("k") == b"v"


def test_errors(server, client):
    with pytest.raises(MemcacheIllegalInputError):
        client.set("k" * 251, "v", noreply=False)
    with pytest.raises(MemcacheIllegalInputError):
        client.set("a b", "v", noreply=False)
    with pytest.raises(MemcacheServerError):
        client.set("k", b"x" * 2_000_000, noreply=False)
    # `SERVER_ERROR: shutdown not enabled` since a release after 1.6.18, `ERROR: ...` before.
    with pytest.raises((MemcacheUnknownCommandError, MemcacheClientError, MemcacheServerError)):
        client.shutdown()
        client.version()
    fresh = Client(server.address, timeout=300)
    assert fresh.get("k") is None
    fresh.close()


def test_too_large_removes_the_old_value(server, client):
    client.set("k", "old", noreply=False)
    settle(server, client)
    with pytest.raises(MemcacheServerError):
        client.set("k", b"x" * 2_000_000, noreply=False)
    assert client.get("k") is None


def test_longest_key(server, client):
    key = "k" * 250
    client.set(key, "v", noreply=False)
    settle(server, client)
    assert client.get(key) == b"v"


def test_pool_and_hash_client(server):
    pool = PooledClient(server.address, max_pool_size=8, timeout=300)
    assert pool.set("k", "v", noreply=False)
    server.settle()
    assert pool.get("k") == b"v"
    pool.close()
    hashed = HashClient([server.address], use_pooling=True, timeout=300)
    values = {"h%d" % i: json.dumps(i).encode() for i in range(50)}
    hashed.set_many(values, noreply=False)
    server.settle()
    assert hashed.get_many(list(values)) == values
    hashed.close()


def test_python_objects_survive(server):
    client = Client(server.address, timeout=300)
    value = {"a": [1, 2.5, None], "b": ("x",)}
    client.set("obj", pickle.dumps(value), noreply=False)
    server.settle()
    assert pickle.loads(client.get("obj")) == value
    client.close()


def test_host_and_port_in_one_string(server):
    client = Client("%s:%d" % server.address, timeout=300)
    assert client.set("k", "v", noreply=False)
    assert client.get("k") == b"v"
    client.close()
