# SPDX-License-Identifier: Apache-2.0
"""The DBM, with the interface of dbm.gnu and dbm.ndbm, and with transactions.

>>> import senko_flash.dbm, tempfile
>>> folder = tempfile.TemporaryDirectory()
>>> with senko_flash.dbm.open(folder.name + "/data", "c") as db:
...     db["apple"] = "red"
...     with db.transaction() as tx:
...         tx["plum"] = tx["apple"]
...     list(db.items())
[(b'apple', b'red'), (b'plum', b'red')]
>>> folder.cleanup()
"""

from __future__ import annotations

import os as _os
from collections.abc import Callable as _Callable
from collections.abc import ItemsView as _ItemsView
from collections.abc import Iterator as _Iterator
from collections.abc import MutableMapping as _MutableMapping
from collections.abc import ValuesView as _ValuesView
from typing import TYPE_CHECKING
from typing import Any as _Any
from typing import TypeVar as _TypeVar

from . import _native
from ._native import Conflict, Snapshot, Transaction, error

if TYPE_CHECKING:
    from ._native import _Data

__all__ = ["open", "error", "Conflict", "Database", "Snapshot", "Table", "Transaction"]

_ABSENT: _Any = object()
_Given = _TypeVar("_Given")


class _Items(_ItemsView[bytes, bytes]):
    _mapping: _Any

    def __iter__(self) -> _Iterator[tuple[bytes, bytes]]:
        records: _Iterator[tuple[bytes, bytes]] = self._mapping.range()
        return records


class _Values(_ValuesView[bytes]):
    _mapping: _Any

    def __iter__(self) -> _Iterator[bytes]:
        values: _Iterator[bytes] = self._mapping._values()
        return values


class _Mapping(_MutableMapping[_Any, bytes]):
    """What tables and databases share: a mapping of bytes to bytes, in the order of its keys."""

    __slots__ = ()

    if TYPE_CHECKING:
        # The native half has them.
        def _take(self, key: _Data) -> bytes | None: ...
        def _table(self, name: str, *, create: bool = False) -> _native.Database: ...
        def transaction(self, *, durability: str | None = None) -> Transaction: ...
        def range(
            self, start: _Data | None = None, stop: _Data | None = None, *, reverse: bool = False
        ) -> _Iterator[tuple[bytes, bytes]]: ...
        def close(self) -> None: ...
        def backup(self, path: str | _os.PathLike[str]) -> dict[str, int]: ...

    def items(self) -> _ItemsView[bytes, bytes]:
        """The records, in order, as a view: each iteration sees one state."""
        return _Items(self)

    def values(self) -> _ValuesView[bytes]:
        """The values, in the order of their keys, as a view."""
        return _Values(self)

    def pop(self, key: _Data, default: _Any = _ABSENT) -> _Any:
        """Removes a key and returns its value, in one transaction."""
        value = self._take(key)
        if value is not None:
            return value
        if default is _ABSENT:
            raise KeyError(key)
        return default

    def popitem(self) -> tuple[bytes, bytes]:
        """Removes the first record and returns it."""
        return self.run(lambda tx: tx.popitem())

    def run(self, fn: _Callable[[Transaction], _Given], *, durability: str | None = None) -> _Given:
        """Calls `fn(tx)` in a transaction, again after each Conflict, and returns its result.

        If `fn` itself changes what it reads, the hundredth Conflict is raised.
        """
        tries = 0
        while True:
            tries += 1
            try:
                with self.transaction(durability=durability) as tx:
                    return fn(tx)
            except Conflict:
                if tries == 100:
                    raise

    def table(self, name: str, *, create: bool = False) -> Table:
        """A table of the database, which is a mapping too. `create` makes one that is not there."""
        return Table(self, self._table(name, create=create))

    def __enter__(self: _Given) -> _Given:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Database(_native.Database, _Mapping):  # type: ignore[misc]
    """An open database: a mapping over its table "main". `open` makes it.

    >>> import senko_flash.dbm, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> db = senko_flash.dbm.open(folder.name + "/data", "c")
    >>> db.update(apple="red", pear="green", plum="blue")
    >>> db["apple"], db.get("fig"), db.setdefault("fig", "violet"), "fig" in db
    (b'red', None, b'violet', True)
    >>> db.pop("fig"), db.pop("fig", None), db.popitem()
    (b'violet', None, (b'apple', b'red'))
    >>> db.keys(), list(db.values()), len(db)
    ([b'pear', b'plum'], [b'green', b'blue'], 2)
    >>> list(db.items()) == list(db.range()) == list(db.prefix("p"))
    True
    >>> list(db.range("pf", "q", reverse=True)), db.firstkey(), db.nextkey("pear")
    ([(b'plum', b'blue')], b'pear', b'plum')

    Several writes are one transaction. `run` repeats it where it conflicts with another.

    >>> with db.transaction(durability="synced") as tx:
    ...     tx["pear"], tx["plum"] = tx["plum"], tx["pear"]
    >>> db.run(lambda tx: tx.pop("plum"))
    b'green'

    A snapshot stays as it is, and a table is a mapping of its own.

    >>> log = db.table("log", create=True)
    >>> with db.snapshot() as before:
    ...     db.clear()
    ...     before.keys(), db.keys(), db.tables()
    ([b'pear'], [], ['log', 'main'])
    >>> db.drop_table("log")
    >>> db.sync()
    >>> db.reorganize()

    A copy is a database too, and writes go on meanwhile.

    >>> db["fig"] = "violet"
    >>> db.backup(folder.name + "/copy")
    {'tables': 1, 'records': 1, 'bytes': 9}
    >>> db.stats()["open_snapshots"]
    0
    >>> db.close()
    >>> folder.cleanup()
    """

    items = _Mapping.items
    values = _Mapping.values


class Table(_Mapping):
    """Another table of a database, which it keeps open.

    It has all that a database has: `sync`, `close` and the like are those of its database.

    >>> import senko_flash.dbm, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> with senko_flash.dbm.open(folder.name + "/data", "c") as db:
    ...     log = db.table("log", create=True)
    ...     log["1"] = "began"
    ...     list(log.items()), list(db.items())
    ([(b'1', b'began')], [])
    >>> folder.cleanup()
    """

    __slots__ = ("_database", "_native")

    def __init__(self, database: _Mapping, native: _native.Database) -> None:
        self._database = database
        self._native = native

    def __getattr__(self, name: str) -> _Any:
        if name in Table.__slots__:
            raise AttributeError(name)
        return getattr(self._native, name)

    def __reduce__(self) -> _Any:
        return self._native.__reduce__()

    def __getitem__(self, key: _Data) -> bytes:
        return self._native[key]

    def __setitem__(self, key: _Data, value: _Data) -> None:
        self._native[key] = value

    def __delitem__(self, key: _Data) -> None:
        del self._native[key]

    def __contains__(self, key: object) -> bool:
        return key in self._native

    def __iter__(self) -> _Iterator[bytes]:
        return iter(self._native)

    def __len__(self) -> int:
        return len(self._native)

    def __repr__(self) -> str:
        return repr(self._native)

    def keys(self) -> list[bytes]:  # type: ignore[override]
        """The keys, in order, as a list."""
        return self._native.keys()

    def get(self, key: _Data, default: _Any = None) -> _Any:
        """The value of a key, or `default`."""
        return self._native.get(key, default)

    def setdefault(self, key: _Data, default: _Data = b"") -> bytes:
        """The value of a key, which is set to `default` if it is not there."""
        return self._native.setdefault(key, default)

    def clear(self) -> None:
        """Removes every record, in one transaction."""
        self._native.clear()


def open(
    path: str | bytes | _os.PathLike[str],
    flag: str = "r",
    mode: int = 0o666,
    *,
    durability: str = "buffered",
    cache_bytes: int | None = None,
    transaction_bytes: int | None = None,
) -> Database:
    """Opens a database.

    `flag` is 'r' to read, 'w' to write, 'c' to make it if it is not there, 'n' to begin empty.
    `durability` is what one write waits for: 'none', 'buffered' (it survives the process) or
    'synced' (it survives a power failure). `sync()` makes all of them synced. `cache_bytes` bounds
    the DRAM for pages that the device has too; it is 256 MiB where nothing is said.
    `transaction_bytes` bounds one transaction, which is in DRAM until it commits; it is 2 GiB where
    nothing is said, so that every value fits. An argument that does not fit is a TypeError or a
    ValueError; what the database reports is `error`.

    >>> import senko_flash.dbm, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> with senko_flash.dbm.open(folder.name + "/data", "c", 0o600, durability="synced") as db:
    ...     db["apple"] = "red"
    >>> with senko_flash.dbm.open(folder.name + "/data", cache_bytes=1 << 20) as db:
    ...     db["apple"]
    b'red'
    >>> folder.cleanup()
    """
    # The mode is the system's: it takes the umask away itself.
    place = _os.fsdecode(path)
    return Database(
        place,
        flag,
        mode,
        durability=durability,
        cache_bytes=cache_bytes,
        transaction_bytes=transaction_bytes,
    )
