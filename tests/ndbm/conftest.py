# SPDX-License-Identifier: Apache-2.0
"""What the tests with programs of others share: the installed libraries, and programs under the
preloaded one.
"""

import os
import shutil
import subprocess

import pytest

from missing import missing

@pytest.fixture
def prefix():
    """Where `cargo xtask install` put the libraries."""
    prefix = os.environ.get("SENKO_PREFIX")
    if not prefix:
        missing("SENKO_PREFIX is not set")
    return prefix


@pytest.fixture
def perl_sources():
    """Where the files of Perl's source package lie."""
    folder = os.environ.get("SENKO_PERL_SOURCES")
    if not folder:
        missing("Perl's own tests are not there: Debian's source package could not be fetched")
    return folder


@pytest.fixture
def program():
    """Finds a program of the system."""

    def find(name):
        path = shutil.which(name, path="/usr/bin:/bin") or shutil.which(name)
        if not path:
            missing("%s is not installed" % name)
        return path

    return find


@pytest.fixture
def run(prefix, tmp_path):
    """Runs a command in a new folder, with our library preloaded or without, and gives its
    output.
    """
    number = 0

    def run(command, preload=True, folder=None, **surroundings):
        nonlocal number
        number += 1
        if folder is None:
            folder = tmp_path / ("run%d" % number)
            folder.mkdir()
        env = {k: v for k, v in os.environ.items() if not k.startswith(("SENKO_NDBM", "PERL5", "RUBY", "PYTHON"))}
        env.update(surroundings, HOME=str(tmp_path))
        if preload:
            env["LD_PRELOAD"] = os.path.join(prefix, "lib", "libsenko_ndbm.so")
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        assert done.returncode == 0, "%s ended with %d\n%s%s" % (command, done.returncode, done.stdout, done.stderr)
        run.folder = folder
        return done.stdout

    return run
