# SPDX-License-Identifier: Apache-2.0
"""Passwords as an operator gives them: files, SIGHUP, an exempt listener; clients that log in."""

import os
import signal
import socket
import subprocess
import time

import bmemcached
import pytest
from bmemcached.exceptions import MemcachedException
from pymemcache.client.base import Client
from pymemcache.exceptions import MemcacheClientError

import servers

SECRET = "correct-horse"


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


class Running:
    """A server with an address that asks for a password and one that does not."""

    def __init__(self, program, folder, *options, env=None, listen="127.0.0.1", name="senko"):
        self.asks = ("127.0.0.1", servers.free_port())
        self.exempt = ("127.0.0.2", servers.free_port())
        self.log = folder / (name + ".log")
        where = "%s:%d,noauth:%s:%d" % (listen, self.asks[1], *self.exempt)
        self.process = subprocess.Popen(
            [*program, "-l", where, *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=open(self.log, "w"),
            env={**os.environ, **(env or {})},
            cwd=folder,
        )
        wait_for(lambda: self.process.poll() is not None or connects(self.asks[1]), "the start")
        assert self.process.poll() is None, self.log.read_text()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(300)
        assert SECRET not in self.log.read_text()


def login(address, password, user="shop"):
    client = Client(address, timeout=300)
    try:
        client.set("any", "%s %s" % (user, password), noreply=False)
        return client
    except MemcacheClientError:
        client.close()
        return None


@pytest.fixture(params=["dram", "flash"])
def tier(request, tmp_path):
    if request.param == "dram":
        return ["--no-flash", "-m", "64"]
    return ["--flash", "%s:128m" % (tmp_path / "flash"), "-m", "64"]


def test_pymemcache_logs_in_and_sighup_changes_the_password(senko, tmp_path, tier):
    users = tmp_path / "users"
    users.write_text("shop:%s\n" % SECRET)
    with Running([senko, "serve"], tmp_path, "--auth-file", str(users), "-vvv", *tier) as server:
        with pytest.raises(MemcacheClientError, match="unauthenticated"):
            Client(server.asks, timeout=300).get("k")
        assert login(server.asks, "wrong") is None
        client = login(server.asks, SECRET)
        assert client.set("k", b"v" * 5000, noreply=False)
        assert client.get("k") == b"v" * 5000
        assert Client(server.exempt, timeout=300).get("k") == b"v" * 5000
        users.write_text("no colon\n")
        server.process.send_signal(signal.SIGHUP)
        wait_for(lambda: "the users before stay" in server.log.read_text(), "the refusal")
        assert login(server.asks, SECRET)
        users.write_text("shop:%s-2\n" % SECRET)
        server.process.send_signal(signal.SIGHUP)
        wait_for(lambda: login(server.asks, SECRET) is None, "the reload")
        assert login(server.asks, SECRET + "-2")
        assert client.get("k") == b"v" * 5000


def test_bmemcached_logs_in_by_sasl_plain(senko, tmp_path, tier):
    (tmp_path / "sasl").write_text("shop:%s\n" % SECRET)
    with Running([senko, "serve"], tmp_path, "--sasl-file", "sasl", "-vvv", *tier) as server:
        name = "%s:%d" % server.asks
        client = bmemcached.Client([name], "shop", SECRET, socket_timeout=300)
        assert client.set("k", "value") and client.get("k") == "value"
        with pytest.raises(MemcachedException, match="Auth failure"):
            bmemcached.Client([name], "shop", "wrong", socket_timeout=300).get("k")
        stats = client.stats()[name]
        assert (int(stats["auth_cmds"]), int(stats["auth_errors"])) == (2, 1)


def test_the_drop_in_takes_its_options(senko, tmp_path):
    link = tmp_path / "memcached"
    link.symlink_to(senko)
    (tmp_path / "users").write_text("shop:%s\n" % SECRET)
    user = ["-u", "root"] if os.getuid() == 0 else []
    with Running([str(link)], tmp_path, "-Y", "users", *user, name="y") as server:
        assert login(server.asks, SECRET) and login(server.asks, "wrong") is None
    env = {"MEMCACHED_SASL_PWDB": "users"}
    with Running([str(link)], tmp_path, "-S", *user, env=env, name="s") as server:
        client = bmemcached.Client(["%s:%d" % server.asks], "shop", SECRET, socket_timeout=300)
        assert client.set("k", "value")


@pytest.mark.parametrize("asks", [False, True])
def test_a_listener_that_all_can_reach_is_warned_about(senko, tmp_path, asks):
    (tmp_path / "users").write_text("shop:%s\n" % SECRET)
    port = servers.free_port()
    options = ["--auth-file", "users"] if asks else []
    process = subprocess.Popen(
        [senko, "serve", "--no-flash", "-m", "64", "-l", "0.0.0.0", "-p", str(port), *options],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    )
    wait_for(lambda: process.poll() is not None or connects(port), "the start")
    process.terminate()
    warned = "can read and change every item" in process.communicate(timeout=300)[1]
    assert warned != asks
