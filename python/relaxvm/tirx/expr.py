# SPDX-License-Identifier: Apache-2.0
"""Scalar expressions.  Operators of two operands are one C++ class; here each has a name of its own that makes such a
node and answers isinstance."""

from __future__ import annotations

from typing import Any

import tvm_ffi

from .. import _compiler
from ..ir.base import plain
from ..ir.expr import BINARY_OPS, Expr, Var

_binary = _compiler.func("prim.Binary")
_cast = _compiler.func("prim.Cast")
_select = _compiler.func("prim.Select")
_let = _compiler.func("prim.Let")
_ramp = _compiler.func("prim.Ramp")
_broadcast = _compiler.func("prim.Broadcast")
_shuffle = _compiler.func("prim.Shuffle")
_intrin = _compiler.func("prim.Intrin")
_intrin_name = _compiler.func("prim.IntrinName")
_const = _compiler.func("prim.Const")


@tvm_ffi.register_object("relaxvm.prim.Binary")
class Binary(Expr):
    """An operator of two operands; `op_name` is one of BINARY_OPS."""

    def __init__(self, op_name: str, a: Any, b: Any) -> None:
        index = BINARY_OPS.index(op_name)
        self.__init_handle_by_constructor__(_binary, index, plain(a), plain(b))

    @property
    def op_name(self) -> str:
        return BINARY_OPS[self._op]


class _ByOperator(type):
    """isinstance(e, Add) asks for the operator of `e`."""

    index: int

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, Binary) and instance._op == cls.index

    def __call__(cls, a: Any, b: Any, span: Any = None) -> Expr:
        return _binary(cls.index, plain(a), plain(b))


def _operator(name: str) -> type:
    index = BINARY_OPS.index(name)
    return _ByOperator(name, (), {"index": index, "__doc__": f"The operator {name}, not folded."})


Add, Sub, Mul, Div, Mod = map(_operator, ("Add", "Sub", "Mul", "Div", "Mod"))
FloorDiv, FloorMod, Min, Max = map(_operator, ("FloorDiv", "FloorMod", "Min", "Max"))
EQ, NE, LT, LE, GT, GE = map(_operator, ("EQ", "NE", "LT", "LE", "GT", "GE"))
And, Or = map(_operator, ("And", "Or"))
BitAnd, BitOr, BitXor = map(_operator, ("BitAnd", "BitOr", "BitXor"))
ShiftLeft, ShiftRight = map(_operator, ("ShiftLeft", "ShiftRight"))


@tvm_ffi.register_object("relaxvm.prim.Cast")
class Cast(Expr):
    """A conversion, not folded."""

    def __init__(self, dtype: Any, value: Any, span: Any = None) -> None:
        self.__init_handle_by_constructor__(_cast, tvm_ffi.dtype(str(dtype)), plain(value))


@tvm_ffi.register_object("relaxvm.prim.Select")
class Select(Expr):
    """One of two values, both of which may be computed."""

    def __init__(self, condition: Any, true_value: Any, false_value: Any, span: Any = None) -> None:
        self.__init_handle_by_constructor__(
            _select, plain(condition), plain(true_value), plain(false_value)
        )


@tvm_ffi.register_object("relaxvm.prim.Let")
class Let(Expr):
    """`body`, in which `var` is `value`."""

    def __init__(self, var: Var, value: Any, body: Any, span: Any = None) -> None:
        self.__init_handle_by_constructor__(_let, var, plain(value), plain(body))


@tvm_ffi.register_object("relaxvm.prim.Ramp")
class Ramp(Expr):
    """base, base + stride, ... : `lanes` values."""

    def __init__(self, base: Any, stride: Any, lanes: int, span: Any = None) -> None:
        self.__init_handle_by_constructor__(_ramp, plain(base), plain(stride), int(lanes))


@tvm_ffi.register_object("relaxvm.prim.Broadcast")
class Broadcast(Expr):
    def __init__(self, value: Any, lanes: int, span: Any = None) -> None:
        self.__init_handle_by_constructor__(_broadcast, plain(value), int(lanes))


@tvm_ffi.register_object("relaxvm.prim.Shuffle")
class Shuffle(Expr):
    def __init__(self, vectors: Any, indices: Any, span: Any = None) -> None:
        self.__init_handle_by_constructor__(_shuffle, list(vectors), [int(i) for i in indices])


@tvm_ffi.register_object("relaxvm.prim.Intrin")
class Intrin(Expr):
    """A named function of scalars: exp, if_then_else, ..."""

    def __init__(self, name: str, args: Any, dtype: Any = None) -> None:
        dtype = None if dtype is None else tvm_ffi.dtype(str(dtype))
        self.__init_handle_by_constructor__(_intrin, name, [plain(a) for a in args], dtype)

    @property
    def name(self) -> str:
        return str(_intrin_name(self._intrin))

    @property
    def op(self) -> Any:
        return _NamedOp("tirx." + self.name)


class _NamedOp:
    def __init__(self, name: str) -> None:
        self.name = name


class _NotClass(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, Intrin) and instance.name == "Not"

    def __call__(cls, a: Any, span: Any = None) -> Expr:
        return Intrin("Not", [a])


Not = _NotClass("Not", (), {"__doc__": "Logical negation, not folded."})


def const(value: Any, dtype: Any = None, span: Any = None) -> Expr:
    """An immediate; ints are int32 and floats float32 unless `dtype` says otherwise."""
    if dtype is None:
        dtype = (
            "bool" if isinstance(value, bool) else "int32" if isinstance(value, int) else "float32"
        )
    value = value.item() if hasattr(value, "item") else value
    return _const(tvm_ffi.dtype(str(dtype)), value)


def SizeVar(name: str, dtype: Any = "int32", span: Any = None) -> Var:
    """A variable that is never negative; dimensions are anyway."""
    return Var(name, dtype)
