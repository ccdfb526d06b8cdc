# SPDX-License-Identifier: Apache-2.0
"""The Debian package: made, checked by lintian, installed, started, upgraded with a warm cache, and
removed.

The system that it is installed on is a copy of this one that goes away: an overlay over `/`, in a
mount namespace of its own."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time

import pytest

import servers
from missing import missing

pytestmark = pytest.mark.slow

ROOT = pathlib.Path(__file__).parents[2]
PATIENCE = 900


@pytest.fixture(scope="module")
def packages():
    """Two versions of the package."""
    binary = os.environ.get("SENKO_BIN")
    if not binary:
        missing("SENKO_BIN is not set")
    for tool in ("cargo", "dpkg-deb", "dpkg-shlibdeps", "strip"):
        if not shutil.which(tool):
            missing("%s is not installed" % tool)
    with tempfile.TemporaryDirectory(prefix="senko-package-", dir=os.environ.get("SENKO_TMP")) as folder:
        made = []
        for version in ("1.0", "1.1"):
            command = ["cargo", "xtask", "package", "--binary", os.path.abspath(binary), "--out", folder, "--version", version]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE)
            assert done.returncode == 0, done.stdout + done.stderr
            made.append(done.stdout.splitlines()[-1])
        yield made


def test_lintian_finds_no_error(packages, program):
    done = subprocess.run(
        [program("lintian"), "--fail-on", "error,warning", "--allow-root", packages[0]], capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_it_has_what_belongs_in_it(packages):
    listed = subprocess.run(["dpkg-deb", "-c", packages[0]], capture_output=True, text=True, timeout=PATIENCE, check=True).stdout
    paths = {line.split()[-1].lstrip(".") for line in listed.splitlines()}
    for path in (
        "/usr/bin/senko",
        "/lib/systemd/system/senko.service",
        "/lib/systemd/system/senko.socket",
        "/etc/senko/senko.toml",
        "/usr/share/man/man1/senko.1.gz",
        "/usr/share/man/man1/senko-serve.1.gz",
        "/usr/share/doc/senko/README.md",
        "/usr/share/doc/senko/docs/cache/quickstart.md",
        "/usr/share/doc/senko/examples/memcached.service.d/senko.conf",
        "/usr/share/doc/senko/examples/seccomp.json",
        "/usr/share/bash-completion/completions/senko",
        "/usr/share/zsh/vendor-completions/_senko",
        "/usr/share/fish/vendor_completions.d/senko.fish",
    ):
        assert path in paths, path


# Runs in the copy: each line of its input is a command for the shell, each is answered with what it
# printed and its exit code.
SHELL = r"""
set -e
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/up,workdir=$1/work" "$1/root"
mount --rbind /proc "$1/root/proc"
mount --rbind /dev "$1/root/dev"
mount -t tmpfs tmpfs "$1/root/run"
mount -t tmpfs -o mode=1777 tmpfs "$1/root/dev/shm"
mkdir -p "$1/root/packages"
cp "$2" "$3" "$1/root/packages/"
exec chroot "$1/root" /bin/sh -c 'while IFS= read -r line; do sh -c "$line" < /dev/null 2>&1; echo "= $?"; done'
"""


@pytest.fixture
def system(packages, program):
    """`run(command)` in the copy of the system: what it prints."""
    if os.getuid() != 0:
        missing("only root can make a copy of the system")
    unshare = program("unshare")
    folder = tempfile.mkdtemp(prefix="senko-system-", dir=os.environ.get("SENKO_TMP"))
    for name in ("up", "work", "root"):
        os.mkdir(os.path.join(folder, name))
    shell = subprocess.Popen(
        [unshare, "--mount", "--propagation", "private", "sh", "-c", SHELL, "sh", folder, *packages],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
    )  # fmt: skip

    def run(command, wanted=0):
        shell.stdin.write(command + "\n")
        shell.stdin.flush()
        lines = []
        while True:
            line = shell.stdout.readline()
            if not line:
                missing("there is no overlay over / here")
            if line.startswith("= "):
                break
            lines.append(line)
        assert int(line[2:]) == wanted, "%s: %s" % (command, "".join(lines))
        return "".join(lines)

    yield run
    shell.stdin.close()
    shell.wait(PATIENCE)
    shutil.rmtree(folder, ignore_errors=True)


def serve(system, port):
    """Starts the server as the unit does, with a smaller file and other ports; its process number,
    and what its start says.
    """
    options = "-p %d --admin 0 -m 64 --flash /var/lib/senko/flash:64m" % port
    command = "setpriv --reuid senko --regid senko --clear-groups senko serve --config /etc/senko/senko.toml %s --json" % options
    # A stop waits 5 s for the disk, and the next start may be empty: twenty times that beside other
    # tests.
    command = "env SENKO_TEST_PATIENCE=%s %s" % (os.environ["SENKO_TEST_PATIENCE"], command)
    # The shell may look before the server's own shell has opened the file: what an earlier server
    # said must be gone by then.
    system(": > /run/said; (setsid %s >> /run/said 2> /run/errors < /dev/null & echo $! > /run/pid)" % command)
    said = system("for n in $(seq 6000); do test -s /run/said && break; sleep 0.05; done; head -1 /run/said; cat /run/errors >&2 || true")
    return int(system("cat /run/pid")), json.loads(said.splitlines()[0])


def test_installed_started_upgraded_and_removed(system):
    system("dpkg -i /packages/senko_1.0_*.deb")
    assert system("stat -c '%U %a' /var/lib/senko") == "senko 700\n"
    assert "senko-serve" in system("man -w senko-serve 2>/dev/null || ls /usr/share/man/man1/senko-serve.1.gz")
    system("senko version")

    port = servers.free_port()
    pid, said = serve(system, port)
    server = servers.Server("flash", ("127.0.0.1", port))
    assert said["warm"]["flash_items"] == 0
    value = b"v" * 4000
    # A busy disk makes the server drop items that DRAM has no room for: sets until enough came
    # through.
    sets = 0
    end = time.monotonic() + PATIENCE
    while int(server.stats()["flash_items"]) < 2000:
        assert time.monotonic() < end, server.stats()
        parts = [b"set k%d 0 0 4000 noreply\r\n%s\r\n" % (n, value) for n in range(sets, sets + 4000)]
        server.ask(b"".join(parts) + b"mn\r\n", b"MN\r\n")
        sets += 4000

    # The upgrade leaves what the administrator changed, and the new version comes back warm.
    system("echo '# changed here' >> /etc/senko/senko.toml")
    system("dpkg -i --force-confold /packages/senko_1.1_*.deb")
    assert "1.1" in system("dpkg-query -W senko")
    assert system("tail -1 /etc/senko/senko.toml") == "# changed here\n"
    stop(pid)
    pid, said = serve(system, port)
    assert said["warm"]["flash_items"] > 1000, said
    assert server.stats()["flash_items"] == str(said["warm"]["flash_items"])
    hits = sum(value in server.ask(b"get k%d\r\n" % n) for n in range(0, sets, 97))
    assert hits > 10
    stop(pid)

    # Without the package its data stays; a purge takes all of it.
    system("dpkg -r senko")
    system("test -d /var/lib/senko && test -f /etc/senko/senko.toml && ! test -e /usr/bin/senko")
    system("dpkg -P senko")
    system("! test -e /var/lib/senko && ! test -e /etc/senko/senko.toml && ! test -e /lib/systemd/system/senko.service")
    assert "senko" not in system("ls /dev/shm")


def stop(pid):
    os.kill(pid, signal.SIGTERM)
    # It is not a child of this process.
    while True:
        try:
            with open("/proc/%d/stat" % pid) as file:
                if file.read().rsplit(")")[-1].split()[0] == "Z":
                    return
        except OSError:
            return
        time.sleep(0.05)
