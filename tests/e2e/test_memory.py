# SPDX-License-Identifier: Apache-2.0
"""`--memory` is a cap, whatever clients ask for and do not read."""

import ctypes
import os
import shutil
import socket
import ssl
import subprocess
import threading
import time

import pytest

import servers
from missing import missing

LARGE = 900_000


def peak(server):
    """The most memory that the server's process ever had, in bytes."""
    with open("/proc/%d/status" % server.process.pid) as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM:"))


def read_answers(sock, count):
    """How many answers came whole before the server closed; a wrong byte fails."""
    answer = b"VALUE k0 0 %d\r\n" % LARGE + b"v" * LARGE + b"\r\nEND\r\n"
    got = bytearray()
    whole = 0
    while whole < count:
        while len(got) < len(answer):
            try:
                part = sock.recv(1 << 20)
            except ConnectionResetError:
                return whole
            if not part:
                return whole
            got += part
        assert got[6:8] in (b"k0", b"k1", b"k2", b"k3")
        assert got[:6] == answer[:6] and got[8 : len(answer)] == answer[8:]
        del got[: len(answer)]
        whole += 1
    return whole


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_large_answers_that_nobody_reads(senko, threads):
    """Clients ask for gigabytes in a few bytes. Who does not read may be closed; all others get all
    that they asked for.
    """
    memory = 96 << 20
    server = servers.start_senko("dram", "-t", str(threads), memory=memory)
    try:
        for n in range(4):
            assert server.ask(b"set k%d 0 0 %d\r\n" % (n, LARGE) + b"v" * LARGE + b"\r\n", b"\r\n") == b"STORED\r\n"
        clients = [socket.create_connection(server.address, timeout=300) for _ in range(60)]
        for n, client in enumerate(clients):
            client.sendall(b"".join(b"get k%d\r\n" % ((n + m) % 4) for m in range(64)))
        time.sleep(1)
        # One that reads is served meanwhile.
        with socket.create_connection(server.address, timeout=300) as reader:
            reader.sendall(b"".join(b"get k%d\r\n" % (m % 4) for m in range(200)))
            assert read_answers(reader, 200) == 200
        whole = [read_answers(client, 64) for client in clients]
        assert sum(whole) > 0, whole
        for client in clients:
            client.close()
        assert peak(server) <= memory * 1.05, "%d MiB of %d" % (peak(server) >> 20, memory >> 20)
        assert server.ask(b"get none\r\n") == b"END\r\n"
    finally:
        server.stop()


@pytest.mark.parametrize("threads", [1, 2])
def test_small_answers_behind_a_lent_one(senko, threads):
    """A large value is sent from where it lies; what stands beside it in the same batch is memory
    of its own, and counts.
    """
    memory = 96 << 20
    server = servers.start_senko("dram", "-t", str(threads), memory=memory)
    try:
        for key, length in (b"small", 30_000), (b"large", 40_000):
            assert server.ask(b"set %s 0 0 %d\r\n" % (key, length) + b"v" * length + b"\r\n", b"\r\n") == b"STORED\r\n"
        clients = [socket.create_connection(server.address, timeout=300) for _ in range(190)]
        for _ in range(8):
            for client in clients:
                try:
                    client.sendall(b"get small\r\n" * 8 + b"get large\r\n" + b"get small\r\n" * 55)
                except OSError:
                    pass  # closed, because it does not read
            time.sleep(0.2)
        assert server.ask(b"get none\r\n") == b"END\r\n"
        for client in clients:
            client.close()
        assert peak(server) <= memory * 1.05, "%d MiB of %d" % (peak(server) >> 20, memory >> 20)
    finally:
        server.stop()


class Firehoses:
    """Clients that send sets without end and want no answers."""

    CONNECTIONS, SETS, LENGTH = 64, 10_000, 180

    def __init__(self, server):
        self.server = server
        self.errors = []
        self.threads = [threading.Thread(target=self.send, args=(n,)) for n in range(self.CONNECTIONS)]
        for thread in self.threads:
            thread.start()

    def send(self, n):
        try:
            with socket.create_connection(self.server.address, timeout=300) as sock:
                value = b"v" * self.LENGTH
                for start in range(0, self.SETS, 500):
                    sock.sendall(
                        b"".join(
                            b"set k%d-%d 0 0 %d noreply\r\n%s\r\n" % (n, m, self.LENGTH, value)
                            for m in range(start, start + 500)
                        )
                    )
                # All that came before it has run when this one is answered.
                sock.sendall(b"mn\r\n")
                answer = sock.recv(64)
                assert answer == b"MN\r\n", answer
        except Exception as error:  # told by the test, not by the thread
            self.errors.append(error)

    def run(self):
        """Whether some still send."""
        return any(thread.is_alive() for thread in self.threads)

    def end(self):
        """Each request was run, and nobody was closed."""
        for thread in self.threads:
            thread.join()
        assert not self.errors, self.errors[:3]
        stats = self.server.stats()
        assert int(stats["cmd_set"]) == self.CONNECTIONS * self.SETS
        assert int(stats["senko_slow_readers_closed"]) == 0


@pytest.mark.parametrize("kind, threads", [("flash", 1), ("flash", 2), ("dram", 1)])
def test_requests_that_come_faster_than_they_run(senko, kind, threads):
    """Clients that send faster than the server runs are held back by their sockets: nobody is
    closed, each request is run, others are served.
    """
    memory = 88 << 20
    server = servers.start_senko(kind, "-t", str(threads), memory=memory)
    try:
        clients = Firehoses(server)
        asked = 0
        while clients.run():
            assert server.ask(b"get none\r\n") == b"END\r\n"
            asked += 1
            time.sleep(0.01)
        clients.end()
        assert asked > 0
        if threads == 1:
            assert peak(server) <= memory * 1.08, "%d MiB of %d" % (peak(server) >> 20, memory >> 20)
    finally:
        server.stop()


class SlowThread:
    """A thread of another process that runs for moments only, as if others had its processor."""

    CONT, DETACH, SEIZE, INTERRUPT = 7, 17, 0x4206, 0x4207
    WALL = 0x40000000

    def __init__(self, pid, name):
        tasks = "/proc/%d/task" % pid
        named = {open(os.path.join(tasks, tid, "comm")).read().strip(): int(tid) for tid in os.listdir(tasks)}
        self.tid = named[name]
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.libc.ptrace.argtypes = [ctypes.c_long] * 4
        self.libc.ptrace.restype = ctypes.c_long

    def ptrace(self, request):
        if self.libc.ptrace(request, self.tid, 0, 0) < 0:
            raise OSError(ctypes.get_errno(), "ptrace")

    def stop(self):
        self.ptrace(self.INTERRUPT)
        os.waitpid(self.tid, self.WALL)

    def run_a_moment(self):
        self.ptrace(self.CONT)
        time.sleep(0.003)
        self.stop()

    def __enter__(self):
        self.ptrace(self.SEIZE)
        self.stop()
        return self

    def __exit__(self, *_):
        self.ptrace(self.DETACH)


@pytest.mark.parametrize("slow", ["senko-worker0", "senko-worker1"])
def test_a_worker_that_seldom_runs_closes_nobody(senko, slow):
    """Clients whose requests wait for a worker that gets little of a processor are held back by
    their sockets, whatever the other worker could still receive.
    """
    server = servers.start_senko("flash", "-t", "2", memory=88 << 20)
    try:
        with SlowThread(server.process.pid, slow) as thread:
            clients = Firehoses(server)
            while clients.run():
                time.sleep(0.02)
                thread.run_a_moment()
        clients.end()
    finally:
        server.stop()


@pytest.mark.parametrize("threads", [1, 2])
def test_unread_requests_of_slow_readers_stop_nobody(senko, threads):
    """Who sends requests without end and reads no answer fills its own share; others are received
    from all the time.
    """
    server = servers.start_senko("dram", "-t", str(threads), memory=88 << 20)
    try:
        assert server.ask(b"set k 0 0 300\r\n" + b"v" * 300 + b"\r\n", b"\r\n") == b"STORED\r\n"
        requests = b"get k\r\n" * 40_000
        clients = []
        with socket.create_connection(server.address, timeout=300) as other:
            for _ in range(40):
                client = socket.create_connection(server.address)
                client.setblocking(False)
                try:
                    client.send(requests)
                except OSError:
                    pass
                clients.append(client)
            for _ in range(200):
                for client in clients:
                    try:
                        client.send(requests)
                    except OSError:
                        pass  # full, or closed because it does not read
                other.sendall(b"get none\r\n")
                assert other.recv(64) == b"END\r\n"
                time.sleep(0.01)
        for client in clients:
            client.close()
    finally:
        server.stop()


def fill_flash(server, count, length):
    """Items `k0` and on, of which most lie on flash only."""
    for start in range(0, count, 500):
        sets = [b"set k%d 0 0 %d noreply\r\n%s\r\n" % (n, length, b"v" * length) for n in range(start, min(start + 500, count))]
        assert server.ask(b"".join(sets) + b"mn\r\n", b"MN\r\n") == b"MN\r\n"


@pytest.mark.parametrize("threads", [1, 2])
def test_clients_that_had_much_under_way_once(senko, threads):
    """A thousand clients, one after the other, read 64 items at a time from flash, and stayed: each
    kept the memory of its 64 commands, 81 MiB of `-m 64m`.
    """
    memory, depth = 64 << 20, 64
    server = servers.start_senko("flash", "-t", str(threads), "-c", "1024", memory=memory)
    try:
        fill_flash(server, 150_000, 1000)
        clients = []
        for n in range(1000):
            client = socket.create_connection(server.address, timeout=300)
            client.sendall(b"".join(b"mg k%d s\r\n" % ((n * depth + m) * 7 % 100_000) for m in range(depth)) + b"mn\r\n")
            answer = b""
            while not answer.endswith(b"MN\r\n"):
                answer += client.recv(1 << 16)
            clients.append(client)
        for client in clients:
            client.close()
        assert peak(server) <= memory * 1.05, "%d MiB of %d" % (peak(server) >> 20, memory >> 20)
    finally:
        server.stop()


NOT_READ = [("plain", "dram", 4000), ("plain", "flash", 4000), ("tls", "dram", 4000), ("tls", "dram", 30000), ("tls", "flash", 4000)]


@pytest.mark.parametrize("door,tier,length", NOT_READ)
def test_clients_that_ask_for_much_and_do_not_read(senko, tmp_path, door, tier, length):
    """Nine hundred clients ask for values, over and over, and read nothing. The allocator kept free
    pages for a second and took huge ones, so that buffers of one size came on top of those of
    another: 78 MiB of `--memory 64m`.
    """
    memory, depth = 64 << 20, 64
    plain, secure = (("127.0.0.%d" % n, servers.free_port()) for n in (1, 2))
    options, context = ["-c", "1024", "-t", "2"], None
    if door == "tls":
        if not shutil.which("openssl"):
            missing("the openssl program is not installed")
        new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "key.pem", "-out", "chain.pem"]
        subprocess.run(["openssl", "req", "-x509", *new, "-subj", "/CN=localhost"], check=True, capture_output=True, cwd=tmp_path)
        options += ["-l", "notls:%s:%d,%s:%d" % (*plain, *secure)]
        options += ["--tls-chain-cert", str(tmp_path / "chain.pem"), "--tls-key", str(tmp_path / "key.pem")]
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    else:
        options += ["-l", "%s:%d,%s:%d" % (*plain, *secure)]
    server = servers.start_senko(tier, *options, memory=memory, address=plain)
    try:
        count = (80 << 20) // length
        fill_flash(server, count, length)
        clients = []
        for _ in range(900):
            client = socket.create_connection(secure, timeout=300)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            clients.append(context.wrap_socket(client) if context else client)
        for part in range(4):
            for n, client in enumerate(clients):
                client.settimeout(0.02)
                asked = b"".join(b"mg k%d v\r\n" % ((n * depth * 7 + m * 13 + part * 101) % count) for m in range(depth))
                try:
                    client.sendall(asked)
                except OSError:
                    pass  # the server takes no more of it, or has closed it
        for client in clients:
            client.close()
        assert peak(server) <= memory * 1.05, "%d MiB of %d" % (peak(server) >> 20, memory >> 20)
        assert server.ask(b"get none\r\n") == b"END\r\n"
    finally:
        server.stop()


def test_histograms_of_sizes_under_way(senko):
    """Nine hundred clients asked for `stats sizes` of items of 1,500 sizes, and each walk had a row
    for each size: 79 MiB of `-m 64m`.
    """
    memory = 64 << 20
    server = servers.start_senko("dram", "-c", "1000", memory=memory)
    try:
        for n in range(1, 1500):
            assert server.ask(b"set s%d 0 0 %d\r\n%s\r\n" % (n, 32 * n, b"v" * 32 * n), b"\r\n") == b"STORED\r\n"
        clients = [socket.create_connection(server.address, timeout=300) for _ in range(900)]
        for client in clients:
            client.sendall(b"stats sizes\r\n" * 3)
        for client in clients:
            answer = b""
            while answer.count(b"END\r\n") < 3:
                answer += client.recv(1 << 16)
            assert 100 < answer.count(b"STAT ") / 3 <= 256
            client.close()
        assert peak(server) <= memory * 1.05, "%d MiB of %d" % (peak(server) >> 20, memory >> 20)
    finally:
        server.stop()
