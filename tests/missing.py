# SPDX-License-Identifier: Apache-2.0
"""How a missing program counts."""

import os

import pytest


def missing(why):
    """A skip, or a failure where CI runs."""
    if os.environ.get("CI") == "true":
        pytest.fail(why)
    pytest.skip(why)
