# SPDX-License-Identifier: Apache-2.0
"""A full, closed or unread stderr or stdout: what is said never decides over what is done."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import time

import pytest
from pymemcache.client.base import Client

import servers


def full_device():
    return os.open("/dev/full", os.O_WRONLY)


def closed_pipe():
    read, write = os.pipe()
    os.close(read)
    return write


@contextlib.contextmanager
def stream(kind):
    """A descriptor to write to that takes nothing."""
    others = []
    if kind == "full device":
        end = full_device()
    elif kind == "closed pipe":
        end = closed_pipe()
    elif kind == "unread pipe":
        read, end = os.pipe()
        others.append(read)
    else:
        ours, theirs = socket.socketpair()
        others.append(ours.detach())
        end = theirs.detach()
    if kind.startswith("unread"):
        os.set_blocking(end, False)
        with contextlib.suppress(BlockingIOError):
            while os.write(end, b"x" * 512):
                pass
        os.set_blocking(end, True)
    try:
        yield end
    finally:
        for other in [end, *others]:
            os.close(other)


DEAD = ["full device", "closed pipe", "unread pipe", "unread socket"]


def dropped_after(client, before):
    """How many lines were dropped, once they are more than before."""
    while True:
        now = int(client.stats()[b"senko_log_lines_dropped"])
        if now > before:
            return now
        time.sleep(0.01)


@pytest.mark.parametrize("kind", DEAD)
@pytest.mark.parametrize("name", ["senko", "memcached"])
def test_a_server_whose_log_goes_nowhere_serves_and_stops(senko, tmp_path, kind, name):
    """With `-v`, SIGHUP writes a line. The thread that waits for signals waited for the log's
    reader instead, or panicked, and SIGTERM did nothing; a warning ended the whole server with
    101."""
    port = servers.free_port()
    if name == "senko":
        command = [senko, "serve", "-m", "64", "--no-flash", "-v", "-p", str(port)]
    else:
        link = tmp_path / "memcached"
        link.symlink_to(senko)
        command = [str(link), "-l", "127.0.0.1", "-U", "0", "-u", "root", "-v", "-p", str(port)]
    with stream(kind) as end:
        process = subprocess.Popen(command, cwd=str(tmp_path), stdin=subprocess.DEVNULL, stderr=end)
        server = servers.wait_until_up(servers.Server("dram", ("127.0.0.1", port), process))
        with contextlib.closing(Client(server.address, timeout=300)) as client:
            dropped = dropped_after(client, 0)  # what it said at the start
            for _ in range(3):
                process.send_signal(signal.SIGHUP)
                dropped = dropped_after(client, dropped)
            assert client.set("k", "v", noreply=False)
        server.stop()
        assert process.returncode == 0


def test_a_server_without_stderr_or_stdout(senko, tmp_path):
    port = servers.free_port()
    command = 'exec "$0" serve -m 64 --no-flash -v --json -p %d >&- 2>&-' % port
    process = subprocess.Popen(["sh", "-c", command, senko], cwd=str(tmp_path), stdin=subprocess.DEVNULL)
    server = servers.wait_until_up(servers.Server("dram", ("127.0.0.1", port), process))
    process.send_signal(signal.SIGHUP)
    server.stop()
    assert process.returncode == 0


@pytest.mark.parametrize("kind", DEAD)
def test_a_server_whose_json_goes_nowhere_ends_well(senko, tmp_path, kind):
    port = servers.free_port()
    command = [senko, "serve", "-m", "64", "--no-flash", "--json", "-p", str(port)]
    with stream(kind) as end:
        process = subprocess.Popen(command, cwd=str(tmp_path), stdin=subprocess.DEVNULL, stdout=end, stderr=subprocess.DEVNULL)
        server = servers.wait_until_up(servers.Server("dram", ("127.0.0.1", port), process))
        with contextlib.closing(Client(server.address, timeout=300)) as client:
            dropped_after(client, 0)
        server.stop()
        assert process.returncode == 0


def test_a_log_that_is_read_again_goes_on_with_whole_lines(senko, tmp_path):
    """And the pipe stays as its other users have it: they still wait for its reader."""
    port = servers.free_port()
    command = [senko, "serve", "-m", "64", "--no-flash", "-v", "-p", str(port)]
    with stream("unread pipe") as end:
        read = os.open("/proc/self/fd/%d" % end, os.O_RDONLY | os.O_NONBLOCK)
        process = subprocess.Popen(command, cwd=str(tmp_path), stdin=subprocess.DEVNULL, stderr=end)
        server = servers.wait_until_up(servers.Server("dram", ("127.0.0.1", port), process))
        assert os.get_blocking(end)
        with contextlib.suppress(BlockingIOError):
            while os.read(read, 1 << 16):
                pass
        server.stop()
        said = os.read(read, 1 << 16).decode()
        os.close(read)
    assert process.returncode == 0
    assert "SIGTERM" in said and said.endswith("\n"), said


@pytest.fixture
def made(senko, tmp_path):
    """A store and a database with a key."""
    for kind in ["store", "dbm"]:
        subprocess.run([senko, kind, "put", "data." + kind, "k", "v"], cwd=str(tmp_path), check=True, stdin=subprocess.DEVNULL)
    return tmp_path


ZIPF = "zipf:rate=2000,count=2000,pages=10000"
RESULTS = [
    ["--help"],
    ["--version"],
    ["version"],
    ["ssd", "parts"],
    ["ssd", "run", ZIPF, "--profile", "paper-1gb", "--ftl", "page"],
    ["ssd", "run", ZIPF, "--profile", "paper-1gb", "--ftl", "page", "--json"],
    ["ssd", "compare", ZIPF, "--profile", "paper-1gb", "--ftl", "page"],
    ["ssd", "trace", "info", ZIPF],
    ["ssd", "transfer", "--drives", "1"],
    ["store", "get", "data.store", "k"],
    ["store", "scan", "data.store"],
    ["store", "dump", "data.store"],
    ["store", "stats", "data.store"],
    ["store", "verify", "data.store"],
    ["store", "history", "data.store", "k"],
    ["dbm", "get", "data.dbm", "k"],
    ["dbm", "range", "data.dbm"],
    ["dbm", "dump", "data.dbm"],
    ["dbm", "stats", "data.dbm"],
]


@pytest.mark.parametrize("args", RESULTS, ids=" ".join)
def test_results_that_nobody_reads(senko, made, args):
    """`senko ssd run ... 2>&1 | head -1` ended with a panic. A reader that has enough ends the
    command as it ends `yes | head`: quietly, with 141. A full disk is an error, and is told."""
    with stream("closed pipe") as end:
        answer = subprocess.run([senko, *args], cwd=str(made), stdin=subprocess.DEVNULL, stdout=end, stderr=subprocess.PIPE, text=True, timeout=300)
        assert answer.returncode == 141, answer.stderr
        assert "senko:" not in answer.stderr and "panicked" not in answer.stderr
        both = subprocess.run([senko, *args], cwd=str(made), stdin=subprocess.DEVNULL, stdout=end, stderr=end, timeout=300)
        assert both.returncode == 141
    with stream("full device") as end:
        answer = subprocess.run([senko, *args], cwd=str(made), stdin=subprocess.DEVNULL, stdout=end, stderr=subprocess.PIPE, text=True, timeout=300)
        assert answer.returncode in (1, 2), answer.stderr
        # Not of the store's own disk, say.
        assert "cannot write to stdout: No space left" in answer.stderr and "panicked" not in answer.stderr, answer.stderr


@pytest.mark.parametrize("kind", ["full device", "closed pipe"])
@pytest.mark.parametrize("args", RESULTS, ids=" ".join)
def test_results_whose_warnings_nobody_reads(senko, made, args, kind):
    with stream(kind) as end:
        answer = subprocess.run([senko, *args], cwd=str(made), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=end, timeout=300)
    assert answer.returncode == 0
    assert answer.stdout


@pytest.mark.parametrize("args", [["store", "get", "none", "k"], ["dbm", "get", "none", "k"], ["ssd", "run", "none"], ["nonsense"]], ids=" ".join)
def test_errors_that_nobody_reads_keep_their_exit_code(senko, tmp_path, args):
    def code(**more):
        return subprocess.run([senko, *args], cwd=str(tmp_path), stdin=subprocess.DEVNULL, timeout=300, **more).returncode

    told = code(stderr=subprocess.DEVNULL)
    assert told in (1, 2)
    for kind in ["full device", "closed pipe"]:
        with stream(kind) as end:
            assert code(stderr=end) == told


def test_a_load_ends_when_its_reader_has_enough(senko, tmp_path):
    """A line a second for an hour, to `head -1`."""
    server = servers.start_senko("dram")
    try:
        command = [senko, "load", "--server", server.name, "--keys", "100", "--duration", "1h", "--json", "--series"]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert json.loads(process.stdout.readline())["type"] == "second"
        process.stdout.close()
        assert process.wait(300) == 141
    finally:
        server.stop()
