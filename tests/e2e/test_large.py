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
from killing.victims import Senko
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


@pytest.mark.parametrize("count, size, take", [(1000, 4 << 20, 1024), (900, 32 << 20, 64 << 10)])
def test_many_readers_that_take_little_at_a_time(senko, count, size, take):
    """They may be closed, since the server holds little for each. None gets a wrong byte, and small
    items are stored and read beside them.
    """
    memory, values = 128 << 20, (64 << 20) // size
    server = servers.start_senko("flash", "-c", "1100", "-t", "2", memory=memory)
    readers = {}
    try:
        client = Client(server.address, timeout=300)
        answers = []
        for n in range(values):
            value = random.Random(n).randbytes(size)
            assert client.set("v%d" % n, value, noreply=False) is True
            answers.append(b"VALUE v%d 0 %d\r\n%s\r\nEND\r\n" % (n, size, value))
        for n in range(count):
            sock = socket.socket()
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * take)
            # As over a network. With the loopback's segments the kernel lets each socket send 2.6
            # MB ahead, and runs out of memory for all connections of the machine.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 1448)
            sock.settimeout(300)
            sock.connect(server.address)
            sock.sendall(b"get v%d\r\n" % (n % values))
            readers[sock] = [answers[n % values], 0]
        for step in range(16):
            for sock, state in list(readers.items()):
                answer, at = state
                try:
                    part = sock.recv(take)
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
        whole, ended = 0, count - len(readers)
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
        peak = server.peak()
        assert peak <= memory * 1.05, "%d MiB of %d" % (peak >> 20, memory >> 20)
    finally:
        for sock in readers:
            sock.close()
        server.stop()


BLOCK = os.urandom(1 << 20)


def blocks(size):
    """A value that names the offset of each mebibyte."""
    for at in range(0, size, len(BLOCK)):
        yield (b"%016x" % at + BLOCK[16:])[: size - at]


@pytest.mark.slow
def test_a_value_of_a_gibibyte(senko):
    """The largest there is, with memory for a twentieth of it."""
    server = servers.start_senko("flash", "-I", "1g", memory=48 << 20, flash=2600 << 20)
    size = (1 << 30) - 1000
    try:
        with socket.create_connection(server.address, timeout=300) as s:
            s.sendall(b"set k 7 0 %d\r\n" % (1 << 30))
            assert s.recv(100) == b"SERVER_ERROR object too large for cache\r\n"
        with socket.create_connection(server.address, timeout=300) as s:
            s.sendall(b"set k 7 0 %d\r\n" % size)
            for block in blocks(size):
                s.sendall(block)
            s.sendall(b"\r\nget k\r\n")
            with s.makefile("rb", buffering=1 << 20) as answer:
                assert answer.readline() == b"STORED\r\n"
                assert answer.readline() == b"VALUE k 7 %d\r\n" % size
                for block in blocks(size):
                    assert answer.read(len(block)) == block
                assert answer.read(7) == b"\r\nEND\r\n"
        stats = server.stats()
        assert (stats["flash_uploads"], stats["senko_streams"], stats["dram_items"]) == ("1", "1", "0")
        assert server.peak() <= (48 << 20) * 1.05
    finally:
        server.stop()


def test_a_kill_in_the_middle_of_large_values(senko):
    """Half of the values are being replaced, and all are being read, when the server is killed.
    Afterwards each is the old one, or what was sent whole without an answer; no part of another.
    """
    victim = Senko(senko, memory=64 << 20, flash=512 << 20, threads=(1, 2))
    size, draw = 3_000_000, random.Random(1)
    values = {b"v%d" % n: os.urandom(size) for n in range(8)}
    opened = []

    def connect():
        opened.append(socket.create_connection(victim.address, timeout=300))
        return opened[-1]

    try:
        victim.start()
        for key, value in values.items():
            assert victim.ask(b"set %s 0 0 %d\r\n%s\r\n" % (key, size, value), b"\r\n") == b"STORED\r\n"
        for _ in range(2):
            readers = []
            for key in values:
                reader = connect()
                reader.sendall(b"get %s\r\n" % key)
                readers.append((key, reader, reader.recv(draw.randrange(1, size // 2))))
            may = {key: [value] for key, value in values.items()}
            for n, key in enumerate(list(values)[:4] + [b"new"]):
                value = os.urandom(size)
                command = b"set %s 0 0 %d\r\n%s\r\n" % (key, size, value)
                # All of it, all but the end, or a part.
                sent = [len(command), len(command) - 2][n] if n < 2 else draw.randrange(100, size)
                connect().sendall(command[:sent])
                may.setdefault(key, [None]).extend([value] if n == 0 else [])
            victim.kill()
            for key, reader, got in readers:
                answer = b"VALUE %s 0 %d\r\n%s\r\nEND\r\n" % (key, size, values[key])
                try:
                    while part := reader.recv(1 << 20):
                        got += part
                except ConnectionResetError:
                    pass
                assert answer.startswith(got)
            while opened:
                opened.pop().close()
            victim.start()
            for key, some in may.items():
                client = Client(victim.address, timeout=300)
                value = client.get(key.decode())
                assert value in some or not victim.warm and value is None, key
                if value is not None:
                    values[key] = value
            assert victim.stats()["flash_checksum_errors"] == "0"
    finally:
        for sock in opened:
            sock.close()
        victim.remove()
