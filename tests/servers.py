# SPDX-License-Identifier: Apache-2.0
"""Starts and stops the servers under test, and moves a senko's items from DRAM to flash."""

import contextlib
import os
import random
import re
import shutil
import socket
import subprocess
import tempfile
import time


# The servers that a client is tested with.
KINDS = os.environ.get("SENKO_SERVERS", "dram,flash,memcached").split(",")


# The size of a filler item besides its value (headers and a short key), and the same for a value
# that is stored with its complete answer.
FILLER_OVERHEAD = 42
LARGE_FILLER_OVERHEAD = 76
MOST_PACKED = 1024


# The least memory for items that `cache_memlimit` takes, in MiB.
LEAST_LIMIT = 8


# Lines of `lru_crawler metadump` that are not the filler's.
OTHERS = re.compile(rb"^(?!key=~|key=%7E)(key=[^\r\n]*)", re.M)


# For every senko that a test starts: a busy disk makes it drop no item, also when it stops.
os.environ.setdefault("SENKO_TEST_PATIENCE", "20")


# Sockets that hold the names of ports which this process has given out.
CLAIMS = []


def free_port():
    """A port that nobody else takes before its server does, nor between a kill and the next start.

    The kernel gives clients and servers with port 0 none below its ephemeral range. Other test
    processes skip a port that is claimed: a claim is an abstract Unix socket, so it ends with the
    process.
    """
    with open("/proc/sys/net/ipv4/ip_local_port_range") as file:
        first_ephemeral = int(file.read().split()[0])
    for _ in range(10_000):
        port = random.randrange(min(10_000, first_ephemeral // 2), first_ephemeral)
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind("\0senko-tests-port-%d" % port)
            with socket.socket() as s:
                s.bind(("127.0.0.1", port))
        except OSError:
            claim.close()
            continue
        CLAIMS.append(claim)
        return port
    raise AssertionError("no port is free")


class Server:
    """A running server: `address` is (host, port)."""

    def __init__(self, kind, address, process=None, folder=None):
        self.kind = kind
        self.address = address
        self.process = process
        self.folder = folder
        self.filled = 0

    @property
    def name(self):
        return "%s:%d" % self.address

    def ask(self, request, end=b"END\r\n"):
        """Sends a request and returns the answer, which ends with `end`."""
        # Python's timeout is that of all of `sendall`, and some send tens of megabytes, which the
        # server takes as fast as its flash does.
        with socket.create_connection(self.address, timeout=300) as s:
            s.sendall(request)
            answer = bytearray()
            while not answer.endswith(end):
                try:
                    part = s.recv(1 << 20)
                except TimeoutError:
                    raise AssertionError("no answer; %s" % self.state()) from None
                if not part:
                    raise AssertionError("the server closed after %r" % bytes(answer[-200:]))
                answer += part
            return bytes(answer)

    def state(self):
        """What the server says of itself where one connection has no answer: for the message of a
        test that fails.
        """
        try:
            with socket.create_connection(self.address, timeout=10) as s:
                s.sendall(b"stats\r\nstats settings\r\n")
                said = b""
                while said.count(b"END\r\n") < 2:
                    part = s.recv(1 << 20)
                    if not part:
                        break
                    said += part
            return said.decode(errors="replace")
        except OSError as error:
            return "nor any on another connection: %s" % error

    def stats(self):
        lines = self.ask(b"stats\r\n").decode().splitlines()
        return dict(line.split(" ", 2)[1:] for line in lines if line.startswith("STAT "))

    def peak(self):
        """The most memory that it had, in bytes."""
        with open("/proc/%d/status" % self.process.pid) as status:
            return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM:"))

    def flush(self):
        self.ask(b"flush_all\r\n", b"OK\r\n")

    def resident_sizes(self):
        """The sizes of the items in DRAM that are not the filler's."""
        sizes = set()
        # Most of a million lines are the filler's, and are not made strings of.
        for fields in OTHERS.findall(self.ask(b"lru_crawler metadump dram\r\n")):
            fields = dict(word.split("=", 1) for word in fields.decode().split())
            sizes.add(int(fields["size"]))
        return sizes

    def settle(self):
        """On flash: returns when every item that is not the filler's has left DRAM. Items leave
        DRAM within their size class, so the filler has the sizes of those that are to go. On other
        servers: nothing."""
        if self.kind != "flash":
            return
        # With less memory many of them leave at once.
        usual = int(self.stats()["limit_maxbytes"]) >> 20
        self.limit(min(LEAST_LIMIT, usual))
        fewest, end = None, 0
        while True:
            sizes = self.resident_sizes()
            if not sizes:
                self.limit(usual)
                return
            # As long as items leave, it may take as long as it takes.
            if fewest is None or len(sizes) < fewest:
                fewest, end = len(sizes), time.monotonic() + 300
            assert time.monotonic() < end, "items of these sizes stayed in DRAM: %r" % sizes
            # One size at a time: memory moves between classes, so that others leave meanwhile.
            self.fill(min(sizes))

    def limit(self, mebibytes):
        """Sets the memory for items."""
        self.ask(b"cache_memlimit %d\r\n" % mebibytes, b"OK\r\n")

    def fill(self, size):
        """Stores items of about this size: the size to match may be the last of its class, so they
        vary a little.
        """
        packed = size - FILLER_OVERHEAD <= MOST_PACKED
        overhead = FILLER_OVERHEAD if packed else LARGE_FILLER_OVERHEAD
        # What is larger goes straight to flash. These have chunks of the largest size as well.
        length = min(max(size - overhead - 4, 0), 60_000)
        count = min(max((8 << 20) // (length + overhead), 4), 20000)
        parts = []
        for _ in range(count):
            self.filled += 1
            n = length + self.filled % 3 * 4
            parts.append(b"set ~%05x 0 0 %d noreply\r\n%s\r\n" % (self.filled % 0x100000, n, b"." * n))
        parts.append(b"mn\r\n")
        self.ask(b"".join(parts), b"MN\r\n")

    def answers(self):
        """Whether it serves. To connect proves nothing: a killed process's ring may keep its port
        open for a moment after its end.
        """
        try:
            with socket.create_connection(self.address, timeout=10) as s:
                s.sendall(b"version\r\n")
                return s.recv(100).startswith(b"VERSION ")
        except OSError:
            return False

    def stop(self):
        if self.process:
            self.process.terminate()
            try:
                # A patient server waits long for its disk.
                self.process.wait(300)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise AssertionError("the server did not stop on SIGTERM")
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)


def wait_until_up(server):
    end = time.monotonic() + 300
    while not server.answers():
        if server.process.poll() is not None or time.monotonic() > end:
            server.stop()
            raise AssertionError("%s did not start" % server.process.args)
        time.sleep(0.02)
    return server


def start_senko(kind, *options, memory=None, flash=1 << 30, address=None):
    """A senko of the binary SENKO_BIN (None if that is not set), with flash if `kind` says so. With
    an `address`, the options say where it listens, and it is asked there."""
    binary = os.environ.get("SENKO_BIN")
    if not binary:
        return None
    where = [] if address else ["-p", str(free_port())]
    address = address or ("127.0.0.1", int(where[1]))
    # Not in /tmp: where that is a tmpfs it takes no O_DIRECT.
    folder = tempfile.mkdtemp(prefix="senko-tests-", dir=os.environ.get("SENKO_TMP"))
    if memory is None:
        memory = (32 if kind == "flash" else 256) << 20
    connections = [] if "-c" in options else ["-c", "200"]
    command = [os.path.abspath(binary), "serve", *where, *connections, "--memory", "%dk" % (memory >> 10), *options]
    if kind == "flash":
        # The other policy keeps what was read, however much else is stored; `settle` stores only.
        command += ["--policy", "lru"]
        command += ["--flash", "%s:%dk" % (os.path.join(folder, "flash"), flash >> 10)]
    else:
        command.append("--no-flash")
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder)
    return wait_until_up(Server(kind, address, process, folder))


def start_memcached(*options):
    """Debian's memcached; None if it is not installed."""
    binary = shutil.which("memcached")
    if not binary:
        return None
    port = free_port()
    user = ["-u", "root"] if os.getuid() == 0 else []
    process = subprocess.Popen([binary, "-l", "127.0.0.1", "-U", "0", "-p", str(port), *user, *options], stdin=subprocess.DEVNULL)
    return wait_until_up(Server("memcached", ("127.0.0.1", port), process))


@contextlib.contextmanager
def nutcracker(program, config, folder, port, stats_port):
    """A nutcracker of this config, once it accepts."""
    log = folder / "log"
    proxy = subprocess.Popen(
        [program, "-c", str(config), "-o", str(log), "-p", str(folder / "pid"), "-a", "127.0.0.1", "-s", str(stats_port)],
        stdin=subprocess.DEVNULL,
    )
    try:
        end = time.monotonic() + 300
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=10).close()
                break
            except OSError:
                assert proxy.poll() is None and time.monotonic() < end, log.read_text()
                time.sleep(0.02)
        yield
        assert proxy.poll() is None, "nutcracker died"
    finally:
        proxy.kill()
        proxy.wait()


def named_server(variable, kind):
    """A server that runs already, named host:port by an environment variable."""
    name = os.environ.get(variable)
    if not name:
        return None
    host, port = name.rsplit(":", 1)
    return Server(kind, (host, int(port)))
