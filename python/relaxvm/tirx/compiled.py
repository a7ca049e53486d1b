# SPDX-License-Identifier: Apache-2.0
"""Tensor programs as functions, without a Relax function around them."""

from __future__ import annotations

import os
from typing import Any

import tvm_ffi

from .. import _compiler
from ..ir.module import IRModule
from ..runtime.executable import Executable
from .function import PrimFunc


class Programs(Executable):
    """Compiled programs: `programs["name"]` is a function of tensors and numbers, `programs.main` the only one.

    `mod` is the module of native code that holds them.
    """

    def __init__(self, executable: tvm_ffi.Module, names: list[str]) -> None:
        super().__init__(executable.imports[0])
        self.executable, self.names = executable, names

    def __getitem__(self, name: str) -> tvm_ffi.Function:
        if name not in self.names:
            raise KeyError(f"there is no program {name!r}, only {', '.join(self.names)}")
        return self.mod.get_function(name)

    @property
    def main(self) -> tvm_ffi.Function:
        name = "main" if len(self.names) > 1 else self.names[0]
        return self[name]

    def __call__(self, *args: Any) -> Any:
        return self.main(*args)

    def export_library(
        self,
        path: str | os.PathLike,
        *,
        interchange: str | None = None,
        workspace_dir: str | os.PathLike | None = None,
    ) -> None:
        """Writes a shared library of the programs, for `relaxvm.runtime.load_module` and any program with tvm-ffi."""
        if interchange not in (None, "tvm"):
            raise ValueError(f'interchange={interchange!r} is unknown; use "tvm" or leave it out')
        _compiler.func("compiler.export_kernels")(self.executable, os.fspath(path))


def build(
    mod: PrimFunc | IRModule, target: Any = None, pipeline: str | None = "default"
) -> Programs:
    """Compiles tensor programs for `target` ("llvm": this machine's CPU).  Their names are their global symbols.

    Raises TypeError for a module with other functions, NotImplementedError for a `pipeline` other than "default".
    """
    from relaxvm._compile import compile as _compile

    for name, function in _named(mod).items():
        if not isinstance(function, PrimFunc):
            raise TypeError(f"{name} is no tensor program; compile it with relaxvm.compile")
    if not _named(mod):
        raise ValueError("there is no tensor program to compile")
    built = _compile(mod, target, tir_pipeline=pipeline)
    assert isinstance(built, Programs)
    return built


def inspect_source(program: PrimFunc, target: Any = None, fmt: str = "asm") -> str:
    """The code that a tensor program becomes: assembly ("asm"), or LLVM IR before its passes ("ll").

    A program that is not scheduled is scheduled first.  Raises ValueError for another `fmt`.
    """
    from relaxvm._compile import _options

    programs = _with_symbols(program)
    options = {**_options(target), "stop_after": "scheduled"}
    scheduled = _compiler.func("pipeline.Build")(IRModule(programs), options)["module"]
    inspect = _compiler.func("compiler.inspect_source")
    return str(inspect(scheduled, *programs, options["target"], fmt))


def build_programs(mod: PrimFunc | IRModule, options: dict[str, Any]) -> Programs:
    """The programs of a module of nothing else, compiled with the options of `relaxvm.compile`."""
    programs = _with_symbols(mod)
    built = _compiler.func("pipeline.Build")(IRModule(programs), options)
    result = Programs(built["executable"], list(programs))
    result.timings = [tuple(row) for row in built["timings"]]
    return result


def _named(mod: PrimFunc | IRModule) -> dict[str, Any]:
    if isinstance(mod, PrimFunc):
        return {"main": mod}
    return {var.name_hint: function for var, function in mod.functions.items()}


def _with_symbols(mod: PrimFunc | IRModule) -> dict[str, PrimFunc]:
    """The programs under the names that their code has; with a name, one that nothing calls stays."""
    programs: dict[str, PrimFunc] = {}
    for name, function in _named(mod).items():
        if "global_symbol" in function.attrs:
            name = str(function.attrs["global_symbol"])
        programs[name] = function.with_attr("global_symbol", name)
    return programs
