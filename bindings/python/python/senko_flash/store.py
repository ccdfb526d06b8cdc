# SPDX-License-Identifier: Apache-2.0
"""The unordered store: one device read a get, about two bytes of DRAM a key.

>>> import senko_flash.store, tempfile
>>> folder = tempfile.TemporaryDirectory()
>>> with senko_flash.store.open(folder.name + "/data.kv", "c") as store:
...     time = store.put("colour", "green")
...     store["shape"] = "round"
...     store.multi_get(["shape", "size", "colour"])
[b'round', None, b'green']
>>> senko_flash.store.verify(folder.name + "/data.kv").problems
[]
>>> folder.cleanup()
"""

from __future__ import annotations

import errno as _errno
import os as _os
from collections.abc import Callable as _Callable
from collections.abc import ItemsView as _ItemsView
from collections.abc import Iterable as _Iterable
from collections.abc import Iterator as _Iterator
from collections.abc import MutableMapping as _MutableMapping
from collections.abc import ValuesView as _ValuesView
from datetime import datetime as _datetime
from datetime import timedelta as _timedelta
from typing import TYPE_CHECKING
from typing import Any as _Any
from typing import NamedTuple as _NamedTuple

from . import _native
from ._native import StoreFailure

if TYPE_CHECKING:
    from typing_extensions import Self

    from ._native import _Data

__all__ = ["Batch", "Entry", "Snapshot", "Store", "Verified", "Version", "error", "open", "verify"]

error = StoreFailure

_DELETED_AT_ONCE = 1000

_MOST_TRIES = 1000


class Entry(_NamedTuple):
    """A key with its value. `time` is in microseconds, `expires_at` in seconds, both since 1970.

    >>> Entry(b"colour", b"green", 1_700_000_000_000_000, None).value
    b'green'
    """

    key: bytes
    value: bytes
    time: int
    expires_at: int | None


class Version(_NamedTuple):
    """A version of a key. The value is None if the key was deleted, or has expired since.

    >>> Version(1_700_000_000_000_000, None, None).value is None
    True
    """

    time: int
    value: bytes | None
    expires_at: int | None


class Verified(_NamedTuple):
    """What a check read, and what is wrong: the byte in the file, and a sentence.

    >>> Verified({"pages": 3}, []).problems
    []
    """

    counts: dict[str, int]
    problems: list[tuple[int, str]]


def _seconds(ttl: float | _timedelta | None) -> float | None:
    return ttl.total_seconds() if isinstance(ttl, _timedelta) else ttl


def _microseconds(at: int | _datetime) -> int:
    return round(at.timestamp() * 1_000_000) if isinstance(at, _datetime) else at


def _entry(row: tuple[bytes, bytes, int, int]) -> Entry:
    key, value, time, expires_at = row
    return Entry(key, value, time, expires_at or None)


class _Items(_ItemsView[bytes, bytes]):
    _mapping: _Any

    def __iter__(self) -> _Iterator[tuple[bytes, bytes]]:
        return ((key, value) for key, value, _, _ in self._mapping._scan())


class _Values(_ValuesView[bytes]):
    _mapping: _Any

    def __iter__(self) -> _Iterator[bytes]:
        return (value for _, value, _, _ in self._mapping._scan())


class Batch(_native.Batch):
    """Writes that are made together when the `with` block ends, or not at all.

    Then the batch has ended, and takes no more.

    >>> import senko_flash.store, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> store = senko_flash.store.open(folder.name + "/data.kv", "c")
    >>> with store.batch(durability="synced") as batch:
    ...     batch.put("session", "of an hour", ttl=3600)
    ...     batch.put("colour", "green")
    ...     batch.delete("shape")
    ...     len(batch)
    3
    >>> sorted(store)
    [b'colour', b'session']
    >>> store.close()
    >>> folder.cleanup()
    """

    def __init__(self, store: Store, durability: str | None) -> None:
        self._store = store
        self._durability = durability

    def __new__(cls, store: Store, durability: str | None) -> Self:
        return super().__new__(cls, durability)

    def put(
        self,
        key: _Data,
        value: _Data,
        *,
        ttl: float | _timedelta | None = None,
        expires_at: int | None = None,
    ) -> None:
        """Puts a value, which lives for `ttl` seconds or until `expires_at`."""
        super().put(key, value, ttl=_seconds(ttl), expires_at=expires_at)

    def __repr__(self) -> str:
        return f"<senko_flash.store batch of {len(self)} writes>"

    def __enter__(self) -> Batch:
        self._check()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None:
                self._store.write(self, durability=self._durability)
        finally:
            self._end()


class Snapshot:
    """The store at a moment: single keys, many keys, everything. Its `with` block closes it.

    It ends when its space is needed; what it is asked then raises `error`.

    >>> import senko_flash.store, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> store = senko_flash.store.open(folder.name + "/data.kv", "c")
    >>> written = store.put("colour", "green")
    >>> with store.snapshot() as before:
    ...     store["colour"] = "red"
    ...     before["colour"], before.get("shape"), before.multi_get(["colour", "shape"])
    ...     list(before.keys()), list(before.values()), list(before.items())
    ...     [entry.value for entry in before.scan()], before.time >= written
    (b'green', None, [b'green', None])
    ([b'colour'], [b'green'], [(b'colour', b'green')])
    ([b'green'], True)
    >>> before.close()  # It is closed already.
    >>> store.close()
    >>> folder.cleanup()
    """

    __slots__ = ("_native", "_time")

    def __init__(self, native: _native.StoreSnapshot) -> None:
        self._native = native
        self._time = native.time

    @property
    def time(self) -> int:
        """The moment, in microseconds since 1970."""
        return self._native.time

    def __getitem__(self, key: _Data) -> bytes:
        return self._native[key]

    def __contains__(self, key: object) -> bool:
        return key in self._native

    def __iter__(self) -> _Iterator[bytes]:
        return iter(self._native)

    def get(self, key: _Data, default: _Any = None) -> _Any:
        """The value of a key, or `default`."""
        return self._native.get(key, default)

    def multi_get(self, keys: _Iterable[_Data]) -> list[bytes | None]:
        """The values of many keys, in their order. An absent key has None."""
        return self._native.multi_get(list(keys))

    def scan(self) -> _Iterator[Entry]:
        """All entries, in no order."""
        return map(_entry, self._native._scan())

    def keys(self) -> _Iterator[bytes]:
        """The keys, in no order, as an iterator."""
        return iter(self)

    def values(self) -> _Iterator[bytes]:
        """The values, in no order, as an iterator."""
        return (value for _, value, _, _ in self._native._scan())

    def items(self) -> _Iterator[tuple[bytes, bytes]]:
        """The keys with their values, in no order, as an iterator."""
        return ((key, value) for key, value, _, _ in self._native._scan())

    def close(self) -> None:
        """Ends the snapshot. Nothing if it has ended. A scan that began before goes on."""
        self._native.close()

    def __enter__(self) -> Snapshot:
        self._native.time  # Raises where it is closed.
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<senko_flash.store snapshot of {self._time} us since 1970>"


class Store(_native.Store, _MutableMapping[_Any, bytes]):
    """An open store: a mapping of bytes to bytes, in no order. `open` makes it.

    >>> import senko_flash.store, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> store = senko_flash.store.open(folder.name + "/data.kv", "c", keep_versions=2)
    >>> store["colour"] = "green"
    >>> store.get("colour"), store.get("shape"), store.setdefault("shape", "round")
    (b'green', None, 'round')
    >>> store.pop("shape"), list(store.keys()), list(store.values()), list(store.items())
    (b'round', [b'colour'], [b'green'], [(b'colour', b'green')])
    >>> store.multi_get(["shape", "colour"]), [entry.key for entry in store.scan()]
    ([None, b'green'], [b'colour'])

    Writes return their time, and older versions can be read while they are kept.

    >>> green = store.history("colour")[0].time
    >>> store.put("colour", "red", ttl=3600) > green
    True
    >>> store["colour"], store.get("colour", at=green)
    (b'red', b'green')

    Of several writers `update` loses none.

    >>> visits = store.update("visits", lambda old: str(int(old or 0) + 1))
    >>> store.compare_and_swap("visits", "0", "9") is None, store["visits"]
    (True, b'1')
    >>> deleted = store.delete("visits")
    >>> with store.batch() as batch:
    ...     batch.put("a", "1")
    >>> store.popitem()[1] in (b"1", b"red")
    True

    `write` writes a batch at once.

    >>> batch = store.batch()
    >>> batch.delete("a")
    >>> written = store.write(batch)
    >>> with store.snapshot() as before:
    ...     store.clear()
    ...     len(store)
    0
    >>> store.sync()
    >>> store.backup(folder.name + "/copy.kv")["bytes"] < 1000
    True
    >>> store.compact()
    >>> store.stats()["read_only"]
    0
    >>> store.close()
    >>> folder.cleanup()
    """

    def __setitem__(self, key: _Data, value: _Data) -> None:
        super().put(key, value)

    def __delitem__(self, key: _Data) -> None:
        if key not in self:
            raise KeyError(key)
        super().delete(key)

    def get(self, key: _Data, default: _Any = None, *, at: int | _datetime | None = None) -> _Any:
        """The value of a key, or `default`.

        `at` asks for an older one: a time in microseconds since 1970, or a datetime. It is there as
        long as the store keeps that version.
        """
        if at is None:
            return super().get(key, default)
        found = self._get_at(key, _microseconds(at))
        return default if found is None else found

    def put(
        self,
        key: _Data,
        value: _Data,
        *,
        ttl: float | _timedelta | None = None,
        expires_at: int | None = None,
        durability: str | None = None,
    ) -> int:
        """Puts a value and returns the time of the write, in microseconds since 1970.

        The value lives for `ttl` seconds (or a timedelta), or until `expires_at` (seconds since
        1970). `durability` takes the place of the store's.
        """
        return super().put(
            key, value, ttl=_seconds(ttl), expires_at=expires_at, durability=durability
        )

    def update(  # type: ignore[override]
        self,
        key: _Any = (),
        change: _Callable[[bytes | None], _Data | None] | None = None,
        **more: _Data,
    ) -> int | None:
        """Puts what `change` makes of the key's value; None is a key without one.

        Where another write comes between, `change` is called again. If `change` itself writes to
        the key, `error` is raised after a thousand calls. Without `change` it is the `update` of
        mappings.
        """
        if change is None:
            _MutableMapping.update(self, key, **more)
            return None
        for _ in range(_MOST_TRIES):
            old = super().get(key)
            time = self.compare_and_swap(key, old, change(old))
            if time is not None:
                return time
        raise error(f"the key was written to during each of {_MOST_TRIES} tries to change it")

    def multi_get(self, keys: _Iterable[_Data]) -> list[bytes | None]:
        """The values of many keys at one moment, in their order. An absent key has None."""
        return super().multi_get(list(keys))

    def batch(self, *, durability: str | None = None) -> Batch:
        """Gathers puts and deletes.

        The `with` block of a batch makes all of the writes, or none if it raises.
        """
        return Batch(self, durability)

    def history(self, key: _Data) -> list[Version]:
        """The versions of a key that are kept, newest first, deletions among them."""
        return [Version(time, value, end or None) for time, value, end in self._history(key)]

    def scan(self) -> _Iterator[Entry]:
        """All entries at this moment, in no order, while writes go on."""
        return map(_entry, self._scan())

    def items(self) -> _ItemsView[bytes, bytes]:
        """The keys with their values, in no order, as a view: each iteration sees one moment."""
        return _Items(self)

    def values(self) -> _ValuesView[bytes]:
        """The values, in no order, as a view."""
        return _Values(self)

    def popitem(self) -> tuple[bytes, bytes]:
        """Removes a record and returns it."""
        found = True
        while found:
            found = False
            for key, value in self.items():
                found = True
                # Another thread may have taken or changed it.
                if self.compare_and_swap(key, value, None) is not None:
                    return key, value
        raise KeyError("the store is empty")

    def clear(self) -> None:
        """Deletes every key that is there now, a thousand in a batch."""
        batch = Batch(self, None)
        for key in self:
            batch.delete(key)
            if len(batch) == _DELETED_AT_ONCE:
                self.write(batch)
                batch = Batch(self, None)
        self.write(batch)

    def snapshot(self) -> Snapshot:  # type: ignore[override]
        """The state of now, which stays while writes go on."""
        return Snapshot(super().snapshot())

    def backup(self, path: str | _os.PathLike[str]) -> dict[str, int]:
        """Copies the store as it is now to `path`, which must not exist, while writes go on."""
        return super().backup(_os.fsdecode(path))

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open(
    path: str | _os.PathLike[str],
    flag: str = "r",
    *,
    durability: str = "buffered",
    keep_versions: int | None = None,
    max_bytes: int | None = None,
    cache_bytes: int | None = None,
    block_bytes: int | None = None,
) -> Store:
    """Opens a store.

    `flag` is 'r' to read, 'w' to write, 'c' to make it if it is not there. `durability` is what a
    write waits for: 'none', 'buffered' (it survives the process) or 'synced' (it survives a power
    failure). `keep_versions` and `block_bytes` count when the store is made. `max_bytes` bounds the
    file, `cache_bytes` the memory for records that are read often.

    >>> import senko_flash.store, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> with senko_flash.store.open(folder.name + "/data.kv", "c", durability="synced") as store:
    ...     store["colour"] = "green"
    >>> with senko_flash.store.open(folder.name + "/data.kv") as store:
    ...     store["colour"]
    b'green'
    >>> folder.cleanup()
    """
    return Store(
        _os.fsdecode(path),
        flag,
        durability=durability,
        keep_versions=keep_versions,
        max_bytes=max_bytes,
        cache_bytes=cache_bytes,
        block_bytes=block_bytes,
    )


def verify(path: str | _os.PathLike[str]) -> Verified:
    """Reads a whole store that no process has open, and checks everything.

    >>> import senko_flash.store, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> senko_flash.store.open(folder.name + "/data.kv", "c").close()
    >>> senko_flash.store.verify(folder.name + "/data.kv").problems
    []
    >>> folder.cleanup()
    """
    place = _os.fsdecode(path)
    if not _os.path.exists(place):
        raise error(_errno.ENOENT, _os.strerror(_errno.ENOENT), place)
    return Verified(*_native.verify_store(place))
