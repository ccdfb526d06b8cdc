# SPDX-License-Identifier: Apache-2.0
"""Every public call with arguments that make no sense, on what has ended, and in a fork's child.

The tables name every argument of every public call. A call or an argument that they lack fails a
test.
"""

import copy
import inspect
import os
import pickle
import re

import pytest

from senko_flash import dbm, ssd
from senko_flash import store as kv

LARGE = 2**64
LOAD = "uniform:count=10"

# Every argument is given these values. Tables below say which of them it takes.
GIVEN = {
    "-1": -1,
    "2**64": LARGE,
    "10**5000": 10**5000,
    "1.5": 1.5,
    "nan": float("nan"),
    "None": None,
    "str": "x",
    "bytes": b"x",
    "list": [],
    "object": object(),
}


class Opened:
    """A database and a store with one record each, and what belongs to them."""

    def __init__(self, folder):
        self.folder = folder
        self.db = dbm.open(folder / "data", "c")
        self.db["k"] = "v"
        self.table = self.db.table("t", create=True)
        self.table["k"] = "v"
        self.before = self.db.snapshot()
        self.tx = self.db.transaction()
        self.store = kv.open(folder / "data.kv", "c", keep_versions=2, block_bytes=1 << 20)
        self.store["k"] = "v"
        self.moment = self.store.snapshot()
        self.batch = self.store.batch()

    def close(self):
        self.tx.rollback()
        self.before.close()
        self.moment.close()
        self.db.close()
        self.store.close()


@pytest.fixture
def opened(tmp_path):
    opened = Opened(tmp_path)
    yield opened
    opened.close()


WHOLE = set()
OPTIONAL = {"None"}
NUMBER = {"-1", "2**64", "1.5", "nan"}
# A text that is taken as a text; what it says is looked at later.
TEXT = {"str"}

# The argument, what it takes, and the call.
NUMBERS_AND_CHOICES = {
    "dbm.open.flag": (WHOLE, lambda o, x: dbm.open(o.folder / "new", x)),
    "dbm.open.mode": (WHOLE, lambda o, x: dbm.open(o.folder / "new", "c", x)),
    "dbm.open.durability": (WHOLE, lambda o, x: dbm.open(o.folder / "new", "c", durability=x)),
    "dbm.open.cache_bytes": (OPTIONAL, lambda o, x: dbm.open(o.folder / "new", "c", cache_bytes=x)),
    "dbm.open.transaction_bytes": (
        OPTIONAL,
        lambda o, x: dbm.open(o.folder / "new", "c", transaction_bytes=x),
    ),
    "dbm.Database.table.name": (TEXT, lambda o, x: o.db.table(x, create=True)),
    "dbm.Database.table.create": (WHOLE, lambda o, x: o.db.table("t", create=x)),
    "dbm.Database.drop_table.name": (WHOLE, lambda o, x: o.db.drop_table(x)),
    "dbm.Database.transaction.durability": (OPTIONAL, lambda o, x: o.db.transaction(durability=x)),
    "dbm.Database.run.durability": (OPTIONAL, lambda o, x: o.db.run(len, durability=x)),
    "dbm.Database.range.reverse": (OPTIONAL, lambda o, x: o.db.range(reverse=x)),
    "dbm.Database.prefix.reverse": (OPTIONAL, lambda o, x: o.db.prefix("k", reverse=x)),
    "dbm.Table.table.name": (TEXT, lambda o, x: o.table.table(x, create=True)),
    "dbm.Table.table.create": (WHOLE, lambda o, x: o.table.table("t", create=x)),
    "dbm.Table.run.durability": (OPTIONAL, lambda o, x: o.table.run(len, durability=x)),
    "dbm.Snapshot.table.name": (WHOLE, lambda o, x: o.before.table(x)),
    "dbm.Snapshot.range.reverse": (OPTIONAL, lambda o, x: o.before.range(reverse=x)),
    "dbm.Snapshot.prefix.reverse": (OPTIONAL, lambda o, x: o.before.prefix("k", reverse=x)),
    "dbm.Transaction.table.name": (WHOLE, lambda o, x: o.tx.table(x)),
    "dbm.Transaction.range.reverse": (OPTIONAL, lambda o, x: o.tx.range(reverse=x)),
    "dbm.Transaction.prefix.reverse": (OPTIONAL, lambda o, x: o.tx.prefix("k", reverse=x)),
    "store.open.flag": (WHOLE, lambda o, x: kv.open(o.folder / "new", x)),
    "store.open.durability": (WHOLE, lambda o, x: kv.open(o.folder / "new", "c", durability=x)),
    "store.open.keep_versions": (
        OPTIONAL,
        lambda o, x: kv.open(o.folder / "new", "c", keep_versions=x),
    ),
    "store.open.max_bytes": (OPTIONAL, lambda o, x: kv.open(o.folder / "new", "c", max_bytes=x)),
    "store.open.cache_bytes": (
        OPTIONAL,
        lambda o, x: kv.open(o.folder / "new", "c", cache_bytes=x),
    ),
    "store.open.block_bytes": (
        OPTIONAL,
        lambda o, x: kv.open(o.folder / "new", "c", block_bytes=x),
    ),
    "store.Store.get.at": (OPTIONAL, lambda o, x: o.store.get("k", at=x)),
    "store.Store.put.ttl": (OPTIONAL | {"1.5"}, lambda o, x: o.store.put("k", "v", ttl=x)),
    "store.Store.put.expires_at": (OPTIONAL, lambda o, x: o.store.put("k", "v", expires_at=x)),
    "store.Store.put.durability": (OPTIONAL, lambda o, x: o.store.put("k", "v", durability=x)),
    "store.Store.delete.durability": (OPTIONAL, lambda o, x: o.store.delete("k", durability=x)),
    "store.Store.compare_and_swap.ttl": (
        OPTIONAL | {"1.5"},
        lambda o, x: o.store.compare_and_swap("k", "v", "w", ttl=x),
    ),
    "store.Store.compare_and_swap.expires_at": (
        OPTIONAL,
        lambda o, x: o.store.compare_and_swap("k", "v", "w", expires_at=x),
    ),
    "store.Store.compare_and_swap.durability": (
        OPTIONAL,
        lambda o, x: o.store.compare_and_swap("k", "v", "w", durability=x),
    ),
    "store.Store.write.durability": (OPTIONAL, lambda o, x: o.store.write(o.batch, durability=x)),
    "store.Store.batch.durability": (OPTIONAL, lambda o, x: o.store.batch(durability=x)),
    "store.Batch.put.ttl": (OPTIONAL | {"1.5"}, lambda o, x: o.batch.put("k", "v", ttl=x)),
    "store.Batch.put.expires_at": (OPTIONAL, lambda o, x: o.batch.put("k", "v", expires_at=x)),
}
for _call, _run in (("simulate", ssd.simulate), ("trace", ssd.trace)):
    for _name, _takes in {
        "format": WHOLE,
        "fold": OPTIONAL,
        "limit": OPTIONAL,
        "rounds": WHOLE,
    }.items():
        NUMBERS_AND_CHOICES[f"ssd.{_call}.{_name}"] = (
            _takes,
            lambda o, x, run=_run, name=_name: run(LOAD, **{name: x}),
        )
for _name, _takes in {
    "profile": WHOLE,
    "scale": OPTIONAL,
    "ftl": OPTIONAL,
    "buffer": OPTIONAL,
    "buffer_size": OPTIONAL,
    "drives": WHOLE,
    "stripe": WHOLE,
    "precondition": {"1.5"},
    "closed": OPTIONAL,
    "speed": {"2**64", "1.5"},
    "wa": WHOLE,
    "check": WHOLE,
    "seed": WHOLE,
    "drain": WHOLE,
}.items():
    NUMBERS_AND_CHOICES[f"ssd.simulate.{_name}"] = (
        _takes,
        lambda o, x, name=_name: ssd.simulate(LOAD, **{"wa": True, name: x}),
    )

# Keys and values, with a call for each. "None" is in what those take that may be left out.
DATA = {
    "dbm.Database.get.key": (WHOLE, lambda o, x: o.db.get(x)),
    "dbm.Database.setdefault.key": (WHOLE, lambda o, x: o.db.setdefault(x)),
    "dbm.Database.setdefault.default": (OPTIONAL, lambda o, x: o.db.setdefault("n", x)),
    "dbm.Database.pop.key": (WHOLE, lambda o, x: o.db.pop(x)),
    "dbm.Database.range.start": (OPTIONAL, lambda o, x: o.db.range(x)),
    "dbm.Database.range.stop": (OPTIONAL, lambda o, x: o.db.range(None, x)),
    "dbm.Database.prefix.prefix": (WHOLE, lambda o, x: o.db.prefix(x)),
    "dbm.Database.nextkey.key": (WHOLE, lambda o, x: o.db.nextkey(x)),
    "dbm.Database[key]": (WHOLE, lambda o, x: o.db[x]),
    "dbm.Database[key] =": (WHOLE, lambda o, x: o.db.__setitem__(x, "v")),
    "dbm.Database[] = value": (WHOLE, lambda o, x: o.db.__setitem__("k", x)),
    "del dbm.Database[key]": (WHOLE, lambda o, x: o.db.__delitem__(x)),
    "key in dbm.Database": (WHOLE, lambda o, x: x in o.db),
    "dbm.Table.get.key": (WHOLE, lambda o, x: o.table.get(x)),
    "dbm.Table.setdefault.key": (WHOLE, lambda o, x: o.table.setdefault(x)),
    "dbm.Table.setdefault.default": (OPTIONAL, lambda o, x: o.table.setdefault("n", x)),
    "dbm.Table.pop.key": (WHOLE, lambda o, x: o.table.pop(x)),
    "dbm.Snapshot.get.key": (WHOLE, lambda o, x: o.before.get(x)),
    "dbm.Snapshot.range.start": (OPTIONAL, lambda o, x: o.before.range(x)),
    "dbm.Snapshot.range.stop": (OPTIONAL, lambda o, x: o.before.range(None, x)),
    "dbm.Snapshot.prefix.prefix": (WHOLE, lambda o, x: o.before.prefix(x)),
    "dbm.Snapshot.nextkey.key": (WHOLE, lambda o, x: o.before.nextkey(x)),
    "dbm.Transaction.get.key": (WHOLE, lambda o, x: o.tx.get(x)),
    "dbm.Transaction.setdefault.key": (WHOLE, lambda o, x: o.tx.setdefault(x)),
    "dbm.Transaction.setdefault.default": (OPTIONAL, lambda o, x: o.tx.setdefault("n", x)),
    "dbm.Transaction.pop.key": (WHOLE, lambda o, x: o.tx.pop(x)),
    "dbm.Transaction.range.start": (OPTIONAL, lambda o, x: o.tx.range(x)),
    "dbm.Transaction.range.stop": (OPTIONAL, lambda o, x: o.tx.range(None, x)),
    "dbm.Transaction.prefix.prefix": (WHOLE, lambda o, x: o.tx.prefix(x)),
    "dbm.Transaction[key] =": (WHOLE, lambda o, x: o.tx.__setitem__(x, "v")),
    "del dbm.Transaction[key]": (WHOLE, lambda o, x: o.tx.__delitem__(x)),
    "dbm.Transaction.update": (WHOLE, lambda o, x: o.tx.update({"k": x})),
    "store.Store.get.key": (WHOLE, lambda o, x: o.store.get(x)),
    "store.Store.put.key": (WHOLE, lambda o, x: o.store.put(x, "v")),
    "store.Store.put.value": (WHOLE, lambda o, x: o.store.put("k", x)),
    "store.Store.delete.key": (WHOLE, lambda o, x: o.store.delete(x)),
    "store.Store.compare_and_swap.key": (
        WHOLE,
        lambda o, x: o.store.compare_and_swap(x, None, None),
    ),
    "store.Store.compare_and_swap.expected": (
        OPTIONAL,
        lambda o, x: o.store.compare_and_swap("k", x, "w"),
    ),
    "store.Store.compare_and_swap.new": (
        OPTIONAL,
        lambda o, x: o.store.compare_and_swap("n", None, x),
    ),
    "store.Store.multi_get.keys": (WHOLE, lambda o, x: o.store.multi_get([x])),
    "store.Store.history.key": (WHOLE, lambda o, x: o.store.history(x)),
    "store.Store.pop.key": (WHOLE, lambda o, x: o.store.pop(x)),
    "store.Store.setdefault.key": (WHOLE, lambda o, x: o.store.setdefault(x, "v")),
    "store.Store.setdefault.default": (WHOLE, lambda o, x: o.store.setdefault("n", x)),
    "store.Store.update.key": (WHOLE, lambda o, x: o.store.update(x, lambda old: old)),
    "store.Batch.put.key": (WHOLE, lambda o, x: o.batch.put(x, "v")),
    "store.Batch.put.value": (WHOLE, lambda o, x: o.batch.put("k", x)),
    "store.Batch.delete.key": (WHOLE, lambda o, x: o.batch.delete(x)),
    "store.Snapshot.get.key": (WHOLE, lambda o, x: o.moment.get(x)),
    "store.Snapshot.multi_get.keys": (WHOLE, lambda o, x: o.moment.multi_get([x])),
}

# Arguments that are neither: what is told where they are of another kind.
OTHERS = {
    "dbm.open.path": ("path", lambda o: dbm.open(5, "c")),
    "dbm.Database.backup.path": ("path", lambda o: o.db.backup(5)),
    "dbm.Database.run.fn": ("callable", lambda o: o.db.run(5)),
    "dbm.Database.update.other": ("iterable", lambda o: o.db.update(5)),
    "dbm.Table.run.fn": ("callable", lambda o: o.table.run(5)),
    "dbm.Table.update.other": ("iterable", lambda o: o.table.update(5)),
    "dbm.Transaction.update.other": ("iterable", lambda o: o.tx.update(5)),
    "store.open.path": ("path", lambda o: kv.open(5, "c")),
    "store.verify.path": ("path", lambda o: kv.verify(5)),
    "store.Store.backup.path": ("path", lambda o: o.store.backup(5)),
    "store.Store.write.batch": ("batch", lambda o: o.store.write([])),
    "store.Store.update.change": ("callable", lambda o: o.store.update("k", 5)),
    "ssd.simulate.workload": ("workload", lambda o: ssd.simulate(5)),
    "ssd.trace.workload": ("path", lambda o: ssd.trace(5)),
    "ssd.sweep.grid": ("grid", lambda o: ssd.sweep(5)),
    "ssd.sweep.grid of others": ("grid", lambda o: ssd.sweep([5])),
    "ssd.simulate.profile": ("profile", lambda o: ssd.simulate(LOAD, profile=5)),
    "ssd.sweep.executor": ("executor", lambda o: ssd.sweep({"workload": LOAD}, 5)),
    "ssd.Result.plot.what": ("what to plot", lambda o: ssd.simulate(LOAD).plot(5)),
    "ssd.Result.picture.what": ("what to plot", lambda o: ssd.simulate(LOAD).picture("x")),
    "ssd.Table.best.figure": (
        "figure",
        lambda o: ssd.sweep({"workload": LOAD}, progress=False).best("x"),
    ),
}

# Arguments that take anything.
ANYTHING = re.compile(
    r"""(dbm|store)\.\w+\.(get|pop)\.default | dbm\.Transaction\.update\.more
    | dbm\.\w+\.update\.kwds | store\.Store\.update\.more | ssd\.sweep\.progress
    | ssd\.Result\.plot\.ax | ssd\.Table\.best\.largest | ssd\.Picture\.save\.path
    | ssd\.Table\.(index|count)\.\w+ | ssd\.Columns\.get\.\w+ | \w+\.Row\.\w+
    | store\.(Entry|Verified|Version)\.\w+\.\w+ | ssd\.Part\.\w+\.\w+""",
    re.VERBOSE,
)


def public_calls():
    """Every public function and method, by its name."""
    for module, called in ((dbm, "dbm"), (kv, "store"), (ssd, "ssd")):
        for name in module.__all__:
            thing = getattr(module, name)
            if not inspect.isclass(thing):
                yield f"{called}.{name}", thing
            elif not issubclass(thing, BaseException):
                for method in dir(thing):
                    if not method.startswith("_") and callable(getattr(thing, method)):
                        yield f"{called}.{name}.{method}", getattr(thing, method)


def test_the_tables_name_every_argument():
    named = {*NUMBERS_AND_CHOICES, *DATA, *OTHERS}
    missing = []
    for call, thing in public_calls():
        for argument in inspect.signature(thing).parameters:
            name = f"{call}.{argument}"
            if argument != "self" and name not in named and not ANYTHING.fullmatch(name):
                missing.append(name)
    assert missing == []


@pytest.mark.parametrize("argument", NUMBERS_AND_CHOICES)
def test_an_argument_that_does_not_fit_is_one_sentence_with_its_name(argument, opened):
    takes, call = NUMBERS_AND_CHOICES[argument]
    name = argument.rpartition(".")[2]
    for shown, value in GIVEN.items():
        if shown in takes:
            call(opened, value)
            continue
        with pytest.raises((TypeError, ValueError, dbm.error)) as raised:
            call(opened, value)
        told = str(raised.value)
        # Of a text that means nothing the text itself is told.
        names = [name] if shown != "str" else [name, "x"]
        assert any(word in told for word in names) and "\n" not in told, (shown, told)
        assert "Py" not in told and len(told) < 300, (shown, told)
        # Another kind of object is a TypeError, a value out of range is not.
        if shown in ("list", "object", "bytes"):
            assert type(raised.value) is TypeError, (shown, told)
        if shown in ("-1", "2**64") and " whole " in told:
            assert isinstance(raised.value, ValueError), (shown, told)


@pytest.mark.parametrize("argument", DATA)
def test_a_key_or_value_of_another_kind_is_refused(argument, opened):
    takes, call = DATA[argument]
    for shown in ("-1", "1.5", "None", "list", "object"):
        if shown in takes:
            call(opened, GIVEN[shown])
            continue
        with pytest.raises(TypeError, match="^keys and values are bytes, bytearray or str, not "):
            call(opened, GIVEN[shown])
    # A str that is not Unicode text has no bytes in UTF-8.
    with pytest.raises(UnicodeEncodeError):
        call(opened, "\ud800")
    assert (opened.db["k"], opened.table["k"], opened.store["k"]) == (b"v", b"v", b"v")


@pytest.mark.parametrize("argument", OTHERS)
def test_an_argument_of_another_kind_is_refused(argument, opened):
    about, call = OTHERS[argument]
    with pytest.raises((TypeError, ValueError)) as raised:
        call(opened)
    assert about in str(raised.value).lower().replace("pathlike", "path"), str(raised.value)


def test_numbers_of_numpy_are_numbers(opened):
    numpy = pytest.importorskip("numpy")
    dbm.open(opened.folder / "new", "c", numpy.int32(0o600), cache_bytes=numpy.int64(1 << 20))
    opened.store.put("k", "v", ttl=numpy.float32(1.5), expires_at=numpy.uint64(9))
    seen = ssd.simulate(LOAD, limit=numpy.int64(5), wa=numpy.bool_(True), speed=numpy.float64(2))
    assert seen.requests == 5


# Calls of what can end, and how they are asked.
OF_A_DATABASE = {
    "clear": lambda db: db.clear(),
    "close": None,
    "drop_table": lambda db: db.drop_table("t"),
    "firstkey": lambda db: db.firstkey(),
    "get": lambda db: db.get("k"),
    "items": lambda db: list(db.items()),
    "keys": lambda db: db.keys(),
    "nextkey": lambda db: db.nextkey("a"),
    "pop": lambda db: db.pop("k"),
    "popitem": lambda db: db.popitem(),
    "prefix": lambda db: list(db.prefix("k")),
    "range": lambda db: list(db.range()),
    "reorganize": lambda db: db.reorganize(),
    "backup": lambda db: db.backup("copy.db"),
    "run": lambda db: db.run(len),
    "setdefault": lambda db: db.setdefault("k"),
    "snapshot": lambda db: db.snapshot(),
    "stats": lambda db: db.stats(),
    "sync": lambda db: db.sync(),
    "table": lambda db: db.table("t"),
    "tables": lambda db: db.tables(),
    "transaction": lambda db: db.transaction(),
    "update": lambda db: db.update(k="v"),
    "values": lambda db: list(db.values()),
    "[]": lambda db: db["k"],
    "[] =": lambda db: db.__setitem__("k", "v"),
    "del": lambda db: db.__delitem__("k"),
    "in": lambda db: "k" in db,
    "iter": lambda db: list(db),
    "len": len,
}
OF_A_SNAPSHOT = {
    name: OF_A_DATABASE[name]
    for name in "firstkey get items keys nextkey prefix range table values [] in iter len".split()
} | {"close": None, "with": lambda snapshot: snapshot.__enter__()}
OF_A_TRANSACTION = {
    name: OF_A_DATABASE[name]
    for name in (
        "clear get items keys pop popitem prefix range setdefault table update values".split()
        + "[] in iter len".split()
    )
} | {
    "commit": lambda tx: tx.commit(),
    "rollback": None,
    "[] =": OF_A_DATABASE["[] ="],
    "del": OF_A_DATABASE["del"],
}
OF_A_STORE = {
    "backup": lambda store: store.backup("copy.kv"),
    "batch": None,
    "clear": lambda store: store.clear(),
    "close": None,
    "compact": lambda store: store.compact(),
    "compare_and_swap": lambda store: store.compare_and_swap("k", "v", "w"),
    "delete": lambda store: store.delete("k"),
    "get": lambda store: store.get("k"),
    "history": lambda store: store.history("k"),
    "items": lambda store: list(store.items()),
    "keys": lambda store: list(store.keys()),
    "multi_get": lambda store: store.multi_get(["k"]),
    "pop": lambda store: store.pop("k"),
    "popitem": lambda store: store.popitem(),
    "put": lambda store: store.put("k", "v"),
    "scan": lambda store: list(store.scan()),
    "setdefault": lambda store: store.setdefault("k", "v"),
    "snapshot": lambda store: store.snapshot(),
    "stats": lambda store: store.stats(),
    "sync": lambda store: store.sync(),
    "update": lambda store: store.update("k", lambda old: old),
    "values": lambda store: list(store.values()),
    "write": lambda store: store.write(store.batch()),
    "[]": lambda store: store["k"],
    "[] =": lambda store: store.__setitem__("k", "v"),
    "del": lambda store: store.__delitem__("k"),
    "in": lambda store: "k" in store,
    "iter": lambda store: list(store),
    "len": len,
    "at": lambda store: store.get("k", at=1),
}
OF_A_MOMENT = {
    name: OF_A_STORE[name] for name in "get items keys multi_get scan values [] in iter".split()
} | {"close": None, "with": lambda moment: moment.__enter__(), "time": None}


@pytest.mark.parametrize(
    "kind, calls",
    [
        (dbm.Database, OF_A_DATABASE),
        (dbm.Table, OF_A_DATABASE),
        (dbm.Snapshot, OF_A_SNAPSHOT),
        (dbm.Transaction, OF_A_TRANSACTION),
        (kv.Store, OF_A_STORE),
        (kv.Snapshot, OF_A_MOMENT),
    ],
)
def test_the_tables_name_every_call(kind, calls):
    public = {name for name in dir(kind) if not name.startswith("_")}
    assert public - set(calls) == set()


def refusals(thing, calls, error, why):
    """The calls that are not refused as they should be."""
    wrong = {}
    for name, call in calls.items():
        if call is None:
            continue
        try:
            wrong[name] = call(thing)
        except error as refused:
            if str(refused) != why:
                wrong[name] = str(refused)
        except BaseException as another:
            wrong[name] = repr(another)
    return wrong


def test_what_has_ended_says_so(opened):
    o = opened
    inner, other, scan = o.before.table("t"), o.tx.table("t"), o.db.range()
    o.tx.rollback()
    o.before.close()
    o.moment.close()
    ended = "the transaction has ended"
    assert refusals(o.tx, OF_A_TRANSACTION, dbm.error, ended) == {}
    assert refusals(other, OF_A_TRANSACTION, dbm.error, ended) == {}
    closed = "the snapshot is closed"
    assert refusals(o.before, OF_A_SNAPSHOT, dbm.error, closed) == {}
    assert refusals(inner, OF_A_SNAPSHOT, dbm.error, closed) == {}
    assert refusals(o.moment, OF_A_MOMENT, kv.error, closed) == {}
    o.db.close()
    o.store.close()
    closed = "the database is closed"
    assert refusals(o.db, OF_A_DATABASE, dbm.error, closed) == {}
    assert refusals(o.table, OF_A_DATABASE, dbm.error, closed) == {}
    assert refusals(o.store, OF_A_STORE, kv.error, "the store is closed") == {}
    # A scan that began before goes on, and each object can be ended twice.
    assert list(scan) == [(b"k", b"v")]
    for thing in (o.tx, o.before, o.moment, o.db, o.store, inner, other, o.table):
        getattr(thing, "rollback" if thing in (o.tx, other) else "close")()
        assert "senko_flash" in repr(thing)


def test_a_snapshot_is_closed_by_its_block_and_frees_the_file(opened):
    with opened.db.snapshot() as before, opened.store.snapshot() as moment:
        assert before["k"] == moment["k"] == b"v"
        opened.db["k"] = opened.store["k"] = "w"
        assert before["k"] == moment["k"] == b"v" and before.table("t")["k"] == b"v"
    opened.close()
    # Both are held by their names still, and neither holds the lock of its file.
    with dbm.open(opened.folder / "data", "w") as db, kv.open(opened.folder / "data.kv", "w") as s:
        assert db["k"] == s["k"] == b"w"
    with pytest.raises(dbm.error, match="closed"):
        before["k"]
    with pytest.raises(kv.error, match="closed"):
        moment["k"]


def test_the_child_of_a_fork_is_refused_whatever_it_calls(opened):
    o = opened
    rows, scan = o.db.range(), o.store.scan()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        told = "the %s was opened before a fork; open it again in the child"
        of_db, of_store = told % "database", told % "store"
        ends = {"close": lambda it: it.close()}
        wrong = [
            refusals(o.db, OF_A_DATABASE | ends, dbm.error, of_db),
            refusals(o.table, OF_A_DATABASE | ends, dbm.error, of_db),
            refusals(o.before, OF_A_SNAPSHOT | ends, dbm.error, of_db),
            refusals(
                o.tx, OF_A_TRANSACTION | {"rollback": lambda it: it.rollback()}, dbm.error, of_db
            ),
            refusals(o.store, OF_A_STORE | ends, kv.error, of_store),
            refusals(o.moment, OF_A_MOMENT | ends, kv.error, of_store),
            refusals(rows, {"next": next}, dbm.error, of_db),
            refusals(scan, {"next": next}, kv.error, of_store),
        ]
        os.write(writer, repr([found for found in wrong if found]).encode())
        # The child lets go of its parent's objects, and does nothing to the files.
        del o.db, o.table, o.before, o.tx, o.store, o.moment, rows, scan
        # Its own openings work.
        with dbm.open(o.folder / "own", "c") as own:
            own["k"] = "v"
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        assert pipe.read() == "[]"
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert o.db["k"] == o.store["k"] == next(rows)[1] == next(scan).value == b"v"


def test_what_is_open_is_not_pickled_and_errors_are(opened):
    o = opened
    things = [o.db, o.table, o.before, o.tx, o.store, o.batch, o.db.range(), iter(o.store)]
    for thing in things:
        for work in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="open the file again where it is needed"):
                work(thing)
        with pytest.raises(TypeError, match="is not pickled"):
            pickle.dumps(thing, 0)
    with pytest.raises(TypeError, match="is not pickled"):
        pickle.dumps(o.moment)
    for error in (
        dbm.error(2, "text"),
        dbm.Conflict("text"),
        kv.error(28, "text"),
        ssd.error("text"),
    ):
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error) and again.args == error.args
    row = kv.Entry(b"k", b"v", 1, None)
    assert pickle.loads(pickle.dumps(row)) == row
    columns = ssd.trace(LOAD).requests()
    again = pickle.loads(pickle.dumps(columns))
    assert {name: list(again[name]) for name in again} == {n: list(columns[n]) for n in columns}
    result = ssd.simulate(LOAD)
    assert pickle.loads(pickle.dumps(result)) == copy.deepcopy(result) == result
