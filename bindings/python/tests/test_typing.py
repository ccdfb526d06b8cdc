# SPDX-License-Identifier: Apache-2.0
"""The types of the package: checked by mypy, the stubs against the module, a user's program."""

import importlib.metadata
import os
import subprocess
import sys

import pytest

import senko_flash

PROGRAM = """
import senko_flash.dbm, senko_flash.store
from senko_flash import ssd

with senko_flash.dbm.open("data", "c") as db:
    value: bytes = db["key"]
    keys: list[bytes] = db.keys()
    count: int = db.run(lambda tx: len(tx["key"]))
    table: senko_flash.dbm.Table = db.table("other", create=True)
with senko_flash.store.open("data.kv", "c") as store:
    found: list[bytes | None] = store.multi_get(["a"])
    moment: int = store.put("key", b"value", ttl=1.5)
result: ssd.Result = ssd.simulate("uniform:count=10", ftl="page")
years: float | None = result.years
rows: ssd.Table = ssd.sweep({"workload": "uniform:count=10"})
"""
WRONG = """
import senko_flash.dbm
senko_flash.dbm.open("data", "c")["key"] = 1
"""


def check(*args, cwd):
    pytest.importorskip("mypy")
    words = [sys.executable, "-m", *args]
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    return done.returncode, done.stdout + done.stderr


def test_the_package_is_typed_throughout(tmp_path):
    package = os.path.dirname(senko_flash.__file__)
    assert os.path.exists(os.path.join(package, "py.typed"))
    options = ["--strict", "--ignore-missing-imports"]
    code, said = check("mypy", *options, "-p", "senko_flash", cwd=tmp_path)
    assert code == 0, said


def test_the_package_finds_its_modules_and_its_version():
    program = "import senko_flash as s; print(s.dbm.open, s.store.open, s.ssd, s.__version__)"
    words = [sys.executable, "-c", program]
    said = subprocess.run(words, capture_output=True, text=True, check=True)
    assert said.stdout.strip().endswith(importlib.metadata.version("senko-flash"))
    assert not hasattr(senko_flash, "absent")


def test_the_stubs_tell_what_the_module_has(tmp_path):
    code, said = check("mypy.stubtest", "senko_flash._native", cwd=tmp_path)
    assert code == 0, said


def test_a_users_program(tmp_path):
    (tmp_path / "right.py").write_text(PROGRAM)
    code, said = check("mypy", "--strict", "right.py", cwd=tmp_path)
    assert code == 0, said
    (tmp_path / "wrong.py").write_text(WRONG)
    code, said = check("mypy", "--strict", "wrong.py", cwd=tmp_path)
    assert code == 1 and "wrong.py:3: error" in said
