# SPDX-License-Identifier: Apache-2.0
"""The main job: more data than DRAM holds, stored by a memcached client and read back from flash,
to the byte.

1. 500 MB of items of Facebook's ETC sizes into 64 MiB of memory and 1 GiB of flash; every item is
   read back: no wrong byte, 99.9 % found, and the memory cap holds (peak RSS at most 10 % above
   it).
2. 2 GB into the same flash, the first quarter of it overwriting what is there: no wrong byte, 99 %
   of the last 750 MB found.

SENKO_MAIN_JOB_TIMES multiplies all sizes, for a longer look.
"""

import json
import os
import subprocess
import time

import pytest

import servers
from missing import missing

TIMES = int(os.environ.get("SENKO_MAIN_JOB_TIMES", "1"))
MEMORY = (64 << 20) * TIMES
FLASH = (1 << 30) * TIMES
DATA = 500 * 10**6 * TIMES
ETC = ["--key-size", "etc", "--value-size", "etc", "--verify", "--connections", "64", "--pipeline", "32"]


def peak_rss(pid):
    """Bytes of memory that the process had resident at most."""
    with open("/proc/%d/status" % pid) as status:
        for line in status:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    raise AssertionError("no VmHWM")


class Job:
    def __init__(self, senko):
        self.senko = senko
        self.server = servers.start_senko("flash", memory=MEMORY, flash=FLASH)

    def load(self, *arguments):
        """Runs `senko load`, which fails on a wrong byte; returns its lines."""
        command = [self.senko, "load", "-s", self.server.name, "--json", *ETC, *arguments]
        started = time.monotonic()
        run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=1500)
        lines = [json.loads(line) for line in run.stdout.splitlines()]
        print("%s: %.0f s" % (" ".join(command[1:]), time.monotonic() - started))
        for line in lines:
            print("  " + json.dumps(line)[:600])
        assert run.returncode == 0, run.stderr + run.stdout
        return lines

    def check_memory(self):
        rss = peak_rss(self.server.process.pid)
        print("peak RSS: %.1f MiB of %.1f MiB" % (rss / 2**20, MEMORY / 2**20))
        assert rss <= MEMORY * 1.1, "peak RSS %d is more than 10 %% above the cap %d" % (rss, MEMORY)


@pytest.fixture(scope="module")
def job():
    """One server for both tests, in their order."""
    senko = os.environ.get("SENKO_BIN")
    if not senko:
        missing("SENKO_BIN is not set")
    made = Job(os.path.abspath(senko))
    yield made
    stats = made.server.stats()
    wanted = ("curr_items", "evictions", "flash_items", "flash_hits", "index_bytes", "drops_busy", "reclaim_drops", "tag_drops")
    print({name: value for name, value in stats.items() if name in wanted or name.startswith("flash_")})
    made.server.stop()


def test_half_of_the_flash_comes_back(job):
    data = ["--bytes", str(DATA)]
    job.load("--load", *data)
    job.check_memory()
    job.load("--read-back", "--generation", "1", "--expect-found", "0.999", *data)
    job.check_memory()


def test_twice_the_flash_leaves_the_last(job):
    data = ["--bytes", str(4 * DATA)]
    # The first of these keys are there already: their old values must not come back.
    job.load("--load", "--generation", "2", *data)
    job.check_memory()
    job.load("--read-back", "--generation", "2", "--last-bytes", str(DATA * 3 // 2), "--expect-found", "0.99", *data)
    job.check_memory()
    stats = job.server.stats()
    assert int(stats["flash_items"]) > 0
