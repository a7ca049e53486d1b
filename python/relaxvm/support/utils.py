# SPDX-License-Identifier: Apache-2.0
"""A temporary folder that goes with its last reference."""

from __future__ import annotations

import os
import tempfile


class TempDirectory:
    """`path` is the folder, `relpath` a name in it; it is removed when the object is."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="relaxvm-")
        self.path = self._folder.name

    def relpath(self, name: str) -> str:
        return os.path.join(self.path, name)

    def listdir(self) -> list[str]:
        return os.listdir(self.path)

    def remove(self) -> None:
        self._folder.cleanup()


def tempdir() -> TempDirectory:
    return TempDirectory()
