# SPDX-License-Identifier: Apache-2.0
"""Two thousand clients misbehave at once, others come and go in a storm: everybody else is
answered, and memory stays in its cap.

The crowd reads slowly, stops in the middle of a value, of a line and of a handshake, and scrapes
metrics without reading. What is asserted are
counts and states. What the others wait is measured by `senko-lab run serve-overload`."""

import resource
import shutil
import socket
import ssl
import subprocess
import threading
import time
import urllib.request

import pytest

import servers
from missing import missing

MEMORY = 160 << 20
VALUE = 1000
# So many of each kind.
SLOW_READERS, HALF_VALUES, HALF_LINES, HALF_HELLOS, WHOLE_HELLOS = 500, 400, 300, 400, 400
SCRAPERS = 8
STORM = 3000
FILES = 8192


@pytest.fixture
def files():
    """Enough open files for both sides."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, FILES), max(hard, FILES)))
    except (ValueError, PermissionError):
        missing("the hard limit of open files is %d, and %d are needed" % (hard, FILES))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, max(hard, FILES)))


class Server(servers.Server):
    """A senko with an address that has TLS, one that has none, and an admin listener."""

    def __init__(self, program, folder, tier, workers):
        plain, secure, admin = ("127.0.0.1", servers.free_port()), ("127.0.0.2", servers.free_port()), servers.free_port()
        new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "key.pem", "-out", "chain.pem"]
        subprocess.run(["openssl", "req", "-x509", *new, "-subj", "/CN=localhost"], check=True, capture_output=True, cwd=folder)
        flash = ["--flash", "%s:1g" % (folder / "flash")] if tier == "flash" else ["--no-flash"]
        command = [program, "serve", "-l", "notls:%s:%d,%s:%d" % (*plain, *secure), "-c", "4096", "--memory", "%dm" % (MEMORY >> 20)]
        command += ["--tls-chain-cert", "chain.pem", "--tls-key", "key.pem", "--admin", "127.0.0.1:%d" % admin, "-t", str(workers), *flash]
        log = open(folder / "log", "w")
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder)
        super().__init__(tier, plain, process)
        self.secure, self.admin, self.log = secure, ("127.0.0.1", admin), folder / "log"

    def peak(self):
        with open("/proc/%d/status" % self.process.pid) as status:
            return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM:"))

    def connections(self):
        return int(self.stats()["curr_connections"])


@pytest.fixture(params=[("dram", 1), ("flash", 1), ("dram", 2)], ids=str)
def server(request, senko, tmp_path, files):
    if not shutil.which("openssl"):
        missing("the openssl program is not installed")
    made = Server(senko, tmp_path, *request.param)
    try:
        yield servers.wait_until_up(made)
    finally:
        made.stop()


def trusting():
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def hello():
    """The first message of a handshake."""
    out = ssl.MemoryBIO()
    link = trusting().wrap_bio(ssl.MemoryBIO(), out)
    with pytest.raises(ssl.SSLWantReadError):
        link.do_handshake()
    return out.read()


def fill(server):
    """Half as much again as the memory, so that it is full."""
    count = MEMORY // VALUE * 3 // 2
    for start in range(0, count, 5000):
        sets = [b"set key%07d 0 0 %d noreply\r\n%s\r\n" % (n, VALUE, b"v" * VALUE) for n in range(start, min(start + 5000, count))]
        assert server.ask(b"".join(sets) + b"mn\r\n", b"MN\r\n") == b"MN\r\n"
    return b"key%07d" % (count - 1)


class Crowd:
    """Connections that stay, each in the middle of something."""

    def __init__(self, server, key):
        first = hello()
        half_value = b"0 0 100000\r\n" + b"v" * 50000
        self.sockets = []
        for n in range(SLOW_READERS):
            self.add(server.address, (b"get %s\r\n" % key) * 500)
        for n in range(HALF_VALUES):
            self.add(server.address, b"set half%d " % n + half_value)
        for n in range(HALF_LINES):
            self.add(server.address, b"get ke")
        for n in range(HALF_HELLOS):
            self.add(server.secure, first[: len(first) // 2])
        for n in range(WHOLE_HELLOS):
            self.add(server.secure, first)
        for n in range(SCRAPERS):
            self.add(server.admin, b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")

    def add(self, address, text):
        sock = socket.create_connection(address, timeout=300)
        sock.setblocking(False)
        try:
            sock.send(text)
        except BlockingIOError:
            pass
        self.sockets.append(sock)

    def read_a_little(self):
        """Slow readers take a sip each; how many were not closed."""
        alive = 0
        for sock in self.sockets[:SLOW_READERS]:
            try:
                alive += bool(sock.recv(256))
            except BlockingIOError:
                alive += 1
            except OSError:
                pass
        return alive

    def close(self):
        for sock in self.sockets:
            sock.close()


def storm(server, errors):
    """Connections that send a little and go without reading, by turns with TLS and without."""
    try:
        first = hello()
        for n in range(STORM):
            address, text = [(server.address, b"get none\r\n"), (server.secure, first)][n % 2]
            with socket.create_connection(address, timeout=300) as sock:
                sock.sendall(text)
    except Exception as error:  # told by the test, not by the thread
        errors.append(error)


def converse(sock, name, times):
    """Sets and gets, of which each answer is right."""
    stream = sock.makefile("rwb")
    for n in range(times):
        value = (b"%d-" % n) * 100
        stream.write(b"set %s 0 0 %d\r\n%s\r\n" % (name, len(value), value))
        stream.flush()
        assert stream.readline() == b"STORED\r\n"
        stream.write(b"get %s\r\n" % name)
        stream.flush()
        assert stream.readline() == b"VALUE %s 0 %d\r\n" % (name, len(value))
        assert stream.read(len(value) + 7) == value + b"\r\nEND\r\n"
    return times


def steady(server, n, secure, done, errors):
    try:
        for _ in range(5):
            sock = socket.create_connection(server.secure if secure else server.address, timeout=300)
            if secure:
                sock = trusting().wrap_socket(sock)
            with sock:
                done.append(converse(sock, b"steady%d" % n, 40))
    except Exception as error:  # told by the test, not by the thread
        errors.append(error)


def test_the_others_are_answered_and_memory_holds(server):
    before = server.connections()
    key = fill(server)
    peaks = []
    # Twice: what the first crowd held serves the second.
    for _ in range(2):
        crowd = Crowd(server, key)
        done, errors = [], []
        threads = [threading.Thread(target=storm, args=(server, errors))]
        threads += [threading.Thread(target=steady, args=(server, n, n % 3 == 0, done, errors)) for n in range(12)]
        for thread in threads:
            thread.start()
        sips = 0
        while any(thread.is_alive() for thread in threads):
            sips += crowd.read_a_little()
            with urllib.request.urlopen("http://%s:%d/healthz" % server.admin, timeout=300) as answer:
                assert answer.status == 200
            time.sleep(0.05)
        for thread in threads:
            thread.join()
        assert not errors, (errors[:3], server.state())
        assert sum(done) == 12 * 5 * 40
        # The burden was there to the end: who stops in the middle of a line is not closed.
        assert sips > 0
        assert server.connections() >= before + HALF_LINES
        peaks.append(server.peak())
        crowd.close()
        end = time.monotonic() + 300
        while server.connections() > before:
            assert time.monotonic() < end, server.state()
            time.sleep(0.1)
    assert max(peaks) <= MEMORY * 1.05, "%r MiB of %d" % ([peak >> 20 for peak in peaks], MEMORY >> 20)
    stats = server.stats()
    assert int(stats["total_connections"]) >= 2 * (STORM + HALF_LINES)
