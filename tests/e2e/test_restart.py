# SPDX-License-Identifier: Apache-2.0
"""A server with a data directory: killed, stopped, started again."""

import json
import os
import shutil
import signal
import subprocess
import tempfile

import pytest

import servers

KEYS = 60000


def value(key, version):
    return b"%d.%d." % (key, version) * 160


STARTED = []


def start(senko, folder, *options, log=None):
    port = servers.free_port()
    command = [senko, "serve", "-p", str(port), "-m", "64", "-c", "100", "--data-dir", os.path.join(folder, "data")]
    command += ["--flash", os.path.join(folder, "flash") + ":256m", *options]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=log)
    STARTED.append(process)
    return servers.wait_until_up(servers.Server("dram", ("127.0.0.1", port), process))


def fill(server, keys, version):
    sets = (b"set k%d 0 0 %d noreply\r\n%s\r\n" % (key, len(value(key, version)), value(key, version)) for key in keys)
    server.ask(b"".join(sets) + b"mn\r\n", b"MN\r\n")


def present(server, keys, version):
    """The keys that are there; each must have the value of this version."""
    found = []
    for key in keys:
        answer = server.ask(b"get k%d\r\n" % key)
        if answer != b"END\r\n":
            data = value(key, version)
            assert answer == b"VALUE k%d 0 %d\r\n%s\r\nEND\r\n" % (key, len(data), data), key
            found.append(key)
    return found


def end(server, how):
    server.process.send_signal(how)
    code = server.process.wait(180)
    assert code == (0 if how == signal.SIGTERM else -signal.SIGKILL)


@pytest.fixture
def folder():
    with tempfile.TemporaryDirectory(prefix="senko-tests-", dir=os.environ.get("SENKO_TMP")) as path:
        before = set(os.listdir("/dev/shm"))
        yield path
        while STARTED:
            process = STARTED.pop()
            if process.poll() is None:
                process.kill()
                process.wait()
        # Only what a server of this test left there.
        for name in set(os.listdir("/dev/shm")) - before:
            if name.startswith("senko-") and owned(path, name):
                shutil.rmtree(os.path.join("/dev/shm", name))


def owned(folder, name):
    with open(os.path.join(folder, "data", "super.senko"), "rb") as file:
        number = int.from_bytes(file.read(136)[128:], "little")
    return name == "senko-%016x" % number


@pytest.mark.parametrize("threads", [1, 2])
def test_what_is_on_flash_survives_a_kill_and_a_stop(senko, folder, threads):
    options = ["-t", str(threads)]
    server = start(senko, folder, *options)
    fill(server, range(KEYS), 1)
    server.ask(b"".join(b"delete k%d noreply\r\n" % key for key in range(0, KEYS, 10)) + b"mn\r\n", b"MN\r\n")
    fill(server, range(1, 1000), 2)
    for how in [signal.SIGKILL, signal.SIGTERM, signal.SIGKILL]:
        end(server, how)
        server = start(senko, folder, *options)
        assert not present(server, range(0, KEYS, 1000), 1)
        present(server, (key for key in range(1, 1000, 7) if key % 10), 2)
        assert len(present(server, range(1001, KEYS, 201), 1)) > KEYS // 201 // 4
    server.flush()
    end(server, signal.SIGKILL)
    server = start(senko, folder, *options)
    assert not present(server, range(1, KEYS, 301), 1)
    end(server, signal.SIGTERM)


def test_a_stop_keeps_dram_if_asked_for(senko, folder):
    server = start(senko, folder, "--keep-dram")
    fill(server, range(KEYS // 2), 1)
    before = present(server, range(0, KEYS // 2, 101), 1)
    assert [name for name in os.listdir("/dev/shm") if owned(folder, name)], "it has shared memory while it runs"
    end(server, signal.SIGTERM)
    server = start(senko, folder, "--keep-dram")
    assert present(server, range(0, KEYS // 2, 101), 1) == before
    end(server, signal.SIGTERM)
    assert not [name for name in os.listdir("/dev/shm") if name.startswith("senko-") and owned(folder, name)]


@pytest.mark.parametrize("form", ["text", "json"])
def test_the_log_tells_what_came_back_and_what_is_kept(senko, folder, form):
    """Whoever looked at the log after a restart could not tell whether the cache was warm."""
    said = []
    for _ in range(2):
        with open(os.path.join(folder, "log"), "w+") as log:
            server = start(senko, folder, "--keep-dram", "-v", "--log-format", form, log=log)
            if not said:
                fill(server, range(10), 1)
            assert present(server, range(10), 1) == list(range(10))
            end(server, signal.SIGTERM)
            log.seek(0)
            said.append(log.read())
    assert len(said) == 2
    if form == "text":
        data = os.path.join(folder, "data")
        assert f"0 items on flash and 10 of DRAM are kept in {data}" in said[0], said[0]
        assert f"back       0 items on flash, 10 in DRAM, from {data}\n" in said[1], said[1]
        assert "start      took " in said[1] and "SIGTERM" in said[1], said[1]
        return
    lines = [json.loads(line) for line in said[1].splitlines()]
    begin = next(line for line in lines if line.get("event") == "start")
    stop = next(line for line in lines if line.get("event") == "stop")
    assert begin["warm"]["dram_items"] == 10 and begin["seconds"] >= 0
    assert stop["kept"] == {"flash_items": 0, "dram_items": 10} and stop["clean"]
    assert any("SIGTERM" in line.get("message", "") and line["level"] == "INFO" for line in lines)
