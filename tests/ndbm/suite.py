# SPDX-License-Identifier: Apache-2.0
"""Runs one of CPython's own tests. Called by test_programs.py, with our library preloaded."""

import dbm.ndbm
import importlib
import sys
import unittest

# The module tells at build time that it stands on Berkeley DB, which cannot have empty values. Here
# they are tested.
dbm.ndbm.library = "senko"
# A program that looks for the best library must find this one, even if gdbm's is installed.
sys.modules["_gdbm"] = None

with dbm.ndbm.open("proof", "c") as proof:
    proof["k"] = "v"

module = importlib.import_module("test." + sys.argv[1])
result = unittest.TextTestRunner(stream=sys.stdout, verbosity=2).run(unittest.defaultTestLoader.loadTestsFromModule(module))
failed = len(result.failures) + len(result.errors)
print("ran %d, failed %d, skipped %d" % (result.testsRun, failed, len(result.skipped)))
