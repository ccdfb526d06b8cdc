# SPDX-License-Identifier: Apache-2.0
"""meta-memcache, a client that speaks nothing but the meta protocol: every command of its own,
leases and stale values among them. Its native part reads and writes descriptors, so it has no TLS;
nor has it passwords."""

import os
import time

import pytest
from meta_memcache import CacheClient, Key, LeasePolicy, RecachePolicy, ServerAddress, SetMode, StalePolicy, Value
from meta_memcache import connection_pool_factory_builder
from meta_memcache.protocol import RequestFlags

TTL = 1000
# This client takes some microseconds for each byte; other clients ask for larger values.
SIZES = [0, 1, 100, 3900, 4096, 4097, 65_536, 150_000]


@pytest.fixture
def client(server):
    pools = connection_pool_factory_builder(connection_timeout=300, recv_timeout=300)
    return CacheClient.cache_client_from_servers([ServerAddress(*server.address)], pools)


def test_set_get_delete(server, client):
    values = {"text": "schön", "number": 17, "bytes": b"\0\r\n", "list": [1, None, {"a": "b"}], "long": "x" * 100_000}
    assert client.get("none") is None
    for key, value in values.items():
        assert client.set(key, value, TTL)
    server.settle()
    for key, value in values.items():
        assert client.get(key) == value
    found = client.multi_get([*values, "none"])
    assert {key.key: value for key, value in found.items()} == {**values, "none": None}
    assert client.delete("text") and not client.delete("text") and client.invalidate("text")
    assert client.get("text") is None
    assert client.get_typed("number", int) == 17 and client.get_typed("number", str) is None


@pytest.mark.parametrize("size", SIZES)
def test_sizes(server, client, size):
    value = os.urandom(size)
    assert client.set("k", value, TTL)
    server.settle()
    assert client.get("k") == value
    assert client.multi_get(["k"])[Key("k")] == value


def test_keys_of_all_kinds(server, client):
    """What is not a word of ASCII goes as base64, with the flag `b`."""
    keys = ["k" * 250, "schlüssel", "with spaces", "閃光", "a\nb"]
    for number, key in enumerate(keys):
        assert client.set(key, number, TTL)
    server.settle()
    for number, key in enumerate(keys):
        assert client.get(key) == number
    assert {key.key: value for key, value in client.multi_get(keys).items()} == {key: n for n, key in enumerate(keys)}


def test_modes(server, client):
    raw = {"value": b"mid", "ttl": TTL}
    assert client.set("k", set_mode=SetMode.ADD, **raw) and not client.set("k", set_mode=SetMode.ADD, **raw)
    assert not client.refill("k", b"other", TTL) and not client.set("none", set_mode=SetMode.REPLACE, **raw)
    server.settle()
    assert client.set("k", b"-end", TTL, set_mode=SetMode.APPEND)
    server.settle()
    assert client.set("k", b"start-", TTL, set_mode=SetMode.PREPEND)
    assert client.get("k") == b"start-mid-end"
    server.settle()
    assert client.set("k", b"new", TTL, set_mode=SetMode.REPLACE) and client.get("k") == b"new"
    assert client.set("quiet", 1, TTL, no_reply=True)
    assert client.get("quiet") == 1
    assert client.delete("quiet", no_reply=True)
    assert client.get("quiet") is None


def test_cas(server, client):
    assert client.get_cas("k") == (None, None)
    token = client.set_cas("k", 1, TTL)
    server.settle()
    assert client.get_cas("k") == (1, token)
    next_token = client.set_cas("k", 2, TTL, cas_token=token)
    assert next_token and next_token != token
    assert not client.set("k", 3, TTL, cas_token=token) and not client.delete("k", cas_token=token)
    server.settle()
    found = client.multi_get_cas(["k", "none"])
    assert found == {Key("k"): (2, next_token), Key("none"): (None, None)}
    assert client.delete("k", cas_token=next_token) and client.get("k") is None


def test_arithmetic(server, client):
    assert not client.delta("n", 1) and client.delta_and_get("n", 1) is None
    assert client.delta_initialize_and_get("n", 1, initial_value=5, initial_ttl=TTL) == 5
    server.settle()
    assert client.delta_initialize_and_get("n", 2, initial_value=5, initial_ttl=TTL) == 7
    assert client.delta("n", 3) and client.delta_and_get("n", -4) == 6
    server.settle()
    assert client.delta_and_get("n", -10, refresh_ttl=TTL) == 0
    assert client.delta_initialize("m", 1, initial_value=9, initial_ttl=TTL) and client.delta_and_get("m", 1) == 10
    # The client's own serializer writes and reads counters as well.
    assert client.set("own", 41, TTL) and client.delta_and_get("own", 1) == 42 and client.get("own") == 42


def test_times(server, client):
    assert client.set("k", "v", 100)
    assert client.touch("k", TTL) and not client.touch("none", TTL)
    server.settle()
    flags = RequestFlags(return_value=True, return_ttl=True, return_size=True, return_fetched=True, return_last_access=True, return_client_flag=True)
    first = client.meta_get(Key("k"), flags)
    assert isinstance(first, Value) and first.value == "v" and first.size == 1
    assert TTL - 600 < first.flags.ttl <= TTL and first.flags.fetched, "to touch is to fetch"
    assert client.set("unread", "v", TTL)
    server.settle()
    assert [client.meta_get(Key("unread"), flags).flags.fetched for _ in range(2)] == [False, True]
    assert client.get("k", touch_ttl=2 * TTL) == "v"
    assert client.meta_get(Key("k"), flags).flags.ttl > TTL
    assert client.set("short", "v", 1)
    end = time.monotonic() + 300
    while client.get("short") is not None:
        assert time.monotonic() < end
        time.sleep(0.05)


def test_one_client_wins_a_lease(server, client):
    """Of many who miss at once one is to make the value; the others wait for it, as often as they
    want to.
    """
    waits = []
    lease = LeasePolicy(ttl=TTL, miss_retries=3)
    value, token = client.get_or_lease_cas("k", lease, lease_wait_fn=waits.append)
    assert value is None and token and not waits
    assert client.get_or_lease("k", lease, lease_wait_fn=waits.append) is None and len(waits) == 2
    assert client.set("k", "made", TTL, cas_token=token)
    server.settle()
    assert client.get_or_lease("k", lease, lease_wait_fn=waits.append) == "made" and len(waits) == 2


def test_one_client_makes_a_value_anew(server, client):
    assert client.set("k", "old", 100)
    server.settle()
    recache = RecachePolicy(ttl=200)
    assert client.get("k", recache_policy=recache) is None, "the first of them is to make it anew"
    assert client.get("k", recache_policy=recache) == "old"
    server.settle()
    assert client.get("k", recache_policy=recache) == "old", "the lease goes with the item"
    assert client.set("k", "new", TTL)
    assert client.get("k", recache_policy=recache) == "new"


def test_stale_values(server, client):
    """What is invalidated may be served a little longer, while one client makes it anew."""
    stale = StalePolicy(mark_stale_on_deletion_ttl=TTL, mark_stale_on_cas_mismatch=True)
    token = client.set_cas("k", "old", TTL)
    server.settle()
    assert client.delete("k", stale_policy=stale)
    value, won = client.get_cas("k")
    assert value is None and won and won != token
    server.settle()
    assert client.get("k") == "old"
    # Another invalidation came between: what was made is stale when it is stored.
    assert client.delete("k", stale_policy=stale)
    assert client.set("k", "late", TTL, cas_token=won, stale_policy=stale)
    server.settle()
    assert client.get("k") is None and client.get("k") == "late"
    assert client.set("k", "new", TTL)
    assert client.get("k") == "new"
