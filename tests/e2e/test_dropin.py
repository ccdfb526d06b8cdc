# SPDX-License-Identifier: Apache-2.0
"""The drop-in: senko called by the name memcached, as service files, scripts and test harnesses
start it.
"""

import os
import signal
import socket
import stat
import subprocess
import time

import pytest
from pymemcache.client.base import Client

import servers


@pytest.fixture
def memcached(senko, tmp_path):
    """The binary, under the name memcached."""
    link = tmp_path / "bin" / "memcached"
    link.parent.mkdir()
    link.symlink_to(senko)
    return str(link)


@pytest.fixture
def user():
    """Options that name the user to run as: memcached refuses to run as root without."""
    return ["-u", "nobody"] if os.getuid() == 0 else []


def wait_for(condition, what, seconds=300):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "%s did not happen" % what
        time.sleep(0.02)


def connects(port):
    try:
        socket.create_connection(("127.0.0.1", port), timeout=10).close()
        return True
    except OSError:
        return False


def listens(path):
    """A socket has its name before it listens."""
    with socket.socket(socket.AF_UNIX) as s:
        return s.connect_ex(str(path)) == 0


def run(command, **more):
    return subprocess.run(command, capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL, **more)


def test_version_and_help(memcached):
    version = run([memcached, "-V"])
    assert version.returncode == 0
    assert version.stdout.startswith("memcached 1.6.")
    helped = run([memcached, "-h"])
    assert helped.returncode == 0
    # Output that scripts and harnesses read to learn the server's abilities.
    for option in ["--port=<num>", "--unix-socket=<file>", "--enable-shutdown", "--memory-limit=<num>", "ext_path", "--enable-ssl"]:
        assert option in helped.stdout, option
    assert run([memcached, "-i"]).returncode == 0


def test_as_a_service_file_starts_it(memcached, user, tmp_path):
    """`memcached -d -P pidfile -u nobody`: it goes to the background, writes its pid, gives up
    root, and ends on SIGTERM.
    """
    os.chmod(tmp_path, 0o755)
    for parent in tmp_path.parents:
        if not parent.stat().st_mode & stat.S_IXOTH and user:
            os.chmod(parent, parent.stat().st_mode | stat.S_IXOTH)
    port = servers.free_port()
    pidfile = tmp_path / "memcached.pid"
    started = run([memcached, "-d", "-P", str(pidfile), *user, "-l", "127.0.0.1", "-p", str(port), "-m", "64", "-c", "256", "-t", "2"])
    assert started.returncode == 0, started.stderr
    # The command returns when the server answers.
    assert connects(port)
    pid = int(pidfile.read_text())
    try:
        with open("/proc/%d/status" % pid) as status:
            uid = [line.split()[1] for line in status if line.startswith("Uid:")][0]
        if user:
            assert uid != "0", "it still runs as root"
        client = Client(("127.0.0.1", port), timeout=300)
        assert client.set("k", "v", noreply=False)
        assert client.get("k") == b"v"
        settings = client.stats("settings")
        assert int(settings[b"maxbytes"]) == 64 << 20
        assert int(settings[b"maxconns"]) == 256
        assert int(settings[b"num_threads"]) == 2
        assert int(client.stats()[b"pid"]) == pid
        client.close()
    finally:
        os.kill(pid, signal.SIGTERM)
        wait_for(lambda: not os.path.exists("/proc/%d" % pid) or is_zombie(pid), "the end on SIGTERM")
    assert not connects(port)


def is_zombie(pid):
    try:
        with open("/proc/%d/stat" % pid) as f:
            return f.read().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


@pytest.fixture
def foreground(memcached, user):
    """Starts it in the foreground with more options; (port, process)."""
    processes = []

    def start(*options, cwd=None):
        port = servers.free_port()
        process = subprocess.Popen(
            [memcached, *user, "-l", "127.0.0.1", "-p", str(port), *options],
            stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=cwd,
        )  # fmt: skip
        processes.append(process)
        wait_for(lambda: connects(port) or process.poll() is not None, "the start")
        assert process.poll() is None, process.stderr.read()
        return port, process

    yield start
    for process in processes:
        process.terminate()
        process.wait(300)


def test_tuning_options_are_accepted(foreground):
    port, process = foreground(
        "-m", "100", "-f", "1.25", "-n", "48", "-L", "-R", "50", "-b", "2048", "-I", "2m", "-D", ":", "-U", "0", "-k", "-v",
        "-o", "modern,hash_algorithm=murmur3,lru_maintainer,hot_lru_pct=20,slab_automove=1,ext_threads=4,idle_timeout=300",
    )  # fmt: skip
    client = Client(("127.0.0.1", port), timeout=300)
    assert client.set("big", b"x" * 1_500_000, noreply=False)
    assert len(client.get("big")) == 1_500_000
    client.close()
    process.terminate()
    said = process.stderr.read()
    assert "warning" in said and "slab_automove" in said, said


def test_flash_by_extstores_option(foreground, tmp_path, user):
    if user:
        for folder in [tmp_path, *tmp_path.parents]:
            os.chmod(folder, folder.stat().st_mode | stat.S_IXOTH)
        os.chmod(tmp_path, 0o777)
    port, _ = foreground("-m", "16", "-o", "ext_path=%s/ext:512m" % tmp_path)
    client = Client(("127.0.0.1", port), timeout=300)
    values = {"key:%d" % i: os.urandom(1000) for i in range(60_000)}
    client.set_many(values, noreply=True)
    found = 0
    for key in values:
        value = client.get(key)
        assert value is None or value == values[key]
        found += value is not None
    assert found >= 0.999 * len(values), "%d of %d found" % (found, len(values))
    stats = client.stats()
    assert int(stats[b"flash_hits"]) > 0
    client.close()


def test_no_flash_unless_asked_for(foreground, tmp_path):
    port, _ = foreground("-m", "64", cwd=str(tmp_path))
    client = Client(("127.0.0.1", port), timeout=300)
    assert int(client.stats().get(b"flash_capacity", 0)) == 0
    client.close()
    assert [p.name for p in tmp_path.iterdir()] == ["bin"]


def test_a_unix_socket(memcached, user, tmp_path):
    if user:
        for folder in [tmp_path, *tmp_path.parents]:
            os.chmod(folder, folder.stat().st_mode | stat.S_IXOTH)
        os.chmod(tmp_path, 0o777)
    path = tmp_path / "socket"
    process = subprocess.Popen([memcached, *user, "-s", str(path), "-a", "0777"], stdin=subprocess.DEVNULL)
    try:
        wait_for(lambda: listens(path), "the socket")
        client = Client(str(path), timeout=300)
        assert client.set("k", "v", noreply=False)
        assert client.get("k") == b"v"
        client.close()
        assert stat.S_IMODE(path.stat().st_mode) == 0o777
    finally:
        process.terminate()
        process.wait(300)


@pytest.mark.parametrize(
    "options",
    [["-S"], ["-Y", "/dev/null/none"], ["-Z"], ["-U", "11211"], ["-m", "0"], ["-o", "nonsense=1"], ["-o", "ssl_chain_cert=x"], ["-I", "64m"], ["-p", "x"]],
    ids=lambda o: "".join(o),
)
def test_refused_options(memcached, user, options):
    refused = run([memcached, *user, "-l", "127.0.0.1", *options])
    assert refused.returncode != 0
    assert len(refused.stderr.strip().splitlines()) >= 1, "no reason given"


def test_root_must_name_a_user(memcached):
    if os.getuid() != 0:
        pytest.skip("not root")
    refused = run([memcached, "-l", "127.0.0.1", "-p", str(servers.free_port())])
    assert refused.returncode == 64
    assert "root" in refused.stderr
    refused = run([memcached, "-u", "no-such-user-here"])
    assert refused.returncode == 67


def test_port_file(memcached, user, tmp_path):
    ports = tmp_path / "ports"
    process = subprocess.Popen(
        [memcached, *user, "-l", "127.0.0.1", "-p", "-1"], stdin=subprocess.DEVNULL, env={**os.environ, "MEMCACHED_PORT_FILENAME": str(ports)}
    )
    try:
        wait_for(lambda: ports.exists() and ports.read_text(), "the file with the ports")
        port = int(ports.read_text().split(":")[-1].split()[0])
        wait_for(lambda: connects(port), "the start")
    finally:
        process.terminate()
        process.wait(300)
