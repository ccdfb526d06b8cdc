# SPDX-License-Identifier: Apache-2.0
"""A device that fails under a running server, made of loop devices and small file systems: full,
gone, frozen. The server goes on, says what it found in `stats` and in one line of the log, and
takes the device back. (`crates/server/tests/it/faults.rs` has each fault without needing root.)"""

import itertools
import os
import signal
import subprocess
import threading
import time

import pytest

import servers
from killing.load import Wire
from killing.victims import comes_back, forget, memory_of


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL)


class Box:
    """Mounts and loop devices that go away."""

    def __init__(self, folder):
        self.folder = folder
        self.undo = []

    def must(self, *command):
        done = run(*command)
        if done.returncode != 0:
            self.close()
            pytest.skip("this needs root and loop devices: %s: %s" % (" ".join(command), done.stderr.strip()))
        return done.stdout.strip()

    def tmpfs(self, size):
        place = self.folder / "tmpfs"
        place.mkdir()
        self.must("mount", "-t", "tmpfs", "-o", "size=%d" % size, "tmpfs", str(place))
        self.undo.append(("umount", "-l", str(place)))
        return place

    def sparse(self, path, size):
        with open(path, "wb") as file:
            file.truncate(size)
        return str(path)

    def loop(self, path):
        device = self.must("losetup", "--find", "--show", path)
        self.undo.append(("losetup", "-d", device))
        return device

    def resize(self, device, path, size):
        """Gives the file under a loop device another size, and the device too. A write that was
        under way makes the file longer again.
        """
        name = "/sys/class/block/%s/size" % os.path.basename(device)
        for _ in range(1000):
            os.truncate(path, size)
            self.must("losetup", "-c", device)
            with open(name) as file:
                if int(file.read()) * 512 == size:
                    return
        raise AssertionError("%s does not get %d bytes" % (device, size))

    def ext4(self, device):
        place = self.folder / "ext4"
        place.mkdir()
        self.must("mkfs.ext4", "-q", "-F", device)
        self.must("mount", device, str(place))
        self.undo.append(("umount", "-l", str(place)))
        return place

    def close(self):
        while self.undo:
            run(*self.undo.pop())


@pytest.fixture
def box(tmp_path):
    box = Box(tmp_path)
    yield box
    box.close()


class Served:
    """A senko on this flash, with its log kept."""

    def __init__(self, senko, box, flash, size, *options):
        self.said = box.folder / "log"
        port = servers.free_port()
        command = [senko, "serve", "-p", str(port), "--memory", "48m", "--region", "1m", "--flash", "%s:%d" % (flash, size), *options]
        with open(self.said, "ab") as log:
            # It gives a device up as soon as it does outside of tests.
            env = {**os.environ, "SENKO_TEST_PATIENCE": "1"}
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env)
        self.server = servers.wait_until_up(servers.Server("flash", ("127.0.0.1", port), process))
        self.stored = 0

    def store(self, count):
        """Stores values under keys that were never there."""
        wire = Wire(self.server.address)
        for _ in range(0, count, 100):
            keys = range(self.stored, self.stored + 100)
            self.stored += 100
            wire.send(b"".join(b"set k%d 0 0 4000\r\n%s\r\n" % (n, value(n)) for n in keys))
            assert all(wire.line() == b"STORED" for _ in keys)
        wire.close()

    def read(self, keys):
        """How many of these are there; none is wrong."""
        wire = Wire(self.server.address)
        found = 0
        for n in keys:
            wire.send(b"get k%d\r\n" % n)
            for key, (data, _) in wire.values().items():
                assert data == value(n), key
                found += 1
        wire.close()
        return found

    def stat(self, name):
        return int(self.server.stats()[name])

    def until(self, name, wanted, each=lambda: None):
        end = time.monotonic() + 300
        while self.stat(name) != wanted:
            assert time.monotonic() < end, "%s stays %d" % (name, self.stat(name))
            each()
            time.sleep(0.05)

    def cpu(self):
        with open("/proc/%d/stat" % self.server.process.pid) as stat:
            words = stat.read().rsplit(")", 1)[1].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    def until_said(self, word):
        end = time.monotonic() + 300
        while not self.lines(word):
            assert time.monotonic() < end, self.said.read_text()
            time.sleep(0.05)

    def lines(self, word):
        return [line for line in self.said.read_text().splitlines() if word in line]

    def works(self):
        """DRAM, whatever the device does."""
        wire = Wire(self.server.address)
        for n in range(50):
            wire.send(b"set d%d 0 0 1\r\nx\r\nget d%d\r\n" % (n, n))
            assert wire.line() == b"STORED"
            assert len(wire.values()) == 1
        wire.close()


def value(n):
    return (b"%d," % (n * 2654435761 % 2**32) * 2000)[:4000]


@pytest.fixture
def serve(senko, box):
    started = []

    def start(flash, size, *options):
        started.append(Served(senko, box, flash, size, *options))
        return started[-1]

    yield start
    for served in started:
        if served.server.process.poll() is None:
            served.server.process.send_signal(signal.SIGKILL)
            served.server.process.wait()


def test_a_thin_device_fills_up(box, serve):
    """A device that promises more than it has: writes fail, reads go on; with more room it is used
    again.
    """
    place = box.tmpfs(64 << 20)
    device = box.loop(box.sparse(place / "thin", 512 << 20))
    served = serve(device, 512 << 20)
    served.until("flash_devices_read_only", 1, lambda: served.store(1000))
    first = served.stat("flash_write_errors")
    served.store(20_000)
    served.works()
    assert served.stat("flash_write_errors") <= first + 12, "it is tried now and then, not by every item"
    assert served.stat("flash_drops_error") > 1000
    assert served.read(range(0, 4000, 10)) > 200
    assert len(served.lines("accepts no items")) == 1, served.said.read_text()
    run("mount", "-o", "remount,size=%d" % (600 << 20), str(place))
    served.until("flash_devices_read_only", 0)
    before = served.stat("flash_demotions")
    served.store(20_000)
    assert served.stat("flash_demotions") > before + 5000
    assert len(served.lines("in use again")) >= 1


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_coming_back_from_a_device_that_is_full(senko, box, serve, how):
    """Failed writes before an end: what they were to hold is missing afterwards, and everything
    else is right.
    """
    if not comes_back(senko):
        pytest.skip("this senko starts with empty flash")
    place = box.tmpfs(96 << 20)
    device = box.loop(box.sparse(place / "thin", 512 << 20))
    data = "--data-dir=%s" % (box.folder / "data")
    served = serve(device, 512 << 20, data)
    served.until("flash_devices_read_only", 1, lambda: served.store(1000))
    served.store(5000)
    process = served.server.process
    memory = memory_of(process)
    process.send_signal(how)
    process.wait(300)
    again = serve(device, 512 << 20, data)
    memory |= memory_of(again.server.process)
    try:
        assert again.read(range(0, 4000, 10)) > 200, again.said.read_text()
        again.read(range(4000, served.stored, 7))
        again.works()
        again.stored = served.stored
        again.until("flash_devices_read_only", 1, lambda: again.store(1000))
    finally:
        again.server.process.kill()
        again.server.process.wait()
        forget(memory)


def test_a_device_goes_away(box, serve):
    """What is under the device is cut off: everything fails, then it is there again."""
    path = box.sparse(box.folder / "disk", 256 << 20)
    os.posix_fallocate(os.open(path, os.O_RDWR), 0, 256 << 20)
    device = box.loop(path)
    served = serve(device, 256 << 20)
    served.store(20_000)
    box.resize(device, path, 0)
    # Other keys each time: one whose read failed is forgotten, and asks the device for nothing any
    # more.
    first = itertools.count()
    served.until("flash_devices_out", 1, lambda: (served.read(range(next(first) % 40 + 10, 20_000, 50)), served.store(200)))
    served.works()
    assert served.read(range(0, 10_000, 50)) == 0
    errors = served.stat("flash_read_errors")
    served.read(range(1, 10_000, 50))
    assert served.stat("flash_read_errors") == errors, "it is not asked any more"
    assert len(served.lines("out of use")) == 1, served.said.read_text()
    box.resize(device, path, 256 << 20)
    served.until("flash_devices_out", 0)
    # Its items are gone, and reported so: no wrong byte.
    served.read(range(2, 10_000, 50))
    served.store(20_000)
    assert served.read(range(30_000, 38_000, 10)) > 400


def test_a_file_system_that_is_frozen_for_a_moment(box, serve):
    """Nothing is lost but time, and it is told. A busy machine may make another second of the
    moment, and that is not waited out, or begin nothing in it: then there is another moment."""
    device = box.loop(box.sparse(box.folder / "disk", 400 << 20))
    place = box.ext4(device)
    served = serve(place / "flash", 256 << 20)
    end = time.monotonic() + 300
    while True:
        served.store(15_000)
        latest = served.stored
        lost = served.stat("flash_drops_busy"), served.stat("flash_device_outages")
        pauses = served.stat("flash_device_pauses")
        box.must("fsfreeze", "-f", str(place))
        try:
            writer = threading.Thread(target=served.store, args=(10_000,))
            writer.start()
            time.sleep(0.3)
            found = served.read(range(latest - 10, latest))
            time.sleep(0.2)
        finally:
            run("fsfreeze", "-u", str(place))
        writer.join()
        was_a_moment = lost == (served.stat("flash_drops_busy"), served.stat("flash_device_outages"))
        if was_a_moment and served.stat("flash_device_pauses") > pauses:
            break
        assert time.monotonic() < end, "each time DRAM waited for the device, or there was no pause"
        served.until("flash_devices_out", 0)
    assert found == 10, "DRAM does not wait"
    served.until_said("paused")
    assert served.read(range(latest - 1000, latest, 10)) == 100


def test_a_frozen_file_system(box, serve):
    """Writes stall for as long as the file system is frozen; the kernel means it."""
    device = box.loop(box.sparse(box.folder / "disk", 400 << 20))
    place = box.ext4(device)
    served = serve(place / "flash", 256 << 20)
    served.store(15_000)
    assert served.read(range(0, 5000, 10)) > 300
    box.must("fsfreeze", "-f", str(place))
    try:
        served.until("flash_devices_out", 1, lambda: served.store(2000))
        served.works()
        served.store(20_000)
        assert len(served.lines("does not answer")) == 1, served.said.read_text()
        # It comes to rest, sooner or later; a worker that spins does not.
        spent, end = 1, time.monotonic() + 300
        while spent >= 0.5:
            assert time.monotonic() < end, "a worker spins: %.2f of a core while nothing happens" % spent
            before, began = served.cpu(), time.monotonic()
            time.sleep(1)
            spent = (served.cpu() - before) / (time.monotonic() - began)
    finally:
        run("fsfreeze", "-u", str(place))
    served.until("flash_devices_out", 0)
    assert served.read(range(0, 5000, 10)) > 200
    before = served.stat("flash_demotions")
    served.store(20_000)
    assert served.stat("flash_demotions") > before + 5000


def test_a_mounted_device_is_refused(senko, box):
    """Its file system is not waited for, as a killed server is, and not overwritten."""
    device = box.loop(box.sparse(box.folder / "disk", 64 << 20))
    place = box.ext4(device)
    (place / "file").write_text("there")
    done = run(senko, "serve", "-p", str(servers.free_port()), "--memory", "48m", "--flash", "%s:32m" % device)
    assert done.returncode == 1, done
    assert done.stderr == "senko: block device %s is mounted at %s\n" % (device, place)
    assert (place / "file").read_text() == "there"
