# SPDX-License-Identifier: Apache-2.0
"""Runs of the simulator, traces, and what can be named."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from . import _native
from ._columns import Columns
from ._result import Picture, Result, html_rows, shown

# The settings of a run beside the workload, with what is taken where nothing is said.
READING: dict[str, Any] = {"format": "auto", "fold": None, "limit": None, "rounds": 1}
DRIVE: dict[str, Any] = {
    "profile": "nvme-512gb",
    "scale": None,
    "ftl": None,
    "buffer": None,
    "buffer_size": None,
    "drives": 1,
    "stripe": "64k",
    "precondition": 0.0,
    "closed": None,
    "speed": 1.0,
    "wa": False,
    "check": False,
    "seed": 1,
    "drain": False,
}


def simulate(
    workload: str | os.PathLike[str] | Iterable[Sequence[Any]],
    *,
    profile: str | os.PathLike[str] = "nvme-512gb",
    scale: int | None = None,
    ftl: str | None = None,
    buffer: str | None = None,
    buffer_size: int | str | None = None,
    format: str = "auto",
    fold: str | None = None,
    limit: int | None = None,
    rounds: int = 1,
    drives: int = 1,
    stripe: int | str = "64k",
    precondition: float | str = 0.0,
    closed: int | None = None,
    speed: float = 1.0,
    wa: bool = False,
    check: bool = False,
    seed: int = 1,
    drain: bool = False,
) -> Result:
    """Runs a workload on a simulated drive. The options are those of `senko ssd run`.

    The workload is a trace's file, or a generator such as "zipf:rate=2000,count=1e6". Or it is an
    iterable of requests `(time, op, offset, bytes)`, or `(time, op, offset, bytes, device)`. The
    time is in seconds, counts from the first request's, and never goes back. `op` is "read",
    "write", "trim" or "flush", the first letter, or the number that `Trace.requests()` has. A
    flush has offset 0 and 0 bytes. The iterable is read to its end before the run; a request takes
    48 bytes. An error about a request names its number, counted from 0.

    `scale` simulates one part in so many of the drive, 1 is all of it. `ftl` and `buffer` take the
    place of the profile's. `precondition` fills so many percent of the
    drive before, or overwrites it at random ("random:2x"), or does that until it is "steady".
    `closed` keeps so many requests under way, whatever their times. `wa` counts only, without
    times. `drain` writes out what the buffer holds at the end.

    >>> run = simulate("seq:count=1000,size=64k", buffer="lru", buffer_size="1m", wa=True)
    >>> run.host_bytes_written, run.keeps_up
    (65536000, True)
    >>> run = simulate((n / 100, "write", n % 500 * 4096, 4096) for n in range(2000))
    >>> run.requests, run.host_bytes_written
    (2000, 8192000)
    """
    options = dict(locals())
    return run(options)


def run(options: Mapping[str, Any], stop: _native.Stop | None = None) -> Result:
    """`simulate` with its arguments as a mapping. `stop.set()` ends it."""
    outcome = outcome_of(options, stop)
    for warning in outcome["trace"]["warnings"]:
        warnings.warn(f"{outcome['workload']}: {warning}", stacklevel=3)
    return Result(outcome)


def outcome_of(options: Mapping[str, Any], stop: _native.Stop | None = None) -> dict[str, Any]:
    """What `run` makes a result of, without its warnings."""
    chosen = {**READING, **DRIVE, **options}
    if "workload" not in chosen:
        raise TypeError("a run needs a workload: a trace's file, a generator or requests")
    workload = _workload(chosen.pop("workload"), chosen["format"])
    if isinstance(chosen["profile"], os.PathLike):
        chosen["profile"] = os.fspath(chosen["profile"])
    reading = {name: chosen.pop(name) for name in READING}
    drive = {name: chosen.pop(name) for name in DRIVE}
    if chosen:
        names = ", ".join(["workload", *READING, *DRIVE])
        raise TypeError(f"there is no option {', '.join(map(repr, chosen))}; there are {names}")
    outcome: dict[str, Any] = json.loads(_native.simulate(workload, reading, drive, stop))
    return outcome


def _workload(given: Any, format: str) -> str | _native.Requests:
    if isinstance(given, (str, os.PathLike)):
        return os.fspath(given)
    if format != "auto":
        raise TypeError("a format is given for a trace's file, not for requests")
    if not isinstance(given, Iterable):
        kind = type(given).__name__
        raise TypeError(f"a workload is a trace's file, a generator or requests, not {kind}")
    return _native.Requests(given)


class Trace:
    """What a workload is. `trace` makes it. `summary` is what `senko ssd trace info --json` prints.

    >>> trace("uniform:count=1000,writes=0.25").summary["mix"]["reads"] > 700
    True
    >>> load = trace("seq:count=3,size=4096")
    >>> load.requests().offset.tolist(), load.picture().svg[:4]
    ([0, 4096, 8192], '<svg')
    """

    def __init__(
        self, workload: str, reading: dict[str, Any], name: str, summary: dict[str, Any]
    ) -> None:
        self.workload = workload
        self.name = name
        self.summary = summary
        self._reading = reading

    def requests(self) -> Columns:
        """All requests: time_ns, device, op, offset, bytes.

        An op is 0 for a read, 1 for a write, 2 for a trim, 3 for a flush.
        """
        columns = _native.trace_columns(self.workload, self._reading)
        kinds: dict[str, Literal["Q", "I", "B"]] = {
            "time_ns": "Q",
            "device": "I",
            "op": "B",
            "offset": "Q",
            "bytes": "Q",
        }
        views = zip(kinds.items(), columns)
        return Columns({name: memoryview(column).cast(kind) for (name, kind), column in views})

    def picture(self) -> Picture:
        """The requests over time, reads and writes apart."""
        return Picture(_native.draw_requests(self.workload, self._reading))

    def __repr__(self) -> str:
        mix = self.summary["mix"]
        return f"<{self.name}: {mix['reads']} reads, {mix['writes']} writes>"

    def _repr_html_(self) -> str:
        mix = self.summary["mix"]
        rows = html_rows((name, shown(value)) for name, value in mix.items())
        return f"<table>{rows}</table>{self.picture().svg}"


def trace(
    workload: str | os.PathLike[str],
    *,
    format: str = "auto",
    fold: str | None = None,
    limit: int | None = None,
    rounds: int = 1,
) -> Trace:
    """Reads a trace's file, or makes the requests of a generator, and says what they are.

    >>> trace("uniform:count=1000,writes=1", limit=10).summary["mix"]["writes"]
    10
    """
    reading = {"format": format, "fold": fold, "limit": limit, "rounds": rounds}
    path = os.fspath(workload)
    name, summary = _native.trace_summary(path, reading)
    found = Trace(path, reading, name, json.loads(summary))
    for warning in found.summary["warnings"]:
        warnings.warn(f"{name}: {warning}", stacklevel=2)
    return found


class Part(NamedTuple):
    """Something that can be named.

    >>> [part.name for part in parts() if part.kind == "fold"][0]
    'none'
    """

    kind: str
    name: str
    about: str
    options: list[str]


def parts() -> list[Part]:
    """All that can be named: profiles, layers, buffers, generators, folds and trace formats.

    >>> [part.name for part in parts() if part.kind == "fold"]
    ['none', 'modulo', 'compact']
    """
    return [Part(**part) for part in json.loads(_native.parts())]


def profiles() -> list[Part]:
    """The profiles of drives that come with the simulator.

    >>> [profile.name for profile in profiles()][0]
    'nvme-512gb'
    """
    return [part for part in parts() if part.kind == "profile"]


def traces() -> list[Part]:
    """What a workload can be: the formats of traces that are read, and the generators.

    >>> [part.name for part in traces() if part.kind == "load"]
    ['uniform', 'zipf', 'seq', 'hotcold']
    """
    return [part for part in parts() if part.kind in ("format", "load")]
