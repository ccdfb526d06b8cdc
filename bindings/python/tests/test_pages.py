# SPDX-License-Identifier: Apache-2.0
"""The pages of the documentation: their examples run, and their pictures are what these draw."""

import doctest
import os
import pathlib
import subprocess
import sys

import pytest

from senko_flash import ssd

PAGES = pathlib.Path(__file__).parents[3] / "docs/python"


@pytest.mark.parametrize("page", sorted(page.name for page in PAGES.glob("*.md")))
def test_a_page_runs(page, monkeypatch, tmp_path):
    pytest.importorskip("numpy")
    saved = {}

    def save(picture, path):
        saved[os.path.basename(path)] = picture.svg

    monkeypatch.setattr(ssd.Picture, "save", save)
    done = doctest.testfile(str(PAGES / page), module_relative=False)
    assert done.attempted > 10 and done.failed == 0
    text = (PAGES / page).read_text()
    assert all(f"]({name})" in text for name in saved)
    for name, svg in saved.items():
        # SENKO_DRAW=1 draws them anew.
        if os.environ.get("SENKO_DRAW") == "1":
            (PAGES / name).write_text(svg)
        assert (PAGES / name).read_text() == svg


def test_the_program_of_the_guide_to_embedding(tmp_path):
    program = PAGES.parents[1] / "examples/accounts.py"
    command = [sys.executable, str(program), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout.splitlines() == ["ann has 70", "ben has 130", "ann 3"], done.stderr
    assert {"accounts.backup", "sessions.backup"} < set(os.listdir(tmp_path))


def test_every_picture_is_of_a_page():
    text = "".join(page.read_text() for page in PAGES.glob("*.md"))
    assert all(f"]({picture.name})" in text for picture in PAGES.glob("*.svg"))
