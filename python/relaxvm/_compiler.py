# SPDX-License-Identifier: Apache-2.0
"""Loads the compiler library, once, when something first needs it."""

from __future__ import annotations

import ctypes
import functools
import os
import pathlib
from typing import Any

import tvm_ffi


def _library_folders() -> list[pathlib.Path]:
    here = pathlib.Path(__file__).resolve().parent
    named = os.environ.get("RELAXVM_LIBRARY_PATH")
    folders = [pathlib.Path(named)] if named else []
    return [*folders, here / "lib", here.parents[1] / "build" / "lib"]


@functools.cache
def load() -> ctypes.CDLL:
    """The compiler library, its types and functions registered."""
    for folder in _library_folders():
        path = folder / "librelaxvm.so"
        if path.exists():
            lib = ctypes.CDLL(str(path), mode=ctypes.RTLD_LOCAL)
            if lib.relaxvm_init() != 0:
                raise ImportError(f"{path}: the compiler library could not register itself")
            return lib
    searched = ", ".join(str(f) for f in _library_folders())
    raise ImportError(f"librelaxvm.so is in none of {searched}; build it with ./dev build")


def func(name: str) -> Any:
    """The compiler's global function `relaxvm.<name>`."""
    load()
    return tvm_ffi.get_global_func("relaxvm." + name)
