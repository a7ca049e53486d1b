# SPDX-License-Identifier: Apache-2.0
"""Modules and executables from files."""

from __future__ import annotations

import os

from relaxvm._ffi import runtime_function, tvm_ffi
from relaxvm.runtime.executable import VMExecutable

Module = tvm_ffi.Module

_load_module = runtime_function("runtime.load_module")


def load_module(path: str | os.PathLike) -> VMExecutable | Module:
    """Loads a compiled model or a library of functions.

    A file holds native code that runs in this process: load only files that you trust.  Damage is found before any of
    it runs.
    """
    module = _load_module(os.fspath(path))
    return VMExecutable(module) if module.kind == VMExecutable.KIND else module


def load(path: str | os.PathLike) -> VMExecutable:
    """Loads a compiled model; anything else is an error."""
    module = load_module(path)
    if not isinstance(module, VMExecutable):
        raise ValueError(
            f"{os.fspath(path)} holds functions, but no model; use relaxvm.runtime.load_module"
        )
    return module
