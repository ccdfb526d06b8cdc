# SPDX-License-Identifier: Apache-2.0
"""CPython's own tests of dbm and shelve, on this DBM."""

import os
import dbm as standard
import pickle
import unittest

import pytest

import senko_flash.dbm

try:
    from test import mapping_tests, test_dbm, test_shelve
except ImportError:
    if os.environ.get("CI") == "true":
        raise
    pytest.skip("skipped: Python has no package of its tests", allow_module_level=True)


def standing_in(case):
    """The module `dbm`, whose opening is ours while a test runs."""
    case.addCleanup(setattr, standard, "open", standard.open)
    case.addCleanup(setattr, standard, "error", standard.error)
    standard.open, standard.error = senko_flash.dbm.open, senko_flash.dbm.error


class TestAnyDBM(test_dbm.AnyDBMTestCase, unittest.TestCase):
    module = senko_flash.dbm

    def setUp(self):
        standing_in(self)
        super().setUp()


class OnShelf(test_shelve.TestShelveFileBase):
    dbm_mod = senko_flash.dbm

    def setUp(self):
        standing_in(self)
        super().setUp()


for proto in range(pickle.HIGHEST_PROTOCOL + 1):
    bases = (OnShelf, mapping_tests.BasicTestMappingProtocol)
    name = "TestShelf%d" % proto
    globals()[name] = type(name, bases, {"_args": {"protocol": proto}})
del bases
