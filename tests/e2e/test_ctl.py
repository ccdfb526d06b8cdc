# SPDX-License-Identifier: Apache-2.0
"""`senko ctl` as root and other users use it: who may, and a drain under clients that go
elsewhere.
"""

import os
import subprocess
import tempfile
import threading

import pytest
from pymemcache.client.base import Client

import servers


def ctl(senko, path, *words, **more):
    command = [senko, "ctl", "--socket", str(path), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, **more)


def test_only_the_servers_user_and_root_may(senko):
    if os.getuid() != 0:
        pytest.skip("it needs root, to become another user")
    # Where others may look, which pytest's folders do not allow.
    with tempfile.TemporaryDirectory(prefix="senko-tests-") as folder:
        os.chmod(folder, 0o755)
        path = os.path.join(folder, "ctl")
        server = servers.start_senko("dram", "-u", "nobody", "--ctl", path)
        try:
            done = ctl(senko, path, "status")
            assert done.returncode == 0 and "serving" in done.stdout, done
            text = "import socket; socket.socket(socket.AF_UNIX).connect(%r)" % path
            done = subprocess.run(["/usr/bin/python3", "-c", text], user="nobody", capture_output=True, text=True, cwd="/", timeout=300)
            assert "PermissionError" in done.stderr, done
        finally:
            server.stop()


def test_clients_leave_a_draining_server_without_an_error(senko, tmp_path):
    """Each client asks until the server that it knows drains, as a load balancer's health check
    says it to a pool, and goes on at the other one."""
    path = tmp_path / "ctl"
    old, new = servers.start_senko("dram", "--ctl", str(path)), servers.start_senko("dram")
    begun, told, errors = threading.Barrier(9), threading.Event(), []

    def work(number):
        try:
            client = Client(old.address, timeout=300)
            client.set("k%d" % number, "v", noreply=False)
            begun.wait()
            while not told.is_set():
                assert client.get("k%d" % number) == b"v"
            client.close()
            client = Client(new.address, timeout=300)
            assert client.set("k%d" % number, "v", noreply=False)
            client.close()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    try:
        for thread in threads:
            thread.start()
        begun.wait()
        drain = subprocess.Popen([senko, "ctl", "--socket", path, "drain", "--within", "1h"], stdout=subprocess.PIPE, text=True)
        assert drain.stdout.readline().startswith("no connection is accepted any more; ")
        assert "draining" in ctl(senko, path, "status").stdout
        told.set()
        for thread in threads:
            thread.join()
        assert errors == []
        assert "; the server stops\n" in drain.communicate(timeout=300)[0] and drain.returncode == 0
        assert old.process.wait(300) == 0
    finally:
        new.stop()
        old.stop()
