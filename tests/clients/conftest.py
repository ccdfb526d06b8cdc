# SPDX-License-Identifier: Apache-2.0
"""The server fixture: each test runs on senko's DRAM, on senko's flash, and on memcached."""

import pytest

import servers
from missing import missing


def start(kind):
    if kind == "memcached":
        return servers.named_server("MEMCACHED", kind) or servers.start_memcached()
    named = servers.named_server("SENKO_SERVER", kind)
    if named:
        if kind == "flash" and int(named.stats().get("flash_capacity", 0)) == 0:
            pytest.skip("the server at SENKO_SERVER has no flash")
        return named
    # Clients are tested with memcached's largest item.
    return servers.start_senko(kind, "-I", "1m")


@pytest.fixture(scope="session", params=servers.KINDS)
def running(request):
    server = start(request.param)
    if server is None:
        why = "memcached is not installed" if request.param == "memcached" else "neither SENKO_BIN nor SENKO_SERVER is set"
        missing(why)
    yield server
    server.stop()


@pytest.fixture
def server(running):
    """The server, emptied."""
    running.flush()
    yield running
    if running.process is not None:
        assert running.process.poll() is None, "the server died"
