# SPDX-License-Identifier: Apache-2.0
"""memcached's exporter for Prometheus, built from tests/exporter: it finds everything that it asks
a server for, with right values.

The fixture's memcached is the check of the test itself."""

import os
import pathlib
import shutil
import subprocess
import time
import urllib.request

import pytest
from pymemcache.client.base import Client

import servers
from missing import missing

SOURCE = pathlib.Path(__file__).parents[1] / "exporter"
PACKAGE = "github.com/prometheus/memcached_exporter/cmd/memcached_exporter"
PATIENCE = 600


@pytest.fixture(scope="session")
def exporter(tmp_path_factory):
    """The program."""
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if not go:
        missing("Go is not installed")
    program = tmp_path_factory.mktemp("exporter") / "memcached_exporter"
    done = subprocess.run([go, "build", "-o", str(program), PACKAGE], cwd=SOURCE, capture_output=True, text=True, timeout=PATIENCE)
    if done.returncode != 0:
        missing("the exporter cannot be built: %s" % done.stderr.strip()[-300:])
    return program


def scrape(exporter, server):
    """What the exporter tells of a server: each sample."""
    port = servers.free_port()
    command = [str(exporter), "--memcached.address=%s" % server.name, "--web.listen-address=127.0.0.1:%d" % port]
    process = subprocess.Popen([*command, "--memcached.timeout=60s"], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + PATIENCE
        while True:
            try:
                text = urllib.request.urlopen("http://127.0.0.1:%d/metrics" % port, timeout=300).read().decode()
                break
            except OSError:
                assert process.poll() is None and time.monotonic() < end
                time.sleep(0.05)
    finally:
        process.terminate()
        process.wait(300)
    lines = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, value in lines if name.startswith("memcached_")}


def classes_of(server):
    """Every class that `stats slabs` names."""
    slabs = server.ask(b"stats slabs\r\n").decode().splitlines()
    return {line.split(" ")[1].split(":")[0] for line in slabs if ":chunk_size" in line}


def quiet_scrape(exporter, server, names):
    """What the exporter tells, and the statistics at the same moment. Items still move between the
    tiers after a request: a scrape counts when the device rests, and neither these statistics nor
    the classes changed around it."""
    end = time.monotonic() + PATIENCE
    while True:
        before, classes = server.stats(), classes_of(server)
        seen = scrape(exporter, server)
        after = server.stats()
        rests = seen.get("memcached_extstore_io_queue_depth", 0) == 0
        if rests and all(before.get(name) == after.get(name) for name in names) and classes == classes_of(server):
            return seen, after, classes
        assert time.monotonic() < end, "the server never rests"


def test_the_exporter_reads_everything(exporter, running):
    running.flush()
    client = Client(running.address, timeout=300)
    keys = ["exporter:%d" % n for n in range(100)]
    for key in keys:
        assert client.set(key, os.urandom(500), noreply=False)
    running.settle()
    # After what made room for them, the counts are of what comes now.
    running.ask(b"stats reset\r\n", b"RESET\r\n")
    for key in keys:
        assert client.get(key) is not None
    assert client.get("nothing") is None
    assert client.set("another", "1", noreply=False)
    assert client.delete("nothing", noreply=False) is False
    assert client.incr("another", 1, noreply=False) == 2
    assert client.touch("another", 0, noreply=False)
    assert client.set(keys[0], b"1", noreply=False)
    value, cas = client.gets(keys[0])
    assert client.cas(keys[0], b"2", cas, noreply=False)
    assert client.cas(keys[0], b"3", cas, noreply=False) is False
    client.close()

    seen, stats, classes = quiet_scrape(exporter, running, ["curr_items", "limit_maxbytes"])
    assert seen["memcached_up"] == 1
    for (command, status), wanted in {
        ("get", "hit"): 101,
        ("get", "miss"): 1,
        ("delete", "miss"): 1,
        ("incr", "hit"): 1,
        ("touch", "hit"): 1,
        ("cas", "hit"): 1,
        ("cas", "badval"): 1,
    }.items():
        name = 'memcached_commands_total{command="%s",status="%s"}' % (command, status)
        assert seen[name] == wanted, name
    assert seen["memcached_current_items"] == int(stats["curr_items"])
    assert seen["memcached_limit_bytes"] == int(stats["limit_maxbytes"])
    assert seen["memcached_max_connections"] == int(stats.get("max_connections", seen["memcached_max_connections"]))
    told = {name.split('"')[1] for name in seen if name.startswith("memcached_slab_chunk_size_bytes{")}
    assert classes and told == classes


# A row of the exporter, and the statistic that it is.
FLASH_ROWS = {
    "bytes_limit": "flash_capacity",
    "objects_used": "flash_items",
    "objects_read_total": "flash_hits",
    "bytes_used": "flash_bytes",
    "bytes_written_total": "flash_written_bytes",
    "compact_rescued_total": "flash_reinsertions",
    "objects_evicted_total": "flash_drops_reclaim",
}


def test_the_exporter_tells_of_flash(exporter, running):
    seen_in = {"dram": False, "memcached": False, "flash": True}
    running.flush()
    client = Client(running.address, timeout=300)
    keys = ["flash:%d" % n for n in range(100)]
    for key in keys:
        assert client.set(key, os.urandom(500), noreply=False)
    running.settle()
    for key in keys:
        assert client.get(key) is not None
    seen, stats, _ = quiet_scrape(exporter, running, FLASH_ROWS.values())
    block = {name for name in seen if name.startswith("memcached_extstore_")}
    assert bool(block) == seen_in[running.kind]
    if not block:
        return
    assert len(block) == 19
    for name, stat in FLASH_ROWS.items():
        assert seen["memcached_extstore_" + name] == int(stats[stat]), name
    assert seen["memcached_extstore_objects_read_total"] >= 100
    pages = seen["memcached_extstore_pages_free"] + seen["memcached_extstore_pages_used"]
    assert pages > 0 and seen["memcached_extstore_pages_used"] > 0
