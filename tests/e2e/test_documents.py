# SPDX-License-Identifier: Apache-2.0
"""Documents, followed by the letter: the installation of README into an empty prefix, and the
operator's guide from a running memcached to Senko. Addresses and sizes are changed, nothing
else."""

import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

import pytest

import servers
from missing import missing

ROOT = pathlib.Path(__file__).parents[2]
GUIDE = (ROOT / "docs/cache/operators-guide.md").read_text()
PATIENCE = 900
ITEMS = 2000


def blocks(text, language):
    """The fenced blocks of a language, in their order."""
    return re.findall(r"^```%s\n(.*?)^```$" % language, text, re.M | re.S)


def block(word):
    """The one block of the guide's shell commands that has this word."""
    (found,) = [each for each in blocks(GUIDE, "sh") if word in each]
    return found


def shell(text, folder, path):
    environment = {**os.environ, "PATH": "%s:/usr/share/memcached/scripts:%s" % (path, os.environ["PATH"])}
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", text], cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, "%s\n%s%s" % (text, done.stdout, done.stderr)
    return done.stdout


@pytest.mark.slow
def test_the_installation_of_readme_gives_a_get_from_flash(tmp_path):
    readme = (ROOT / "README.md").read_text()
    (line,) = re.findall(r"^    (cargo install \S+ --path \S+)", readme, re.M)
    if not shutil.which("cargo"):
        missing("cargo is not installed")
    # What the tests have built already is not built again.
    built = {"CARGO_TARGET_DIR": str(ROOT / "target"), **os.environ}
    done = subprocess.run(
        line.split() + ["--root", str(tmp_path)], cwd=ROOT, env=built, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stderr
    with serving(str(tmp_path / "bin/senko"), "-m", "64", "--flash", "%s/flash:64m" % tmp_path) as server:
        server.kind = "flash"
        server.ask(b"set greeting 0 0 5\r\nhello\r\n", b"STORED\r\n")
        server.settle()
        assert b"hello" in server.ask(b"get greeting\r\n")
        assert int(server.stats()["flash_hits"]) == 1


@contextlib.contextmanager
def serving(program, *options, folder=None, asked=None):
    """A server that runs meanwhile: `senko serve` or memcached. It is asked at another port whether
    it serves, if the port needs a password."""
    port = servers.free_port()
    command = [program] if program.endswith("memcached") else [program, "serve"]
    process = subprocess.Popen([*command, "-p", str(port), *options], cwd=folder, stderr=subprocess.DEVNULL)
    server = servers.Server("dram", ("127.0.0.1", asked or port), process)
    try:
        servers.wait_until_up(server)
        server.address = ("127.0.0.1", port)
        yield server
    finally:
        server.stop()


def value(n):
    return b"%d:" % n + b"v" * (n % 700)


def use(server, gets):
    """Sets every item, and gets some of them again and again."""
    for n in range(ITEMS):
        server.ask(b"set key%d %d %d %d\r\n%s\r\n" % (n, n % 9, 3600 * (n % 2), len(value(n)), value(n)), b"STORED\r\n")
    for n in range(gets):
        server.ask(b"get key%d\r\n" % (n % 50), b"END\r\n")


def test_from_a_memcached_to_senko_as_the_guide_says(senko, program, tmp_path):
    program("nc")
    with serving(program("memcached"), "-u", "nobody", "-l", "127.0.0.1", "-m", "64") as server:
        from_a_memcached_to_senko(server, senko, tmp_path)


def from_a_memcached_to_senko(server, senko, tmp_path):
    port = server.address[1]
    os.symlink(senko, tmp_path / "senko")
    there = lambda text: text.replace("127.0.0.1 11211", "127.0.0.1 %d" % port).replace("127.0.0.1:11211", "127.0.0.1:%d" % port)

    # What do I have? The watcher runs for an hour; here until the load is over.
    watch = subprocess.Popen(["bash", "-c", "exec " + there(block("watch fetchers")).split("|")[1].strip()], cwd=tmp_path, stdin=subprocess.PIPE)
    watch.stdin.write(b"watch fetchers mutations\r\n")
    watch.stdin.flush()
    log = tmp_path / "watched.log"
    end = time.monotonic() + PATIENCE
    while not (log.exists() and log.read_bytes().startswith(b"OK")):
        assert time.monotonic() < end
        time.sleep(0.05)
    use(server, 6000)
    while b"key=the-end " not in log.read_bytes():
        assert time.monotonic() < end
        server.ask(b"get the-end\r\n")
        time.sleep(0.05)
    watch.stdin.close()
    watch.kill()
    watch.wait(PATIENCE)
    printed = shell(there(block("curr_items")), tmp_path, tmp_path)
    assert "curr_items %d" % ITEMS in printed
    shell(block("awk"), tmp_path, tmp_path)
    lines = (tmp_path / "keys.csv").read_text().splitlines()
    assert sum(",set," in line for line in lines) == ITEMS
    gets = sum(line.startswith("key") and ",get," in line for line in lines)
    # A watcher that is slow loses lines. Lines of two threads may change places, and then a store's
    # own fetch counts.
    assert 3000 < gets <= 6100, gets
    plan = shell("senko plan keys.csv --hit 50%", tmp_path, tmp_path)
    assert "flash" in plan

    # The copy.
    with serving(senko, "-m", "64", "--no-flash") as target:
        copy = there(block("senko dump")).replace("127.0.0.1:11213", "127.0.0.1:%d" % target.address[1])
        assert shell(copy, tmp_path, tmp_path).startswith("%d items stored, " % ITEMS)
        for n in range(ITEMS):
            wanted = b"VALUE key%d %d %d\r\n%s\r\nEND\r\n" % (n, n % 9, len(value(n)), value(n))
            assert target.ask(b"get key%d\r\n" % n) == wanted
        assert b" t3" in target.ask(b"mg key1 t\r\n", b"\r\n")
        assert b" t-1" in target.ask(b"mg key2 t\r\n", b"\r\n")


def test_the_settings_and_the_certificate_of_the_guide_work(senko, program, tmp_path):
    program("openssl")
    shell(block("openssl req"), tmp_path, tmp_path)
    (tmp_path / "users").write_text("shop:correct horse\n")
    (settings,) = blocks(GUIDE, "toml")
    inner = servers.free_port()
    for theirs, ours in [
        ("0.0.0.0", "127.0.0.1"),
        ("notls:noauth:127.0.0.1:11213", "notls:noauth:127.0.0.1:%d" % inner),
        ("127.0.0.1:11212", "127.0.0.1:%d" % servers.free_port()),
        ("40g", "128m"),
        ("/var/lib/senko", str(tmp_path / "data")),
        ("/mnt/nvme/cache:200g", "%s/cache:256m" % tmp_path),
        ("/etc/senko/", str(tmp_path) + "/"),
    ]:
        assert theirs in settings
        settings = settings.replace(theirs, ours)
    (tmp_path / "senko.toml").write_text(settings)
    (client,) = blocks(GUIDE, "python")
    with serving(senko, "--config", "senko.toml", folder=tmp_path, asked=inner) as server:
        # The certificate is that of cache-1.
        client = client.replace('"cache-1", 11211', '"localhost", %d' % server.address[1])
        client = client.replace("\nclient =", "\ncontext.check_hostname = False\nclient =")
        client += 'client.set("greeting", "hello", noreply=False)\nassert client.get("greeting") == b"hello"\n'
        # In a file, because the guide's comments may have quotes.
        (tmp_path / "client.py").write_text(client)
        shell("%s client.py" % sys.executable, tmp_path, tmp_path)
