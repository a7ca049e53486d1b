# SPDX-License-Identifier: Apache-2.0
"""Modules and executables from files, and how long their functions take."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Sequence

from relaxvm._ffi import runtime_function, tvm_ffi
from relaxvm._registry import get_global_func
from relaxvm.runtime.device import Device
from relaxvm.runtime.executable import VMExecutable

_load_module = runtime_function("runtime.load_module")
_time_function = runtime_function("runtime.time_function")


class BenchmarkResult:
    """Times of repeated runs, in seconds."""

    def __init__(self, results: Sequence[float]) -> None:
        self.results = tuple(results)
        self.mean = statistics.fmean(self.results)
        self.median = statistics.median(self.results)
        self.min = min(self.results)
        self.max = max(self.results)
        self.std = statistics.pstdev(self.results)

    def __repr__(self) -> str:
        times = f"min={self.min:.3g}, mean={self.mean:.3g}, median={self.median:.3g}"
        return f"BenchmarkResult({times}, max={self.max:.3g}, std={self.std:.3g})"

    def __str__(self) -> str:
        names = ("mean", "median", "max", "min", "std")
        head = " ".join(f"{f'{name} (ms)':>12}" for name in names)
        values = " ".join(f"{1e3 * getattr(self, name):12.4f}" for name in names)
        return f"Execution time summary:\n{head}\n{values}"


class _Module(tvm_ffi.Module):
    """tvm-ffi's module with TVM's methods."""

    def time_evaluator(
        self,
        func_name: str,
        dev: Device,
        number: int = 10,
        repeat: int = 1,
        min_repeat_ms: int = 0,
        cooldown_interval_ms: int = 0,
        repeats_to_cooldown: int = 1,
        f_preproc: str = "",
    ) -> Callable[..., BenchmarkResult]:
        """A function that calls `func_name` repeatedly and returns its times in seconds.

        After one call that warms up it measures `repeat` times the mean of `number` calls, of more when those take less
        than `min_repeat_ms`, and waits for `dev`.  `f_preproc` names a global function that is called with the
        arguments before each of the `repeat` measurements.  Raises AttributeError when there is no such function.
        """
        function = self.get_function(func_name, query_imports=True)
        preproc = get_global_func(f_preproc) if f_preproc else None
        pause = cooldown_interval_ms / 1e3, repeats_to_cooldown

        def evaluate(*args) -> BenchmarkResult:
            times = _time_function(
                dev, function, preproc, number, repeat, min_repeat_ms / 1e3, *pause, *args
            )
            return BenchmarkResult(times)

        return evaluate


def _module_class() -> type:
    """What tvm-ffi returns modules as.  A class that another package (apache-tvm) has set stays: it has the method."""
    current = type(tvm_ffi.system_lib("relaxvm"))
    if current is not tvm_ffi.Module:
        return current
    tvm_ffi.register_object("ffi.Module")(_Module)
    return _Module


Module = _module_class()


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
