# SPDX-License-Identifier: Apache-2.0
"""`relax.build`, as Relax users know it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from relaxvm._compile import compile as _compile
from relaxvm.ir.module import IRModule
from relaxvm.relax.exec_builder import ExecBuilder
from relaxvm.relax.expr import Function
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


def _vmcodegen(builder: ExecBuilder, mod: IRModule, exec_mode: str = "bytecode") -> IRModule:
    """Gives the Relax functions of a lowered module to `builder`; what is left, the tensor programs, comes back and is
    for `_vmlink`.  ValueError for an `exec_mode` other than "bytecode" and "compiled"."""
    if exec_mode not in ("bytecode", "compiled"):
        raise ValueError(f'exec_mode is "bytecode" or "compiled", not {exec_mode!r}')
    left = {var: f for var, f in mod.functions.items() if not isinstance(f, Function)}

    def link(programs: IRModule | None, target: Any) -> VMExecutable:
        functions = dict(mod.functions.items())
        by_name = {var.name_hint: var for var in functions}
        for var, program in programs.functions.items() if programs is not None else ():
            functions[by_name.get(var.name_hint, var)] = program
        whole = IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)
        return build(whole, target, relax_pipeline=None, exec_mode=exec_mode)

    builder.take_functions(link)
    return IRModule(left)


def _vmlink(
    builder: ExecBuilder,
    target: Any,
    tir_mod: IRModule | None = None,
    ext_libs: Sequence[Any] | None = None,
    params: Mapping[str, Any] | None = None,
    *,
    system_lib: bool | None = None,
) -> VMExecutable:
    """The executable of what `builder` holds, with the tensor programs of `tir_mod` as native code and the modules
    `ext_libs`.  NotImplementedError for `params` (bind them with BindParams) and `system_lib`."""
    if params or system_lib:
        raise NotImplementedError(
            "_vmlink: bind params before; export a library instead of system_lib"
        )
    executable = builder.link(tir_mod, target)
    for library in ext_libs or ():
        executable.import_module(library)
    return executable
