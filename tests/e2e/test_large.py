# SPDX-License-Identifier: Apache-2.0
"""Large values through the clients and proxies that docs/cache/large-values.md names."""

import json
import os
import pathlib
import random
import shutil
import socket
import subprocess
import sys

import pytest
from pymemcache.client.base import Client

import servers
from missing import missing

CONFIG = """\
large:
  listen: 127.0.0.1:{port}
  hash: fnv1a_64
  distribution: ketama
  timeout: 300000
  servers:
   - {node}:1
"""


@pytest.fixture
def large(senko):
    server = servers.start_senko("flash", "--io", "auto", memory=64 << 20)
    yield server
    server.stop()


def check(client, value):
    """Every command of a client that brings a large value or returns it."""
    assert client.set("k", value, noreply=False) is True
    assert client.get("k") == value
    assert client.add("k", b"other", noreply=False) is False
    assert client.replace("k", value[::-1], noreply=False) is True
    got, cas = client.gets("k")
    assert got == value[::-1]
    assert client.cas("k", value, cas, noreply=False) is True
    assert client.cas("k", b"other", cas, noreply=False) is False
    assert client.get_many(["k", "nothing"]) == {"k": value}
    assert client.delete("k", noreply=False) is True
    assert client.get("k") is None


@pytest.mark.parametrize("mib", [1, 32])
def test_pymemcache(large, mib):
    client = Client(large.address, timeout=300)
    check(client, os.urandom(mib << 20))
    stats = large.stats()
    assert int(stats["flash_uploads"]) == 3
    assert stats["dram_items"] == "0"


def test_through_nutcracker(large, program, tmp_path):
    port = servers.free_port()
    config = tmp_path / "nutcracker.yml"
    config.write_text(CONFIG.format(port=port, node=large.name))
    with servers.nutcracker(program("nutcracker"), config, tmp_path, port, servers.free_port()):
        check(Client(("127.0.0.1", port), timeout=300), os.urandom(8 << 20))


def test_the_default_limit_and_the_option_that_raises_it(large):
    """64 MiB with flash, and a value above it is refused without a byte of it being stored."""
    with socket.create_connection(large.address, timeout=300) as s:
        for size, answer in [((64 << 20) - 1000, b"STORED\r\n"), (64 << 20, b"SERVER_ERROR object too large for cache\r\n")]:
            s.sendall(b"set k 0 0 %d\r\n" % size)
            s.sendall(bytes(size) + b"\r\n")
            assert s.recv(100) == answer
        s.sendall(b"get k\r\n")
        assert s.recv(100) == b"END\r\n"
    assert large.stats()["store_too_large"] == "1"


CHUNKS = pathlib.Path(__file__).parents[1] / "chunks"


def test_the_client_of_loki(large, tmp_path):
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if not go:
        missing("Go is not installed")
    program = tmp_path / "chunks"
    made = subprocess.run([go, "build", "-o", str(program), "."], cwd=CHUNKS, capture_output=True, text=True, timeout=600)
    if made.returncode != 0:
        missing("the program cannot be built: %s" % made.stderr.strip()[-300:])
    done = subprocess.run([str(program), large.name], capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stdout) == (0, "96 chunks came back\n"), done.stderr
    assert int(large.stats()["flash_uploads"]) == 96


LIBRARY = """\
pub static BYTES: &[u8] = include_bytes!("bytes");
"""
PROGRAM = """\
fn main() {
    println!("{}", library::BYTES.len());
}
"""


def test_sccache(large, tmp_path):
    """A program is built twice. What the compiler made of its library, more than 1 MiB, comes
    back.
    """
    sccache = shutil.which("sccache", path=os.path.dirname(sys.executable))
    if not sccache or not shutil.which("cargo"):
        missing("sccache or cargo is not installed")
    source = tmp_path / "library" / "src"
    source.mkdir(parents=True)
    (source / "lib.rs").write_text(LIBRARY)
    (source / "bytes").write_bytes(os.urandom(2 << 20))
    (source.parent / "Cargo.toml").write_text('[package]\nname = "library"\nedition = "2021"\n')
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "main.rs").write_text(PROGRAM)
    (tmp_path / "Cargo.toml").write_text('[package]\nname = "program"\nedition = "2021"\n[dependencies]\nlibrary = { path = "library" }\n')
    env = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("CARGO", "RUST", "SCCACHE"))},
        **{name: value for name, value in os.environ.items() if name in ("CARGO_HOME", "RUSTUP_HOME")},
        "SCCACHE_MEMCACHED_ENDPOINT": "tcp://%s" % large.name,
        "SCCACHE_SERVER_PORT": str(servers.free_port()),
        "RUSTC_WRAPPER": sccache,
        "CARGO_INCREMENTAL": "0",
    }

    def run(*command):
        return subprocess.run(command, cwd=tmp_path, env=env, check=True, capture_output=True, text=True, timeout=600).stdout

    try:
        for _ in range(2):
            shutil.rmtree(tmp_path / "target", ignore_errors=True)
            assert run("cargo", "run", "--offline") == "%d\n" % (2 << 20)
        stats = json.loads(run(sccache, "--show-stats", "--stats-format", "json"))["stats"]
    finally:
        subprocess.run([sccache, "--stop-server"], env=env, capture_output=True, timeout=600)
    assert stats["cache_hits"]["counts"] == {"Rust": 1}, stats
    assert stats["cache_errors"]["counts"] == {} and stats["cache_write_errors"] == 0, stats
    assert int(large.stats()["flash_uploads"]) >= 1


def test_a_thousand_readers_that_take_a_kilobyte_at_a_time(senko):
    """They may be closed, since the server holds little for each. None gets a wrong byte, and small
    items are stored and read beside them.
    """
    memory, size, values = 128 << 20, 4 << 20, 16
    server = servers.start_senko("flash", "-c", "1100", "-t", "2", memory=memory)
    readers = {}
    try:
        client = Client(server.address, timeout=300)
        answers = []
        for n in range(values):
            value = random.Random(n).randbytes(size)
            assert client.set("v%d" % n, value, noreply=False) is True
            answers.append(b"VALUE v%d 0 %d\r\n%s\r\nEND\r\n" % (n, size, value))
        for n in range(1000):
            sock = socket.socket()
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.settimeout(300)
            sock.connect(server.address)
            sock.sendall(b"get v%d\r\n" % (n % values))
            readers[sock] = [answers[n % values], 0]
        for step in range(16):
            for sock, state in list(readers.items()):
                answer, at = state
                try:
                    part = sock.recv(1024)
                except ConnectionResetError:
                    part = b""
                assert part == answer[at : at + len(part)]
                state[1] += len(part)
                if not part:
                    sock.close()
                    del readers[sock]
            for n in range(50):
                assert client.set("s%d" % n, b"%d" % step * 100, noreply=False) is True
                assert client.get("s%d" % n) in (b"%d" % step * 100, None)
        stats = server.stats()
        assert int(stats["senko_streams_broken"]) == 0
        # Those that read on get all of it, one after the other.
        whole, ended = 0, 1000 - len(readers)
        for sock, (answer, at) in readers.items():
            while whole < 3 and at < len(answer):
                part = sock.recv(1 << 20)
                assert part == answer[at : at + len(part)]
                at += len(part)
                if not part:
                    ended += 1
                    break
            whole += at >= len(answer)
            sock.close()
        assert whole == 3, ended
        with open("/proc/%d/status" % server.process.pid) as status:
            peak = next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM:"))
        assert peak <= memory * 1.05, "%d MiB of %d" % (peak >> 20, memory >> 20)
    finally:
        for sock in readers:
            sock.close()
        server.stop()
