# SPDX-License-Identifier: Apache-2.0
"""ExecBuilder: writes the bytecode of an executable by hand."""

from __future__ import annotations

import base64
import enum
from collections.abc import Callable, Sequence
from typing import Any

from relaxvm._ffi import runtime_function, tvm_ffi
from relaxvm.runtime.executable import VMExecutable

_SPECIAL = 1 << 54


class SpecialReg(enum.IntEnum):
    """Registers with a meaning of their own."""

    VOID_ARG = _SPECIAL
    VM_STATE = _SPECIAL + 1


class VMFuncKind(enum.IntEnum):
    """Kinds of functions in an executable."""

    PACKED_FUNC = 0
    VM_FUNC = 1
    VM_TIR_FUNC = 2


class _FunctionScope:
    def __init__(self, builder: ExecBuilder, name: str) -> None:
        self._builder = builder
        self._name = name

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind, value, trace) -> None:
        if kind is None:
            self._builder._end_function(self._name)


class ExecBuilder:
    """Builds an executable; operands are encoded words from `r`, `imm`, `c`, `f` and `convert_constant`."""

    def __init__(self) -> None:
        self._builder = runtime_function("exec_builder.create")()
        self._link: Callable[[Any, Any], VMExecutable] | None = None

    def _call(self, name: str, *args):
        return runtime_function(f"exec_builder.{name}")(self._builder, *args)

    def r(self, idx: int) -> int:
        """A register."""
        return runtime_function("exec_builder.r")(int(idx))

    def imm(self, value: int) -> int:
        """An integer of at most 56 bits."""
        return runtime_function("exec_builder.imm")(value)

    def c(self, idx: int) -> int:
        """A constant of the pool."""
        return runtime_function("exec_builder.c")(idx)

    def f(self, name: str) -> int:
        """A function as a value."""
        return self._call("f", name)

    def void_arg(self) -> int:
        return self.r(SpecialReg.VOID_ARG)

    def vm_state(self) -> int:
        return self.r(SpecialReg.VM_STATE)

    def declare_function(self, func_name: str, kind: VMFuncKind = VMFuncKind.PACKED_FUNC) -> None:
        self._call("declare_function", func_name, int(kind))

    def function(
        self,
        func_name: str,
        num_inputs: int | None = 0,
        param_names: Sequence[str] | None = None,
        *,
        kind: VMFuncKind = VMFuncKind.VM_FUNC,
        register_file_size: int = 0,
    ) -> _FunctionScope:
        """Begins a function; a context manager that ends it.

        With `register_file_size` registers stay as they are written; without, `get` numbers and counts them.
        """
        names = None if param_names is None else list(param_names)
        self._call("function", func_name, num_inputs or 0, names, int(kind), register_file_size)
        return _FunctionScope(self, func_name)

    def _end_function(self, func_name: str) -> None:
        self._call("end_function", func_name)

    def convert_constant(self, value) -> int:
        """A constant as an operand; equal constants are stored once, small integers become immediates."""
        if isinstance(value, (tuple, list)):
            value = tvm_ffi.Shape([int(dim) for dim in value])
        return self._call("convert_constant", value)

    def add_constant(self, value) -> int:
        """A constant of its own as an operand, whatever the pool holds already."""
        if type(value) is str:  # one that is no UTF-8 has surrogates; a DataType is a str as well
            return self._call("add_text", value.encode("utf-8", "surrogateescape"))
        return self._call("add_constant", value)

    def add_tensor(self, dtype: str, shape: Sequence[int], elements: str) -> int:
        """A tensor as a constant of its own; `elements` are its bytes, row-major and little-endian, in base 64."""
        dims = tvm_ffi.Shape([int(dim) for dim in shape])
        return self._call("add_tensor", tvm_ffi.dtype(dtype), dims, base64.b64decode(elements))

    def set_memory_scope(self, constant: int, scope: str) -> None:
        """Where a VM keeps the constant."""
        self._call("set_memory_scope", constant, scope)

    def _operand(self, arg) -> int:
        if isinstance(arg, int) and not isinstance(arg, bool):
            return arg
        return self.convert_constant(arg)

    def emit_call(self, name: str, args: Sequence | None = None, dst: int | None = None) -> None:
        """Calls a function; tuples, tensors, dtypes and strings among the arguments become constants."""
        words = [self._operand(arg) for arg in args or ()]
        self._call("emit_call", name, words, int(SpecialReg.VOID_ARG) if dst is None else dst)

    def emit_ret(self, result: int) -> None:
        self._call("emit_ret", result)

    def emit_goto(self, pc_offset: int) -> None:
        self._call("emit_goto", pc_offset)

    def emit_if(self, cond: int, false_offset: int) -> None:
        self._call("emit_if", cond, false_offset)

    def take_functions(self, link: Callable[[Any, Any], VMExecutable]) -> None:
        """Functions of a module, which `link(tensor programs, target)` makes an executable of.  RuntimeError when the
        builder holds functions already."""
        if self._link is not None:
            raise RuntimeError("the builder holds the functions of a module already; use a new one")
        self._link = link

    def link(self, programs: Any = None, target: Any = None) -> VMExecutable:
        """The executable, with the tensor programs of a module compiled for `target`."""
        if self._link is not None:
            return self._link(programs, target)
        executable = VMExecutable(self._call("get"))
        if programs is not None and len(programs.functions):
            from relaxvm.tirx import build

            executable.import_module(build(programs, target).mod)
        return executable

    def get(self) -> VMExecutable:
        """The executable; the builder can go on."""
        return self.link()
