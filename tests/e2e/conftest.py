# SPDX-License-Identifier: Apache-2.0
"""What the end-to-end tests share: the binary under test, and the system's programs."""

import os
import shutil

import pytest

from missing import missing


@pytest.fixture
def senko():
    """The path of the binary."""
    binary = os.environ.get("SENKO_BIN")
    if not binary:
        missing("SENKO_BIN is not set")
    return os.path.abspath(binary)


@pytest.fixture
def program():
    """Finds a program of the system."""

    def find(name):
        path = shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")
        if not path:
            missing("%s is not installed" % name)
        return path

    return find
