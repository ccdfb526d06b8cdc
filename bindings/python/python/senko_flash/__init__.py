# SPDX-License-Identifier: Apache-2.0
"""Senko from Python: the DBM in `dbm`, the store in `store`, the simulator in `ssd`.

>>> import senko_flash
>>> senko_flash.dbm.open.__name__
'open'
"""

from __future__ import annotations

import importlib as _importlib
from typing import Any as _Any

__all__ = ["__version__", "dbm", "ssd", "store"]


def __getattr__(name: str) -> _Any:
    # A module is imported when it is asked for: who uses the DBM does not wait for the simulator.
    if name in ("dbm", "ssd", "store"):
        return _importlib.import_module(f"{__name__}.{name}")
    if name == "__version__":
        from importlib.metadata import version

        return version("senko-flash")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
