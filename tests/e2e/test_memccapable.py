# SPDX-License-Identifier: Apache-2.0
"""memccapable, libmemcached's own check of a server's protocols: whole, ascii and binary, on DRAM and on flash."""

import re
import subprocess

import pytest

import servers

ASCII_TESTS = 27
BINARY_TESTS = 27


@pytest.mark.parametrize("kind", ["dram", "flash", "memcached"])
@pytest.mark.parametrize("protocol, least", [("-a", ASCII_TESTS), ("-b", BINARY_TESTS)], ids=["ascii", "binary"])
def test_memccapable(senko, program, kind, protocol, least):
    memccapable = program("memccapable")
    if kind == "memcached":
        program("memcached")
    server = servers.start_memcached() if kind == "memcached" else servers.start_senko(kind)
    try:
        host, port = server.address
        run = subprocess.run(
            [memccapable, "-h", host, "-p", str(port), "-t", "20", "-v", protocol], capture_output=True, text=True, timeout=300
        )
        output = run.stdout + run.stderr
        failed = [line for line in output.splitlines() if "[FAIL]" in line]
        passed = re.findall(r"\[pass\]", output)
        assert not failed, output
        assert run.returncode == 0, output
        assert len(passed) >= least, output
    finally:
        server.stop()
