# SPDX-License-Identifier: Apache-2.0
"""`senko serve` at its start and end: what is wrong ends in one clear sentence and a non-zero exit,
and SIGTERM drains.
"""

import json
import os
import signal
import socket
import subprocess
import time

import pytest
from pymemcache.client.base import Client

import servers


def run(command, **more):
    return subprocess.run(command, capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL, **more)


def refused(senko, tmp_path, *options, name=None, port=0):
    """The server does not start and says why, naming `name`, in one sentence (and a hint on usage)
    without a panic.
    """
    answer = run([senko, "serve", "-p", str(port), *options], cwd=str(tmp_path))
    assert answer.returncode not in (0, 101), answer.stderr
    said = answer.stderr.strip()
    assert said and "panicked" not in said and "RUST_BACKTRACE" not in said, said
    assert len(said.splitlines()) <= 8, said
    if name:
        assert name in said, said
    return said


def test_flash_smaller_than_a_region(senko, tmp_path):
    refused(senko, tmp_path, "-m", "256", "--flash", "%s/f:64k" % tmp_path, name="%s/f" % tmp_path)
    assert not (tmp_path / "senko-data").exists()


def test_memory_too_small_for_the_index(senko, tmp_path):
    refused(senko, tmp_path, "-m", "16", "--flash", "%s/f:500g" % tmp_path, name="memory")
    assert not (tmp_path / "f").exists() or (tmp_path / "f").stat().st_blocks == 0


def test_a_folder_that_is_not_there(senko, tmp_path):
    refused(senko, tmp_path, "--flash", "%s/no/such/folder/f:1g" % tmp_path, name="no/such/folder")


def test_a_flash_file_of_another_server(senko, tmp_path):
    server = servers.start_senko("flash")
    try:
        path = os.path.join(server.folder, "flash")
        refused(senko, tmp_path, "-m", "64", "--flash", "%s:1g" % path, name=path)
        # The server that holds it is not harmed.
        client = Client(server.address, timeout=300)
        assert client.set("k", "v", noreply=False)
        server.settle()
        assert client.get("k") == b"v"
        client.close()
    finally:
        server.stop()


def test_a_port_in_use(senko, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        refused(senko, tmp_path, "--no-flash", name=str(port), port=port)


@pytest.mark.parametrize(
    "options",
    [["--flash", "f:zebra"], ["-m", "lots"], ["--io", "magic"], ["-t", "0"], ["--nonsense"], ["-U", "5"], ["--config", "missing.toml"]],
    ids=lambda o: " ".join(o),
)
def test_bad_options(senko, tmp_path, options):
    refused(senko, tmp_path, *options)


def test_options_that_say_opposite_things(senko, tmp_path):
    refused(senko, tmp_path, "--no-flash", "--flash", "f:1g", name="--no-flash")
    assert not (tmp_path / "f").exists()


def test_more_memory_than_the_machine_has_is_warned_about(senko, tmp_path):
    """`-m 100g` on a machine with 23 GiB started without a word."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        # The port is in use, so that nothing of the memory is touched.
        said = refused(senko, tmp_path, "-m", "900g", "--no-flash", port=port)
    assert "warning: --memory is 900 GiB" in said, said


def test_an_unknown_name_in_the_configuration(senko, tmp_path):
    (tmp_path / "c.toml").write_text('memory = "64m"\nflavour = "sweet"\n')
    refused(senko, tmp_path, "--config", "c.toml", name="flavour")


def test_a_configuration_file(senko, tmp_path):
    port = servers.free_port()
    (tmp_path / "c.toml").write_text('memory = "64m"\nport = %d\nno-flash = true\nmax-item-size = "2m"\n' % port)
    process = subprocess.Popen([senko, "serve", "--config", "c.toml"], cwd=str(tmp_path), stdin=subprocess.DEVNULL)
    server = servers.wait_until_up(servers.Server("dram", ("127.0.0.1", port), process))
    client = Client(server.address, timeout=300)
    assert client.stats("settings")[b"item_size_max"] in (2 << 20, b"2097152")
    client.close()
    server.stop()


def test_a_full_disk(senko, tmp_path):
    """A file system too small for the flash file: refused with its name, and nothing half-made is
    left to fill it.
    """
    if os.getuid() != 0:
        pytest.skip("only root can mount a small file system")
    small = tmp_path / "small"
    small.mkdir()
    mounted = run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(small)])
    if mounted.returncode != 0:
        pytest.skip("cannot mount a tmpfs here: " + mounted.stderr.strip())
    try:
        refused(senko, tmp_path, "-m", "64", "--flash", "%s/f:1g" % small, name="small/f")
        refused(senko, tmp_path, "-m", "64", "--data-dir", str(small), name="small")
    finally:
        run(["umount", str(small)])


def test_the_default_start(senko, tmp_path):
    """With no option but the port: a flash file in a data folder that it makes and names; the cap,
    the port and the file are told.
    """
    port = servers.free_port()
    process = subprocess.Popen(
        [senko, "serve", "-p", str(port), "--json"], cwd=str(tmp_path), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    server = servers.wait_until_up(servers.Server("dram", ("127.0.0.1", port), process))
    assert (tmp_path / "senko-data").is_dir()
    client = Client(server.address, timeout=300)
    assert int(client.stats()[b"flash_capacity"]) > 0
    client.close()
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert "senko-data" in err and str(port) in err
    # Said before anything is made.
    assert "made a flash file of" in err.splitlines()[0], err
    lines = [json.loads(line) for line in out.splitlines()]
    assert lines, "no JSON line on stdout"


def test_sigterm_drains(senko):
    """What was sent before SIGTERM is answered."""
    server = servers.start_senko("dram")
    value = b"v" * 100_000
    with socket.create_connection(server.address, timeout=300) as s:
        s.sendall(b"set k 0 0 100000\r\n%s\r\n" % value)
        assert s.recv(100) == b"STORED\r\n"
        s.sendall(b"get k\r\n" * 50)
        time.sleep(0.05)
        server.process.terminate()
        answer = b""
        while part := s.recv(1 << 20):
            answer += part
    assert answer.count(b"END\r\n") == 50
    server.process.wait(300)
    assert server.process.returncode == 0
    server.stop()


def started_again(server):
    """Starts the same command once more. A killed process's ring may keep its sockets and files for
    a moment after its end.
    """
    end = time.monotonic() + 300
    while True:
        process = subprocess.Popen(server.process.args, cwd=server.folder, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        again = servers.Server(server.kind, server.address, process, server.folder)
        while process.poll() is None:
            if again.answers():
                return again
            time.sleep(0.02)
        said = process.stderr.read()
        assert "in use" in said or "holds" in said or "lock" in said, said
        assert time.monotonic() < end, said


def unix_answers(path):
    try:
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(path)
            s.sendall(b"mn\r\n")
            return s.recv(10) == b"MN\r\n"
    except OSError:  # not there yet, or the one before
        return False


def test_a_unix_socket_is_taken_over_at_once_after_a_kill(senko, tmp_path):
    """The ring of a killed process keeps its socket for a moment. And log lines in a file are plain
    text.
    """
    path = str(tmp_path / "socket")
    for last in [False, False, False, True]:
        with open(tmp_path / "log", "w+") as log:
            process = subprocess.Popen([senko, "serve", "-v", "-m", "64", "--no-flash", "-s", path], cwd=str(tmp_path), stdin=subprocess.DEVNULL, stderr=log)
            while not unix_answers(path):
                assert process.poll() is None, (tmp_path / "log").read_text()
                time.sleep(0.01)
            process.send_signal(signal.SIGTERM if last else signal.SIGKILL)
            assert process.wait(300) == (0 if last else -signal.SIGKILL)
    said = (tmp_path / "log").read_text()
    assert "SIGTERM" in said and "\x1b" not in said


def test_a_data_directory_is_made_before_the_flash_file_in_it(senko, tmp_path):
    path = str(tmp_path / "new")
    port = servers.free_port()
    command = [senko, "serve", "-p", str(port), "-m", "64", "--data-dir", path, "--flash", path + "/flash:256m"]
    server = servers.Server("dram", ("127.0.0.1", port), subprocess.Popen(command, cwd=str(tmp_path), stdin=subprocess.DEVNULL))
    servers.wait_until_up(server).stop()


def test_it_comes_back_after_a_kill(senko, tmp_path):
    """Killed and started again on the same file, it serves: what it finds is right or missing,
    never wrong.
    """
    server = servers.start_senko("flash")
    client = Client(server.address, timeout=300)
    values = {"key:%d" % i: os.urandom(i % 3000) for i in range(20_000)}
    client.set_many(values, noreply=True)
    client.version()
    client.close()
    server.process.kill()
    server.process.wait()
    again = started_again(server)
    client = Client(again.address, timeout=300)
    keys = list(values)
    for start in range(0, len(keys), 100):
        for key, value in client.get_many(keys[start : start + 100]).items():
            assert value == values[key]
    assert client.set("k", "v", noreply=False)
    client.close()
    again.stop()
