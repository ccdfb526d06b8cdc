# SPDX-License-Identifier: Apache-2.0
"""What a run of the simulator found, as an object: figures, columns, pictures."""

from __future__ import annotations

import html
import json
import os
from array import array
from collections.abc import Iterable
from typing import Any

from . import _native
from ._columns import Columns

# A result's attributes: where in `to_dict()` each one lies.
_FIGURES: dict[str, tuple[str, ...]] = {
    "workload": ("workload",),
    "profile": ("profile",),
    "ftl": ("report", "ftl"),
    "buffer": ("report", "buffer"),
    "requests": ("report", "all", "count"),
    "seconds": ("report", "seconds"),
    "mean_us": ("report", "all", "mean_us"),
    "p50_us": ("report", "all", "p50_us"),
    "p99_us": ("report", "all", "p99_us"),
    "p999_us": ("report", "all", "p999_us"),
    "max_us": ("report", "all", "max_us"),
    "read_mean_us": ("report", "reads", "mean_us"),
    "write_mean_us": ("report", "writes", "mean_us"),
    "requests_per_second": ("derived", "requests_per_second"),
    "keeps_up": ("derived", "keeps_up"),
    "host_bytes_written": ("derived", "host_bytes_written"),
    "host_bytes_read": ("derived", "host_bytes_read"),
    "flash_bytes_programmed": ("derived", "flash_bytes_programmed"),
    "erases": ("derived", "erases"),
    "write_amplification": ("derived", "write_amplification"),
    "page_write_amplification": ("derived", "page_write_amplification"),
    "flash_write_amplification": ("derived", "flash_write_amplification"),
    "write_hit_ratio": ("derived", "write_hit_ratio"),
    "read_hit_ratio": ("derived", "read_hit_ratio"),
    "mapping_bytes": ("derived", "mapping_bytes"),
    "wear_mean": ("report", "wear", "mean"),
    "wear_deviation": ("report", "wear", "deviation"),
    "years": ("lifetime", "years"),
    "years_as_worn": ("lifetime", "years_as_worn"),
    "host_bytes_in_life": ("lifetime", "host_bytes"),
    "dwpd_5_years": ("lifetime", "dwpd_5_years"),
}


class Picture:
    """A picture as SVG, which notebooks show.

    >>> import os, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> picture = Picture("<svg/>")
    >>> picture.save(os.path.join(folder.name, "picture.svg"))
    >>> picture.svg, os.listdir(folder.name)
    ('<svg/>', ['picture.svg'])
    >>> folder.cleanup()
    """

    def __init__(self, svg: str) -> None:
        self.svg = svg

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the picture into a file."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.svg)

    def _repr_svg_(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        return f"<picture, {len(self.svg)} characters of SVG>"


class Result:
    """What a run found. `simulate` makes it.

    The attributes are the figures that are asked for most; `to_dict()` has all of them. `series`
    has the response times over virtual time, and `wear` how many blocks were erased how often.

    >>> from senko_flash import ssd
    >>> run = ssd.simulate("uniform:count=1000", profile="paper-1gb", ftl="page")
    >>> run.requests, run.figures()["requests"], run.to_dict()["report"]["all"]["count"]
    (1000, 1000, 1000)
    >>> sum(run.series["count"].tolist()), run.picture("erases").svg[:4]
    (1000, '<svg')
    """

    workload: str
    profile: str
    ftl: str
    buffer: str
    requests: int
    seconds: float
    mean_us: float
    p50_us: float
    p99_us: float
    p999_us: float
    max_us: float
    read_mean_us: float
    write_mean_us: float
    requests_per_second: float | None
    keeps_up: bool
    host_bytes_written: int
    host_bytes_read: int
    flash_bytes_programmed: int
    erases: int
    write_amplification: float | None
    page_write_amplification: float | None
    flash_write_amplification: float | None
    write_hit_ratio: float | None
    read_hit_ratio: float | None
    mapping_bytes: int
    wear_mean: float
    wear_deviation: float
    years: float | None
    years_as_worn: float | None
    host_bytes_in_life: float | None
    dwpd_5_years: float | None
    series: Columns
    wear: Columns

    def __init__(self, outcome: dict[str, Any]) -> None:
        self._outcome = outcome
        for name, path in _FIGURES.items():
            value: Any = outcome
            for step in path:
                value = None if value is None else value[step]
            setattr(self, name, value)
        report = outcome["report"]
        points, blocks = report["series"], report["wear"]["histogram"]
        self.series = _columns(points, {"second": "d", "count": "Q", "mean_us": "d", "max_us": "d"})
        self.wear = _columns(blocks, {"from": "I", "to": "I", "blocks": "I"})

    def to_dict(self) -> dict[str, Any]:
        """All that `senko ssd run --json` prints."""
        return self._outcome

    def figures(self) -> dict[str, Any]:
        """The attributes as a dictionary: a row of a table."""
        return {name: getattr(self, name) for name in _FIGURES}

    def to_pandas(self) -> Any:
        """The response times over virtual time as a pandas.DataFrame."""
        return self.series.to_pandas()

    def to_arrow(self) -> Any:
        """The response times over virtual time as a pyarrow.Table."""
        return self.series.to_arrow()

    def plot(self, what: str = "responses", *, ax: Any = None) -> Any:
        """Draws response times over time ("responses"), or how often blocks were erased ("erases").

        If matplotlib is installed it returns the axes, which are `ax` if that is given. Otherwise
        it returns a Picture.
        """
        _check(what)
        try:
            from matplotlib import pyplot
        except ImportError:
            return self.picture(what)
        axes = pyplot.subplots()[1] if ax is None else ax
        axes.set_title(self._title())
        if what == "erases":
            widths = [to - first for first, to in zip(self.wear["from"], self.wear["to"])]
            axes.bar(self.wear["from"], self.wear["blocks"], width=widths, align="edge")
            axes.set(xlabel="erases of a block", ylabel="blocks")
            return axes
        # Seconds without a request are gaps.
        seen = [count > 0 for count in self.series["count"]]
        for name, label in (("mean_us", "mean"), ("max_us", "longest")):
            pairs = zip(self.series[name], seen)
            values = [us if there else float("nan") for us, there in pairs]
            axes.plot(self.series["second"], values, label=label)
        axes.set(xlabel="time (s)", ylabel="response time (µs)", yscale="log")
        axes.legend()
        return axes

    def picture(self, what: str = "responses") -> Picture:
        """The same as SVG, without matplotlib."""
        _check(what)
        report = self._outcome["report"]
        if what == "erases":
            return Picture(_native.draw_erases(self._title(), json.dumps(report["wear"])))
        return Picture(_native.draw_responses(self._title(), json.dumps(report["series"])))

    def _title(self) -> str:
        return f"{self.workload}: {self.ftl} under {self.buffer}"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Result):
            return NotImplemented
        return self._outcome == other._outcome

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        return Result, (self._outcome,)

    def __repr__(self) -> str:
        figures = (
            f"{self.requests} requests",
            f"{self.erases} erases",
            f"write amplification {shown(self.write_amplification)}",
            f"{shown(self.years)} years",
        )
        return f"<{self._title()}: {', '.join(figures)}>"

    def _repr_html_(self) -> str:
        rows = html_rows((name, shown(value)) for name, value in self.figures().items())
        return f"<table>{rows}</table>{self.picture().svg}"


def _check(what: str) -> None:
    if what not in ("responses", "erases"):
        raise ValueError(f"what to plot is 'responses' or 'erases', not {what!r}")


def shown(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def html_rows(rows: Iterable[tuple[str, str]]) -> str:
    cell = "<tr><th style='text-align:left'>{}</th><td>{}</td></tr>"
    return "".join(cell.format(html.escape(name), html.escape(value)) for name, value in rows)


def _columns(rows: list[dict[str, Any]], kinds: dict[str, str]) -> Columns:
    views = {}
    for name, kind in kinds.items():
        views[name] = memoryview(array(kind, [row[name] for row in rows])).toreadonly()
    return Columns(views)
