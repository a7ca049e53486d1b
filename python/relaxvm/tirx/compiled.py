# SPDX-License-Identifier: Apache-2.0
"""Tensor programs as functions, without a Relax function around them."""

from __future__ import annotations

from typing import Any

import tvm_ffi

from ..ir.module import IRModule
from ..runtime.executable import Executable
from .function import PrimFunc


class Programs(Executable):
    """Compiled programs: `programs["name"]` is a function of tensors and numbers, `programs.main` the only one."""

    def __init__(self, mod: tvm_ffi.Module, names: list[str]) -> None:
        super().__init__(mod)
        self.names = names

    def __getitem__(self, name: str) -> tvm_ffi.Function:
        if name not in self.names:
            raise KeyError(f"there is no program {name!r}, only {', '.join(self.names)}")
        return self.mod.imports[0].get_function(name)

    @property
    def main(self) -> tvm_ffi.Function:
        name = "main" if len(self.names) > 1 else self.names[0]
        return self[name]

    def __call__(self, *args: Any) -> Any:
        return self.main(*args)


def build(mod: PrimFunc | IRModule, target: Any = None) -> Programs:
    """Compiles tensor programs for `target` ("llvm": this machine's CPU).  Their names are their global symbols."""
    from relaxvm._compile import compile as _compile

    given = {"main": mod} if isinstance(mod, PrimFunc) else mod.functions
    programs: dict[str, PrimFunc] = {}
    for var, function in given.items():
        name = getattr(var, "name_hint", var)
        if not isinstance(function, PrimFunc):
            raise TypeError(f"{name} is no tensor program; compile it with relaxvm.compile")
        if "global_symbol" in function.attrs:
            name = str(function.attrs["global_symbol"])
        programs[name] = function.with_attr("global_symbol", name)
    if not programs:
        raise ValueError("there is no tensor program to compile")
    built = _compile(IRModule(programs), target)
    assert not isinstance(built, IRModule)
    return Programs(built.mod, list(programs))
