# SPDX-License-Identifier: Apache-2.0
"""Folders for a while."""

from __future__ import annotations

import os

from relaxvm.contrib import utils


def test_a_folder_goes_with_what_is_in_it():
    folder = utils.tempdir()
    path = folder.relpath("a.txt")
    with open(path, "w") as file:
        file.write("a")
    assert folder.listdir() == ["a.txt"] and folder / "a.txt" == path
    folder.remove()
    folder.remove()
    assert not os.path.exists(folder.path)


def test_a_folder_goes_at_the_end_of_its_block():
    with utils.tempdir() as folder:
        assert os.path.isdir(folder.temp_dir)
    assert not os.path.exists(folder.path)


def test_a_folder_of_ones_own_may_stay(tmp_path):
    own = str(tmp_path / "own")
    utils.tempdir(own, keep_for_debug=True).remove()
    assert os.path.isdir(own)
