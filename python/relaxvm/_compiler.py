# SPDX-License-Identifier: Apache-2.0
"""Loads the compiler library, once, when something first needs it."""

from __future__ import annotations

from typing import Any

from relaxvm._ffi import load_compiler, tvm_ffi

load = load_compiler


def func(name: str) -> Any:
    """The compiler's global function `relaxvm.<name>`."""
    load_compiler()
    return tvm_ffi.get_global_func("relaxvm." + name)
