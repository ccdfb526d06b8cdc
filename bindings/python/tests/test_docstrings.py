# SPDX-License-Identifier: Apache-2.0
"""Docstrings: every public call has one, and occurs in an example that runs."""

import doctest
import inspect
import re

import pytest

from senko_flash import dbm, ssd
from senko_flash import store as kv

MODULES = {"dbm": dbm, "store": kv, "ssd": ssd}
# These call functions that docs/python shows, or need packages that may not be installed.
ELSEWHERE = {"to_pandas", "to_arrow", "plot"}


def public(module):
    """The public things of a module: functions and classes by their names."""
    return {name: getattr(module, name) for name in module.__all__}


def methods(thing):
    """The public methods of a class that the package itself has."""
    for name in dir(thing):
        method = getattr(thing, name)
        standard = getattr(method, "__module__", None) in ("collections.abc", "_collections_abc")
        builtin = name in dir(tuple) or isinstance(thing, type) and name in dir(OSError)
        if not name.startswith("_") and callable(method) and not standard and not builtin:
            yield name, method


@pytest.mark.parametrize("name", MODULES)
def test_every_public_call_has_a_docstring_and_an_example(name):
    module = MODULES[name]
    documented = [module, *public(module).values()]
    texts = [inspect.getdoc(thing) or "" for thing in documented]
    lines = [line for text in texts for line in text.splitlines()]
    examples = "\n".join(line for line in lines if line.startswith((">>> ", "... ")))
    wanting = []
    for called, thing in public(module).items():
        own = inspect.getdoc(thing)
        if own is None or own == inspect.getdoc(object):
            wanting.append(f"{called} has no docstring")
            continue
        if inspect.isclass(thing) and issubclass(thing, BaseException):
            continue
        if ">>> " not in own:
            wanting.append(f"{called} has no example")
        if not inspect.isclass(thing):
            continue
        for method, function in methods(thing):
            if not inspect.getdoc(function):
                wanting.append(f"{called}.{method} has no docstring")
            if method not in ELSEWHERE and not re.search(rf"\.{method}\(", examples):
                wanting.append(f"{called}.{method} is in no example")
    assert wanting == []


@pytest.mark.parametrize("name", MODULES)
def test_every_example_runs(name):
    module = MODULES[name]
    parser, runner = doctest.DocTestParser(), doctest.DocTestRunner()
    for called, thing in {"": module, **public(module)}.items():
        # An example of a module of the package finds what that module has.
        names = vars(inspect.getmodule(thing) or module)
        text = (inspect.getdoc(thing) or "") + "\n"
        test = parser.get_doctest(text, dict(names), f"{name}.{called}", None, 0)
        runner.run(test)
    assert runner.tries > 5 and runner.failures == 0
