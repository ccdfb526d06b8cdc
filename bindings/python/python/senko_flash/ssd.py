# SPDX-License-Identifier: Apache-2.0
"""The simulator of SSDs: what a workload does to the flash, before the drive is bought.

>>> from senko_flash import ssd
>>> load = "zipf:rate=2000,count=20000,pages=100000"
>>> run = ssd.simulate(load, profile="paper-1gb", ftl="page", precondition=90)
>>> run.requests, run.erases, round(run.write_amplification, 2)
(20000, 0, 1.0)
>>> sorted(run.to_dict())
['derived', 'lifetime', 'notes', 'profile', 'report', 'stopped', 'trace', 'workload']

Every number is the one that `senko ssd run --json` prints.
"""

from ._columns import Columns
from ._native import SimulationError
from ._result import Picture, Result
from ._run import Part, Trace, parts, profiles, simulate, trace, traces
from ._sweep import Row, Table, sweep

error = SimulationError

__all__ = [
    "Columns",
    "Part",
    "Picture",
    "Result",
    "Row",
    "Table",
    "Trace",
    "error",
    "parts",
    "profiles",
    "simulate",
    "sweep",
    "trace",
    "traces",
]
