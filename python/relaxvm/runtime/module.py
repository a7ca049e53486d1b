# SPDX-License-Identifier: Apache-2.0
"""Modules and executables from files."""

from __future__ import annotations

import os
from collections.abc import Sequence

from relaxvm._ffi import runtime_function, tvm_ffi
from relaxvm.runtime.executable import VMExecutable

Module = tvm_ffi.Module

_load_module = runtime_function("runtime.load_module")


def load_module(
    path: str | os.PathLike,
    *,
    weights: str | os.PathLike | None = None,
    kernels: str | os.PathLike | None = None,
    verify_weights: bool = True,
) -> VMExecutable | Module:
    """Loads a compiled model or a library of functions.

    A file holds native code that runs in this process: load only files that you trust.  Damage is found before any of
    it runs.

    What `save` wrote names its weights and kernels, which lie beside it; `weights` and `kernels` name other files.
    Weights are mapped; `verify_weights=False` does not read them to compare their checksum.
    """
    files = ["" if file is None else os.fspath(file) for file in (weights, kernels)]
    module = _load_module(os.fspath(path), *files, verify_weights)
    return VMExecutable(module) if module.kind == VMExecutable.KIND else module


def load_static_library(path: str | os.PathLike, func_names: Sequence[str] | None = None) -> Module:
    """The functions that an object file exports as `__tvm_ffi_<name>`, to be imported by an executable.

    `export_library` links the file into what it writes.  Its code runs in this process: load only files that you trust.
    """
    from relaxvm._compiler import func

    module = func("compiler.load_object_file")(os.fspath(path))
    missing = [name for name in func_names or () if not module.implements_function(name)]
    if missing:
        raise ValueError(
            f"{os.fspath(path)} exports no function {', '.join(missing)}; define __tvm_ffi_<name>"
        )
    return module


def load(
    path: str | os.PathLike,
    *,
    weights: str | os.PathLike | None = None,
    kernels: str | os.PathLike | None = None,
    verify_weights: bool = True,
) -> VMExecutable:
    """Loads a compiled model, as `load_module` does; anything else is an error."""
    module = load_module(path, weights=weights, kernels=kernels, verify_weights=verify_weights)
    if not isinstance(module, VMExecutable):
        raise ValueError(
            f"{os.fspath(path)} holds functions, but no model; use relaxvm.runtime.load_module"
        )
    return module
