# SPDX-License-Identifier: Apache-2.0
"""memccapable, libmemcached's own check of a server's protocols: whole, ascii and binary, on DRAM
and on flash."""

import re
import subprocess

import pytest

import servers

ASCII_TESTS = 27
BINARY_TESTS = 27
# It wants `delete k 10` to be refused. memcached 1.6.45 does not look at the 10, and fails these
# two as well.
NOT_AS_1_6_45 = {"ascii delete", "ascii delete noreply"}


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
            [memccapable, "-h", host, "-p", str(port), "-t", "300", protocol],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=1500,
        )
        failed = set(re.findall(r"^(.*?) +\[FAIL\]", run.stdout, re.MULTILINE))
        wanted = NOT_AS_1_6_45 if protocol == "-a" and kind != "memcached" else set()
        assert failed == wanted, run.stdout
        assert (run.returncode == 0) == (not wanted), run.stdout
        assert len(re.findall(r"\[pass\]", run.stdout)) >= least - len(wanted), run.stdout
    finally:
        server.stop()
