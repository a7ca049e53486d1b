# SPDX-License-Identifier: Apache-2.0
"""Compiled programs."""

from __future__ import annotations

import os

from relaxvm._ffi import runtime_function, tvm_ffi

_to_bytes = runtime_function("vm.executable_to_bytes")
_from_bytes = runtime_function("vm.executable_from_bytes")
_save = runtime_function("vm.save_executable")
_import_module = runtime_function("vm.import_module")


class Executable:
    """A module that can be saved, and run after `jit()` (here at once: code is made when compiling)."""

    def __init__(self, mod: tvm_ffi.Module) -> None:
        self.mod = mod
        self._functions: dict[str, tvm_ffi.Function] = {}

    def __getitem__(self, name: str) -> tvm_ffi.Function:
        return self.mod[name]

    def __call__(self, *args):
        return self.mod["main"](*args)

    def jit(self, *args, **kwargs) -> tvm_ffi.Module:
        """The module itself."""
        return self.mod

    def export_library(
        self,
        path: str | os.PathLike,
        *,
        interchange: str | None = None,
        workspace_dir: str | os.PathLike | None = None,
    ) -> None:
        """Writes one shared library that holds code, weights and bytecode.  No `workspace_dir` is needed for that.

        A `path` that ends with .a gives a static library, which needs no linker here: whoever links all of its objects
        into a shared one has the same.
        With `interchange="tvm"` the file runs in TVM 0.27's virtual machine as well; what TVM has no builtin for is
        refused by name.
        """
        from relaxvm._compiler import func

        if interchange not in (None, "tvm"):
            raise ValueError(f'interchange={interchange!r} is unknown; use "tvm" or leave it out')
        func("compiler.export_library")(self.mod, os.fspath(path), interchange == "tvm")


class VMExecutable(Executable):
    """A compiled Relax program: bytecode, constants and kernels."""

    KIND = "relax.VMExecutable"

    def __init__(self, mod: tvm_ffi.Module) -> None:
        if mod.kind != self.KIND:
            raise TypeError(f"a module of kind {mod.kind!r} is no VM executable")
        super().__init__(mod)

    def stats(self) -> str:
        """Constants, functions and instructions in numbers."""
        return self.mod["stats"]()

    def as_text(self) -> str:
        """The instructions, one a line."""
        return self.mod["as_text"]()

    def as_python(self) -> str:
        """A Python program that rebuilds the same executable, weights included, and leaves it in `ex`."""
        return self.mod["as_python"]()

    def function_names(self) -> list[str]:
        return [str(name) for name in self.mod["function_names"]()]

    def has_function(self, name: str) -> bool:
        return bool(self.mod["has_function"](name))

    def constant(self, index: int):
        """A constant of the pool."""
        return self.mod["get_constant"](index)

    def import_module(self, module: tvm_ffi.Module) -> None:
        """Adds a module whose functions are found before the builtins and the global functions."""
        _import_module(self.mod, module)

    def to_bytes(self) -> bytes:
        """Bytecode and constants, in TVM's format, without native code."""
        return bytes(_to_bytes(self.mod))

    @staticmethod
    def from_bytes(data: bytes) -> VMExecutable:
        """What `to_bytes` wrote; native code is to be imported."""
        return VMExecutable(_from_bytes(data))

    def save(
        self, path: str | os.PathLike, *, weights: str | None = None, kernels: str | None = None
    ) -> None:
        """Writes bytecode and constants.

        `weights` and `kernels` name files beside it: large constants go to the first, which is mapped when the
        executable is loaded, and native code to the second, a shared library.  Without `kernels` native code is left
        out.
        """
        target = os.fspath(path)
        if kernels is not None:
            from relaxvm._compiler import func

            func("compiler.export_kernels")(
                self.mod, os.path.join(os.path.dirname(target), kernels)
            )
        _save(self.mod, target, weights or "", kernels or "")
