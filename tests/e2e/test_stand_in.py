# SPDX-License-Identifier: Apache-2.0
"""senko in the place of Debian's memcached service: the override of contrib/systemd over the unit
that Debian ships.
"""

import os
import pathlib
import re
import shlex
import subprocess
import time

import pytest

import servers
from missing import missing

OVERRIDE = pathlib.Path(__file__).parents[2] / "contrib" / "systemd" / "memcached.service.d" / "senko.conf"
UNIT = pathlib.Path("/lib/systemd/system/memcached.service")
PATIENCE = 300


@pytest.fixture
def unit(senko, tmp_path):
    """Debian's unit with the override, for the binary under test: its file."""
    if not UNIT.is_file():
        missing("Debian's memcached is not installed")
    folder = tmp_path / "memcached.service.d"
    folder.mkdir()
    (tmp_path / "memcached.service").write_text(UNIT.read_text())
    (folder / "senko.conf").write_text(OVERRIDE.read_text().replace("/usr/bin/senko", senko))
    return tmp_path / "memcached.service"


def test_the_override_is_valid(unit, program):
    done = subprocess.run([program("systemd-analyze"), "verify", "--man=no", str(unit)], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0 and not done.stderr, done.stderr


def test_its_command_serves_from_flash(unit, senko, tmp_path):
    text = (unit.parent / "memcached.service.d" / "senko.conf").read_text()
    line = re.search(r"^ExecStart=@(\S+) (.*)$", text, re.MULTILINE)
    words = [word for word in shlex.split(line[2]) if word != "$OPTIONS"]
    port = servers.free_port()
    words[words.index("11211")] = str(port)
    words[words.index("1024")] = "64"
    place = next(n for n, word in enumerate(words) if word.startswith("ext_path="))
    words[place] = "ext_path=%s:64M" % (tmp_path / "flash")
    # The folder is root's here, as is this test.
    words[words.index("memcache")] = "root" if os.getuid() == 0 else str(os.getuid())
    process = subprocess.Popen(words, executable=line[1], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    server = servers.Server("flash", ("127.0.0.1", port), process)
    try:
        end = time.monotonic() + PATIENCE
        while not server.answers():
            assert process.poll() is None and time.monotonic() < end, process.stderr.read()
            time.sleep(0.02)
        assert server.ask(b"version\r\n", b"\r\n").startswith(b"VERSION 1.")
        assert int(server.stats()["extstore_limit_maxbytes"]) > 0
    finally:
        process.terminate()
        assert process.wait(PATIENCE) == 0
