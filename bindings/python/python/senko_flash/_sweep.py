# SPDX-License-Identifier: Apache-2.0
"""Many runs: every combination of a grid, on threads, processes or machines.

A cell travels as its options. Of a trace's file the path and the hash travel, not the bytes: the
machine that runs the cell must have the same file at the same path, and says so if it has another.
"""

from __future__ import annotations

import hashlib
import html
import itertools
import numbers
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, as_completed
from typing import Any

from . import _native
from ._result import Result, shown
from ._run import outcome_of

__all__ = ["Row", "Table", "sweep"]

# One value of an option, although it can be iterated over.
_ONE = (str, bytes, os.PathLike)

# Hashes of files that did not change since, by path, size and time.
_hashes: dict[tuple[str, int, int], str] = {}


def _hash(path: str) -> str:
    state = os.stat(path)
    key = (path, state.st_size, state.st_mtime_ns)
    if key not in _hashes:
        sha256 = hashlib.sha256()
        with open(path, "rb") as file:
            while block := file.read(1 << 20):
                sha256.update(block)
        _hashes[key] = sha256.hexdigest()
    return _hashes[key]


class Row:
    """A cell of the grid and what came of it: a result, or the error's sentence.

    >>> row = sweep({"workload": "uniform:count=50", "ftl": "typo"}, progress=False)[0]
    >>> row.options["ftl"], row.result, row.error == row.to_dict()["error"]
    ('typo', None, True)
    """

    __slots__ = ("options", "result", "error")

    def __init__(
        self, options: Mapping[str, Any], result: Result | None, error: str | None
    ) -> None:
        self.options = dict(options)
        self.result = result
        self.error = error

    def to_dict(self) -> dict[str, Any]:
        """The options of the cell, then the result's figures, then the error."""
        figures = {} if self.result is None else self.result.figures()
        return {**figures, **self.options, "error": self.error}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Row):
            return NotImplemented
        mine = (self.options, self.result, self.error)
        return mine == (other.options, other.result, other.error)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{self.options}: {self.error or self.result!r}>"


class Table(Sequence[Row]):
    """What a sweep found: a row for each cell, in the order of the grid.

    >>> grid = {"workload": "uniform:count=50", "seed": [1, 2]}
    >>> table = sweep(grid, progress=False)
    >>> len(table), [row["seed"] for row in table.to_dicts()]
    (2, [1, 2])
    >>> table.best("erases").result.requests
    50
    """

    def __init__(self, rows: list[Row]) -> None:
        self._rows = rows

    def __getitem__(self, at: Any) -> Any:
        return self._rows[at]

    def __len__(self) -> int:
        return len(self._rows)

    def __eq__(self, other: object) -> bool:
        return self._rows == other._rows if isinstance(other, Table) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def to_dicts(self) -> list[dict[str, Any]]:
        """The rows as dictionaries that all have the same names."""
        rows = [row.to_dict() for row in self._rows]
        names = dict.fromkeys(name for row in rows for name in row if name != "error")
        return [{**{name: row.get(name) for name in names}, "error": row["error"]} for row in rows]

    def to_pandas(self) -> Any:
        """The rows as a pandas.DataFrame."""
        import pandas

        return pandas.DataFrame(self.to_dicts())

    def to_arrow(self) -> Any:
        """The rows as a pyarrow.Table."""
        import pyarrow

        return pyarrow.Table.from_pylist(self.to_dicts())

    def best(self, figure: str, *, largest: bool = False) -> Row:
        """The row with the smallest figure, or the largest. Failed cells do not count."""
        rows = [row for row in self._rows if getattr(row.result, figure, None) is not None]
        if not rows:
            raise ValueError(f"no row has the figure {figure!r}")
        choose = max if largest else min
        return choose(rows, key=lambda row: getattr(row.result, figure))

    def __repr__(self) -> str:
        failed = sum(row.error is not None for row in self._rows)
        rows = "row" if len(self._rows) == 1 else "rows"
        return f"<{len(self._rows)} {rows}, {failed} failed>"

    def _repr_html_(self) -> str:
        names = list(dict.fromkeys(name for row in self._rows for name in row.options))
        names += ["erases", "write_amplification", "mean_us", "p99_us", "years", "error"]
        head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
        cells = ([html.escape(shown(row.get(name))) for name in names] for row in self.to_dicts())
        body = "".join(f"<tr><td>{'</td><td>'.join(row)}</td></tr>" for row in cells)
        return f"<table><tr>{head}</tr>{body}</table>"


def _no_grid(given: object) -> TypeError:
    kind = type(given).__name__
    return TypeError(
        "a grid is a mapping from options to values, or a list of mappings from options to a "
        f"value; {kind} is neither"
    )


def _cells(grid: Mapping[str, Any] | Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    if not isinstance(grid, Mapping):
        for cell in grid:
            if not isinstance(cell, Mapping):
                raise _no_grid(cell)
            yield {name: _value(name, value) for name, value in cell.items()}
        return
    lists = [_values(name, value) for name, value in grid.items()]
    for values in itertools.product(*lists):
        yield dict(zip(grid, values))


def _value(name: str, value: Any) -> Any:
    """A value of an option. Requests are kept, since an iterator of them can be read only once."""
    requests = name == "workload" and isinstance(value, Iterable) and not isinstance(value, _ONE)
    return list(value) if requests else value


def _values(name: str, value: Any) -> list[Any]:
    """The values of an option of a grid. Requests, each a sequence that begins with its time, are
    one workload.
    """
    if not isinstance(value, Iterable) or isinstance(value, _ONE):
        return [value]
    values = list(value)
    if name == "workload" and values and isinstance(values[0], Sequence):
        first = values[0]
        if not isinstance(first, _ONE) and first and isinstance(first[0], numbers.Real):
            return [values]
    return [_value(name, value) for value in values]


def _sent(cell: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a cell as they travel: absolute paths, and what the trace's file hashes to."""
    sent = dict(cell)
    for name in ("workload", "profile"):
        if isinstance(sent.get(name), _ONE):
            path = os.fspath(sent[name])
            sent[name] = os.path.abspath(path) if os.path.isfile(path) else path
            if name == "workload" and os.path.isfile(path):
                sent["sha256"] = _hash(sent[name])
    return sent


def _run(
    sent: dict[str, Any], stop: _native.Stop | None = None
) -> tuple[Result | None, str | None]:
    """Runs a cell where it was sent to.

    An error is a sentence, since not each exception travels.
    """
    options = dict(sent)
    expected = options.pop("sha256", None)
    try:
        if expected is not None:
            path = options["workload"]
            if not os.path.isfile(path):
                return None, f"there is no file {path} on the machine that runs the cell"
            if _hash(path) != expected:
                return None, f"{path} is another file on the machine that runs the cell"
        # Its doubts about a trace are in the result. Threads must not touch the program's filters
        # of warnings.
        return Result(outcome_of(options, stop)), None
    except Exception as failure:
        return None, str(failure) or repr(failure)


class _Progress:
    """A line on stderr, where that is a terminal, or a call of the user's function."""

    def __init__(self, progress: bool | Callable[[int, int], object], total: int) -> None:
        self._tell = progress if callable(progress) else None
        self._shown = self._tell is None and bool(progress) and sys.stderr.isatty()
        self._total = total
        self._began = time.monotonic()

    def done(self, count: int) -> None:
        if self._tell is not None:
            self._tell(count, self._total)
        if self._shown:
            left = (time.monotonic() - self._began) / count * (self._total - count)
            text = f"\r\x1b[Ksweep: {count} of {self._total} cells, {left:.0f} s left "
            print(text, end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def sweep(
    grid: Mapping[str, Any] | Iterable[Mapping[str, Any]],
    executor: Executor | None = None,
    progress: bool | Callable[[int, int], object] = True,
) -> Table:
    """Runs every cell of a grid, and returns a table in the grid's order.

    `grid` is a mapping from options of `simulate` to a value or a list of values, of which every
    combination is run; the last option changes fastest. Or it is a list of mappings, one for each
    cell. A workload can be a list of requests, as in `simulate`. A cell that fails is a row with
    the error's sentence.

    Without an executor, threads run the cells, as many as there are cores. Any executor of
    concurrent.futures will do, and `client.get_executor()` of a Dask client. A trace must lie at
    the same path on every machine; the cell fails if its content differs.

    `progress` shows a line on a terminal, or is called with the cells done and their number.

    >>> grid = {"workload": "uniform:count=500", "ftl": ["page", "bast", "typo"]}
    >>> table = sweep(grid, progress=False)
    >>> [row.result is not None for row in table], table[2].error[:30]
    ([True, True, False], 'there is no translation layer ')
    """
    if isinstance(grid, _ONE) or not isinstance(grid, Iterable):
        raise _no_grid(grid)
    if executor is not None and not callable(getattr(executor, "submit", None)):
        kind = type(executor).__name__
        raise TypeError(f"an executor is one of concurrent.futures, not {kind}")
    cells = list(_cells(grid))
    own = ThreadPoolExecutor(os.cpu_count()) if executor is None else None
    stop = _native.Stop() if own is not None else None
    runner: Executor = executor if own is None else own  # type: ignore[assignment]
    line = _Progress(progress, len(cells))
    futures: dict[Future[Any], int] = {}
    rows: list[Row] = [Row(cell, None, None) for cell in cells]
    try:
        for place, row in enumerate(rows):
            # Threads share the flag that ends their runs. The flag cannot travel further.
            more = () if stop is None else (stop,)
            try:
                futures[runner.submit(_run, _sent(row.options), *more)] = place
            except Exception as failure:
                row.error = _died(failure)
        failed = len(rows) - len(futures)
        for count, future in enumerate(as_completed(futures), failed + 1):
            row, died = rows[futures[future]], future.exception()
            row.result, row.error = (None, _died(died)) if died is not None else future.result()
            line.done(count)
    except BaseException:
        for future in futures:
            future.cancel()
        if stop is not None:
            stop.set()
        raise
    finally:
        line.end()
        if own is not None:
            own.shutdown(wait=True, cancel_futures=True)
    return Table(rows)


def _died(failure: BaseException) -> str:
    return f"the cell was not run: {str(failure) or type(failure).__name__}"
