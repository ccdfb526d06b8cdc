# SPDX-License-Identifier: Apache-2.0
"""Cells a second of a sweep on two processes and on one.

Arguments: requests of a cell, rounds. One line of JSON on stdout.
"""

import concurrent.futures
import json
import multiprocessing
import sys
import time

from senko_flash import ssd

REQUESTS, ROUNDS = int(sys.argv[1]), int(sys.argv[2])
GRID = {
    "workload": f"zipf:count={REQUESTS},rate=500,pages=100000",
    "ftl": ["page", "fast"],
    "buffer": ["none", "lru"],
    "precondition": 90,
    "seed": range(10),
}


def rate(processes):
    # A fork of a process with threads may hang.
    spawn = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(processes, mp_context=spawn) as pool:
        # The processes start before the clock does.
        cells = [{"workload": "uniform:count=100", "seed": n} for n in range(8)]
        ssd.sweep(cells, pool, progress=False)
        began = time.perf_counter()
        table = ssd.sweep(GRID, pool, progress=False)
        assert len(table) == 40 and not any(row.error for row in table)
        return 40 / (time.perf_counter() - began)


if __name__ == "__main__":
    pairs = [(rate(2), rate(1)) for _ in range(ROUNDS)]
    print(json.dumps({"figures": {"speedup2": pairs}, "missing": {}}))
