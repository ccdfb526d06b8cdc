# SPDX-License-Identifier: Apache-2.0
"""`senko dump` and `senko restore` between Debian's memcached, a senko on each tier, and a
proxy.
"""

import base64
import subprocess
import time

import pytest

import servers

CONFIG = """\
pool:
  listen: 127.0.0.1:{port}
  hash: fnv1a_64
  distribution: ketama
  timeout: 300000
  servers:
   - {node}:1
"""
ITEMS = 3000


@pytest.fixture
def old(program):
    program("memcached")
    server = servers.start_memcached("-m", "64")
    yield server
    server.stop()


def value(n):
    return b"%d:" % n + bytes(n * k % 251 for k in range(n % 900))


def key(n):
    """Keys of text, of bytes that are no text, and of text that was given in base64; as the meta
    commands have them."""
    if n % 50 == 0:
        return base64.b64encode(b"\n key\r\n%d" % n) + b" b"
    if n % 50 == 1:
        return base64.b64encode(b"word%d" % n) + b" b"
    return b"key%d" % n


def fill(server):
    requests = []
    for n in range(ITEMS):
        word, *flag = key(n).split()
        ttl = 0 if n % 3 else 50_000 + n
        requests.append(b"ms %s %d %s F%d T%d q\r\n%s\r\n" % (word, len(value(n)), b" ".join(flag), n * 77, ttl, value(n)))
    server.ask(b"".join(requests) + b"mn\r\n", b"MN\r\n")


def check(server, since):
    """All items are there, with their values, flags and time left."""
    requests = b"".join(b"mg %s k f t v\r\n" % key(n) for n in range(ITEMS))
    answer = server.ask(requests + b"mn\r\n", b"MN\r\n")
    for n in range(ITEMS):
        head, answer = answer.split(b"\r\n", 1)
        words = head.split(b" ")
        assert words[:2] == [b"VA", b"%d" % len(value(n))], (n, head)
        assert b"k" + key(n).split()[0] in words and b"f%d" % (n * 77) in words, (n, head)
        assert (b"b" in words) == (n % 50 < 2), (n, head)
        (left,) = [int(word[1:]) for word in words if word[:1] == b"t"]
        if n % 3:
            assert left == -1
        else:
            past = time.time() - since
            assert 50_000 + n - past - 2 <= left <= 50_000 + n + 1, (n, left)
        assert answer.startswith(value(n) + b"\r\n")
        answer = answer[len(value(n)) + 2 :]
    assert answer == b"MN\r\n"


def run(*command, code=0, **more):
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, **more)
    assert done.returncode == code, done
    return done


def test_from_memcached_to_senko_and_back(senko, old, tmp_path):
    since = time.time()
    fill(old)
    new = servers.start_senko("flash", "-t", "2")
    try:
        run(senko, "dump", "-s", old.name, "--to", tmp_path / "dump")
        done = run(senko, "restore", "-s", new.name, tmp_path / "dump")
        assert done.stdout.startswith("%d items stored, " % ITEMS), done
        check(new, since)
        old.flush()
        # memcached counts whole seconds, and forgets what was stored in that of the flush.
        time.sleep(1.1)
        dump = subprocess.Popen([senko, "dump", "-s", new.name, "--prefix", "key"], stdout=subprocess.PIPE)
        done = run(senko, "restore", "-s", old.name, stdin=dump.stdout)
        assert dump.wait(300) == 0
        assert done.stdout.startswith("%d items stored, " % (ITEMS - 2 * ITEMS // 50)), done
        run(senko, "dump", "-s", new.name, "--to", tmp_path / "again")
        done = run(senko, "restore", "-s", old.name, "--keep", tmp_path / "again")
        assert done.stdout.startswith("%d items stored, " % (2 * ITEMS // 50)), done
        check(old, since)
    finally:
        new.stop()


def test_a_stale_item_of_memcached_stays_stale(senko, old, tmp_path):
    old.ask(b"set good 0 0 1\r\na\r\nset bad 0 0 1\r\nb\r\nmd bad I\r\n", b"HD\r\n")
    done = run(senko, "dump", "-s", old.name, "--to", tmp_path / "dump")
    assert done.stdout.startswith("1 item dumped, ") and "1 stale" in done.stdout, done
    assert b" W" in old.ask(b"mg bad s\r\n", b"\r\n")


def test_restored_through_nutcracker(senko, old, program, tmp_path):
    for n in range(100):
        old.ask(b"set key%d 7 0 %d\r\n%s\r\n" % (n, len(value(n)), value(n)), b"STORED\r\n")
    run(senko, "dump", "-s", old.name, "--to", tmp_path / "dump")
    old.flush()
    time.sleep(1.1)
    port = servers.free_port()
    config = tmp_path / "nutcracker.yml"
    config.write_text(CONFIG.format(port=port, node=old.name))
    with servers.nutcracker(program("nutcracker"), config, tmp_path, port, servers.free_port()):
        done = run(senko, "restore", "-s", "127.0.0.1:%d" % port, tmp_path / "dump")
    assert done.stdout.startswith("100 items stored, "), done
    for n in range(100):
        assert old.ask(b"get key%d\r\n" % n) == b"VALUE key%d 7 %d\r\n%s\r\nEND\r\n" % (n, len(value(n)), value(n))


def test_a_memcached_that_lists_no_keys_is_told(senko, program, tmp_path):
    program("memcached")
    server = servers.start_memcached("-X")
    try:
        done = run(senko, "dump", "-s", server.name, "--to", tmp_path / "dump", code=1)
        assert "does not list its keys: ERROR metadump not allowed" in done.stderr
        assert not list(tmp_path.glob("dump*"))
    finally:
        server.stop()
