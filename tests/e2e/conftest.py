# SPDX-License-Identifier: Apache-2.0
"""What the end-to-end tests share: the binary under test, and how a missing program counts."""

import os
import shutil

import pytest


def missing(why):
    """A skip, or a failure where CI runs."""
    if os.environ.get("CI") == "true":
        pytest.fail(why)
    pytest.skip(why)


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
