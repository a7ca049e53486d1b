# SPDX-License-Identifier: Apache-2.0
"""Folders for files that a program needs for a while."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref


class TempDirectory:
    """A folder that is removed with the object, with `remove`, or at the end of a `with`; `path` is where it lies."""

    def __init__(self, custom_path: str | None = None, keep_for_debug: bool | None = None) -> None:
        if custom_path is not None:
            os.makedirs(custom_path, exist_ok=True)
        self.path = custom_path or tempfile.mkdtemp(prefix="relaxvm-")
        self._remove = weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)
        if keep_for_debug:
            self._remove.detach()

    def __enter__(self) -> TempDirectory:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()

    def remove(self) -> None:
        """Removes the folder and what is in it; once is enough, twice does no harm."""
        self._remove()

    @property
    def temp_dir(self) -> str:
        return self.path

    def __truediv__(self, other: str) -> str:
        return self.relpath(str(other))

    def relpath(self, name: str) -> str:
        """The path of a file in the folder."""
        return os.path.join(self.path, name)

    def listdir(self) -> list[str]:
        """The names in the folder."""
        return os.listdir(self.path)


def tempdir(custom_path: str | None = None, keep_for_debug: bool | None = None) -> TempDirectory:
    """A new folder, or the one at `custom_path`; it stays after the program only with `keep_for_debug`."""
    return TempDirectory(custom_path, keep_for_debug)
