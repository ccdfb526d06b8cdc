# SPDX-License-Identifier: Apache-2.0
"""Seconds of a run of the simulator in Python and as a command.

Arguments: the program senko, the workload, rounds. One line of JSON on stdout.
"""

import json
import subprocess
import sys
import time

from senko_flash import ssd

SENKO, WORKLOAD, ROUNDS = sys.argv[1], sys.argv[2], int(sys.argv[3])


def timed(work):
    began = time.perf_counter()
    found = work()
    return time.perf_counter() - began, found


def command():
    words = [SENKO, "ssd", "run", WORKLOAD, "--ftl", "page", "--precondition", "90", "--json"]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, check=True)
    return json.loads(done.stdout)


pairs = []
for _ in range(ROUNDS):
    ours, result = timed(lambda: ssd.simulate(WORKLOAD, ftl="page", precondition=90))
    theirs, told = timed(command)
    assert result.to_dict() == told, "the command found another result"
    pairs.append((ours, theirs))
print(json.dumps({"figures": {"overhead": pairs}, "missing": {}}))
