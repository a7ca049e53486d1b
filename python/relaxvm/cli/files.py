# SPDX-License-Identifier: Apache-2.0
"""Reads what the options name, and writes files that are whole or not there."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

# An array header states a size before any data comes: nothing larger is believed.
MAX_ARRAY_BYTES = 64 << 30


def parse_shapes(texts: list[str]) -> dict[str, list[int | str]]:
    """x=1,3,h,w -> {"x": [1, 3, "h", "w"]}"""
    shapes: dict[str, list[int | str]] = {}
    for text in texts:
        name, found, dims = text.rpartition("=")
        parts = (
            [d.strip() for d in dims.replace("x", ",").split(",")]
            if _numeric(dims)
            else [d.strip() for d in dims.split(",")]
        )
        if not found or not name or (any(not d for d in parts) and dims):
            raise ValueError(
                f"--shape {text}: write the name of an input and its dimensions, as x=1,3,48,192"
            )
        if name in shapes:
            raise ValueError(f"--shape {text}: '{name}' is given twice")
        shapes[name] = [_dim(d, text) for d in parts if d]
    return shapes


def _numeric(dims: str) -> bool:
    return all(c.isdigit() or c in "x, " for c in dims)


def _dim(text: str, option: str) -> int | str:
    if text.lstrip("-").isdecimal():
        value = int(text)
        if value < 0 or value >= 1 << 40:
            raise ValueError(f"--shape {option}: {value} is no size of a dimension")
        return value
    return text


def read_inputs(texts: list[str]) -> dict[str, np.ndarray]:
    """Arrays of the options `x=data.npy` and `data.npz`."""
    arrays: dict[str, np.ndarray] = {}
    for text in texts:
        found = _read_one(text)
        for name, array in found.items():
            if name in arrays:
                raise ValueError(f"--input {text}: the input '{name}' is given twice")
            arrays[name] = array
    return arrays


def _read_one(text: str) -> dict[str, np.ndarray]:
    name, found, path = text.rpartition("=")
    path = path if found else text
    if not os.path.isfile(path):
        raise FileNotFoundError(errno.ENOENT, "there is no such file", path)
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            if not name:
                raise ValueError("write which input it is: x=" + path)
            return {name: loaded}
        with loaded:
            if name:
                raise ValueError("an .npz file names its inputs itself; leave out '" + name + "='")
            return {key: loaded[key] for key in loaded.files}
    except (ValueError, OSError, EOFError) as e:
        raise ValueError(f"--input {text}: {e}") from e
    except Exception as e:  # zipfile and zlib have errors of their own
        raise ValueError(f"--input {text}: is no .npy or .npz file, or is damaged: {e}") from e


def check_writable(path: Path) -> None:
    """An error now rather than after minutes of work."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "is a folder; give the name of a file", str(path))
    folder = path.absolute().parent
    if not folder.is_dir():
        raise FileNotFoundError(errno.ENOENT, "there is no such folder", str(folder))
    with tempfile.TemporaryFile(dir=folder):
        pass


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[str]:
    """Gives a name to write to; the file appears under `path` when all went well, else not at all."""
    with tempfile.TemporaryDirectory(dir=path.absolute().parent, prefix=".relaxvm-") as folder:
        scratch = os.path.join(folder, path.name)
        yield scratch
        os.replace(scratch, path)
