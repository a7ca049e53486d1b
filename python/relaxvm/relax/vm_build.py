# SPDX-License-Identifier: Apache-2.0
"""`relax.build`, as Relax users know it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from relaxvm._compile import compile as _compile
from relaxvm.ir.module import IRModule
from relaxvm.runtime.executable import VMExecutable

__all__ = ["VMExecutable", "build"]


def build(
    mod: IRModule,
    target: Any = None,
    params: Mapping[str, Any] | None = None,
    relax_pipeline: str | Callable[[IRModule], IRModule] | None = "default",
    tir_pipeline: str | None = "default",
    exec_mode: str = "bytecode",
    *,
    system_lib: bool | None = None,
) -> VMExecutable:
    """Compiles a module; `relaxvm.compile` with TVM's order of parameters."""
    if system_lib:
        raise NotImplementedError("system_lib: export a shared library instead")
    built = _compile(
        mod,
        target,
        params=params,
        relax_pipeline=relax_pipeline,
        tir_pipeline=tir_pipeline,
        exec_mode=exec_mode,
    )
    assert isinstance(built, VMExecutable)
    return built
