# SPDX-License-Identifier: Apache-2.0
"""senko as a systemd service: what it tells its manager, sockets that are passed to it, and the
units of contrib/systemd.
"""

import fcntl
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import time

import pytest

UNITS = pathlib.Path(__file__).parents[2] / "contrib" / "systemd"
PATIENCE = 300


@pytest.fixture
def manager(tmp_path):
    """A service manager's socket; `tell()` is the next message, as a dictionary."""
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        s.bind(path)
        s.settimeout(PATIENCE)

        def tell():
            return dict(line.split("=", 1) for line in s.recv(4096).decode().splitlines())

        yield path, tell


def until(tell, name):
    """Messages up to the first that has this name."""
    seen = []
    while not seen or name not in seen[-1]:
        seen.append(tell())
    return seen


def start(senko, tmp_path, *options, **env):
    command = [senko, "serve", "-m", "64", "--data-dir", str(tmp_path / "data"), "--flash", "%s:256m" % (tmp_path / "flash"), *options]
    return subprocess.Popen(
        command, cwd=tmp_path, env={**os.environ, **env}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )


def test_the_manager_is_told_of_each_step(senko, manager, tmp_path):
    path, tell = manager
    process = start(senko, tmp_path, "-p", "0", NOTIFY_SOCKET=path)
    try:
        # While it starts it asks for more time; once it is ready, clients are answered.
        steps = until(tell, "READY")
        assert "EXTEND_TIMEOUT_USEC" in steps[0]
        assert steps[-1]["MAINPID"] == str(process.pid)
        address = re.search(r"serving on 127\.0\.0\.1:(\d+); came back with 0 items", steps[-1]["STATUS"])
        with socket.create_connection(("127.0.0.1", int(address[1])), timeout=PATIENCE) as s:
            s.sendall(b"mn\r\n")
            assert s.recv(10) == b"MN\r\n"
        before = time.monotonic_ns() // 1000
        process.send_signal(signal.SIGHUP)
        steps = until(tell, "READY")
        assert "RELOADING" in steps[0]
        assert before <= int(steps[0]["MONOTONIC_USEC"]) <= time.monotonic_ns() // 1000
        process.send_signal(signal.SIGTERM)
        steps = until(tell, "EXTEND_TIMEOUT_USEC")
        assert "STOPPING" in steps[0]
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.wait()


def test_an_abstract_socket_and_one_that_nobody_reads(senko, tmp_path):
    name = "senko-test-%d" % os.getpid()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        s.bind("\0" + name)
        s.settimeout(PATIENCE)
        process = start(senko, tmp_path, "-p", "0", NOTIFY_SOCKET="@" + name)
        while b"READY=1" not in s.recv(4096):
            pass
        process.terminate()
        assert process.wait(PATIENCE) == 0
    # A manager that is gone is not a reason not to serve.
    process = start(senko, tmp_path, "-p", "0", "--json", NOTIFY_SOCKET=str(tmp_path / "nobody"))
    assert json.loads(process.stdout.readline())["event"] == "start"
    process.terminate()
    assert process.wait(PATIENCE) == 0


def test_passed_sockets_are_served(senko, tmp_path):
    unix_path = str(tmp_path / "cache.sock")
    with socket.socket() as tcp, socket.socket(socket.AF_UNIX) as unix, socket.socket() as admin:
        for s in (tcp, admin):
            s.bind(("127.0.0.1", 0))
            s.listen()
        unix.bind(unix_path)
        unix.listen()
        ports = [s.getsockname()[1] for s in (tcp, admin)]
        # A client may connect before the server is there: it waits.
        early = socket.create_connection(("127.0.0.1", ports[0]), timeout=PATIENCE)
        early.sendall(b"mn\r\n")
        # Descriptors 3, 4 and 5, for the process that the shell becomes.
        fds = [s.fileno() for s in (tcp, unix, admin)]
        high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in fds]
        moves = " ".join("%d<&%d" % (3 + n, fd) for n, fd in enumerate(high))
        script = 'exec %s; LISTEN_PID=$$ LISTEN_FDS=3 LISTEN_FDNAMES=cache:cache:admin exec "$0" "$@"' % moves
        # The -p is overruled: a service manager's sockets are the ones.
        process = subprocess.Popen(
            ["bash", "-c", script, senko, "serve", "--no-flash", "-m", "64", "-p", "1", "--json"],
            close_fds=False, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        for fd in high:
            os.close(fd)
    try:
        said = json.loads(process.stdout.readline())
        assert said["listen"] == ["127.0.0.1:%d" % ports[0]]
        assert said["admin"] == "127.0.0.1:%d" % ports[1]
        assert early.recv(10) == b"MN\r\n"
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(PATIENCE)
            s.connect(unix_path)
            s.sendall(b"mn\r\n")
            assert s.recv(10) == b"MN\r\n"
        with socket.create_connection(("127.0.0.1", ports[1]), timeout=PATIENCE) as s:
            s.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
            assert s.makefile().read().endswith("\nserving\n")
        process.terminate()
        assert process.wait(PATIENCE) == 0
        # The manager's socket file is not the server's to remove.
        assert os.path.exists(unix_path)
    finally:
        early.close()
        process.kill()
        process.wait()


def test_what_is_no_listening_socket_is_refused(senko, tmp_path):
    script = 'exec 3</dev/null; LISTEN_PID=$$ LISTEN_FDS=1 exec "$0" serve --no-flash'
    done = subprocess.run(["bash", "-c", script, senko], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 1
    assert "not a stream socket that listens" in done.stderr and len(done.stderr.splitlines()) == 1


@pytest.fixture
def units(senko, program, tmp_path):
    """The units with the binary under test, and systemd's program that checks them."""
    analyze = program("systemd-analyze")
    for unit in filter(pathlib.Path.is_file, UNITS.glob("senko.*")):
        (tmp_path / unit.name).write_text(unit.read_text().replace("/usr/bin/senko", senko))
    return analyze, tmp_path


def test_units_are_valid(units):
    analyze, folder = units
    paths = [str(path) for path in folder.glob("senko.*")]
    assert len(paths) == 2
    done = subprocess.run([analyze, "verify", "--man=no", *paths], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0 and not done.stderr, done.stderr


def test_the_unit_is_hardened(units):
    analyze, folder = units
    command = [analyze, "security", "--offline=yes", "--threshold=20", str(folder / "senko.service")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, env={**os.environ, "SYSTEMD_COLORS": "0"})
    assert done.returncode == 0, done.stdout
    # /dev/shm must stay within reach, and no disk.
    text = (folder / "senko.service").read_text()
    assert "DeviceAllow" not in text and "SupplementaryGroups" not in text
    for line in ("DevicePolicy=closed", "RemoveIPC=no", "LimitMEMLOCK=infinity", "Type=notify"):
        assert line in text.splitlines()


def test_the_unit_permits_what_the_server_calls(units, senko, program, manager, tmp_path):
    """Every system call of a start, of gets and sets on both tiers, and of a stop is in the unit's
    filter.
    """
    analyze, folder = units
    strace = program("strace")
    path, tell = manager
    log = tmp_path / "calls"
    command = [strace, "-f", "-qq", "-o", str(log), senko, "serve", "-p", "0", "-m", "64", "--admin", "0"]
    command += ["--data-dir", str(tmp_path / "data"), "--flash", "%s:64m" % (tmp_path / "flash"), "--keep-dram", "--json"]
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={**os.environ, "NOTIFY_SOCKET": path}
    )
    said = json.loads(process.stdout.readline())
    pid = said["pid"]
    with socket.create_connection(("127.0.0.1", int(said["listen"][0].rsplit(":")[1])), timeout=PATIENCE) as s:
        for n in range(12000):
            s.sendall(b"set k%d 0 0 4000 noreply\r\n%4000d\r\n" % (n, n))
        s.sendall(b"get k0 k11999\r\nmn\r\n")
        answer = b""
        while not answer.endswith(b"MN\r\n"):
            answer += s.recv(1 << 16)
    os.kill(pid, signal.SIGTERM)
    assert process.wait(PATIENCE) == 0
    called = set(re.findall(r"^\d+ +(\w+)\(", log.read_text(), re.MULTILINE))
    assert {"io_uring_enter", "epoll_wait"} & called
    assert not called - permitted(analyze, (folder / "senko.service").read_text())
    # The container's profile lists them as well.
    profile = json.loads((UNITS.parent / "container" / "seccomp.json").read_text())
    # For clone3 it answers that there is no such call, and the C library takes clone.
    names = {name for rule in profile["syscalls"] for name in rule["names"]}
    assert {"io_uring_setup", "io_uring_enter", "io_uring_register"} <= names
    assert not called - names


def permitted(analyze, unit):
    """The system calls that the unit's filter lets through."""

    def members(name):
        if not name.startswith("@"):
            return {name}
        listed = subprocess.run([analyze, "syscall-filter", name], capture_output=True, text=True, timeout=PATIENCE, check=True)
        words = [line.strip() for line in listed.stdout.splitlines()[1:]]
        return set().union(*(members(word) for word in words if word and not word.startswith("#")))

    # Permissions that systemd itself gives every service.
    allowed = members("@default")
    for line in unit.splitlines():
        if line.startswith("SystemCallFilter="):
            rule = line.split("=", 1)[1]
            names = set().union(*(members(name) for name in rule.lstrip("~").split()))
            allowed = allowed - names if rule.startswith("~") else allowed | names
    return allowed

