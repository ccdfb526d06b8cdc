# SPDX-License-Identifier: Apache-2.0
"""Columns of numbers, which numpy, pandas and Arrow take as they lie in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

# Arrow's names of the formats of a memoryview.
_ARROW = {"d": "float64", "Q": "uint64", "q": "int64", "I": "uint32", "B": "uint8"}


class Columns(Mapping[str, Any]):
    """Columns of one length, by their names.

    A column is a numpy array where numpy is installed, and a memoryview elsewhere. Both show the
    same memory: nothing is copied.

    >>> import array
    >>> columns = Columns({"second": memoryview(array.array("d", [0.0, 1.5]))})
    >>> list(columns), columns.second.tolist()
    (['second'], [0.0, 1.5])
    """

    __slots__ = ("_views",)

    def __init__(self, views: dict[str, memoryview]) -> None:
        self._views = views

    def __getitem__(self, name: str) -> Any:
        view = self._views[name]
        try:
            import numpy
        except ImportError:
            return view
        return numpy.asarray(view)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self[name]
        except KeyError:
            names = ", ".join(self._views)
            raise AttributeError(f"there is no column {name!r}; there are {names}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._views)

    def __len__(self) -> int:
        return len(self._views)

    def __reduce__(self) -> tuple[Any, ...]:
        # A memoryview is not pickled. Its bytes are, with the format.
        columns = [(name, view.format, view.tobytes()) for name, view in self._views.items()]
        return _unpickled, (columns,)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._views]

    def __repr__(self) -> str:
        rows = len(next(iter(self._views.values())))
        return f"<{rows} rows of {', '.join(self._views)}>"

    def to_pandas(self) -> Any:
        """The columns as a pandas.DataFrame."""
        import pandas

        return pandas.DataFrame({name: self[name] for name in self}, copy=False)

    def to_arrow(self) -> Any:
        """The columns as a pyarrow.Table over the same memory."""
        import pyarrow

        def column(view: memoryview) -> Any:
            kind = getattr(pyarrow, _ARROW[view.format])()
            buffers = [None, pyarrow.py_buffer(view)]
            return pyarrow.Array.from_buffers(kind, len(view), buffers)

        return pyarrow.table({name: column(view) for name, view in self._views.items()})


def _unpickled(columns: list[tuple[str, Any, bytes]]) -> Columns:
    return Columns({name: memoryview(column).cast(kind) for name, kind, column in columns})
