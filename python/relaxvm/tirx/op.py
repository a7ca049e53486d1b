# SPDX-License-Identifier: Apache-2.0
"""Functions of scalars.  Those of intrin_list.def are made from that list; the others are combinations of them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tvm_ffi

from .. import _compiler
from ..ir.base import plain
from ..ir.expr import BINARY_OPS, Expr
from ..ir.type import PrimType

_intrin = _compiler.func("prim.Intrin")
_make = _compiler.func("prim.Make")
_fold_cast = _compiler.func("prim.FoldCast")
_min_value = _compiler.func("prim.MinValue")
_max_value = _compiler.func("prim.MaxValue")
_ceil_div = _compiler.func("prim.CeilDiv")
_INT32 = tvm_ffi.dtype("int32")


def _scalar_function(name: str) -> Callable[..., Expr]:
    def function(*args: Any, dtype: Any = None, span: Any = None) -> Expr:
        dtype = None if dtype is None else tvm_ffi.dtype(str(dtype))
        return _intrin(name, [plain(a) for a in args], dtype)

    function.__name__ = function.__qualname__ = name
    return function


_TABLE = {str(name): _scalar_function(str(name)) for name in _compiler.func("prim.IntrinNames")()}
_TABLE.pop("Not")
_TABLE.pop("reinterpret")
globals().update(_TABLE)


def _two(name: str) -> Callable[..., Expr]:
    index = BINARY_OPS.index(name)

    def function(a: Any, b: Any, span: Any = None) -> Expr:
        return _make(index, plain(a), plain(b), _INT32)

    function.__name__ = function.__qualname__ = name
    return function


add, subtract, multiply = _two("Add"), _two("Sub"), _two("Mul")
truncdiv, truncmod = _two("Div"), _two("Mod")
floordiv, floormod, indexdiv, indexmod = (
    _two("FloorDiv"),
    _two("FloorMod"),
    _two("FloorDiv"),
    _two("FloorMod"),
)
min, max = _two("Min"), _two("Max")
bitwise_and, bitwise_or, bitwise_xor = _two("BitAnd"), _two("BitOr"), _two("BitXor")
shift_left, shift_right = _two("ShiftLeft"), _two("ShiftRight")
fmod = truncmod
fabs = _TABLE["abs"]
power = _TABLE["pow"]


def div(a: Any, b: Any, span: Any = None) -> Expr:
    """a / b; integers round towards zero."""
    return truncdiv(a, b)


def ceildiv(a: Any, b: Any, span: Any = None) -> Expr:
    """The least integer at or above a / b."""
    return _ceil_div(plain(a), plain(b))


power = _TABLE["pow"]


def exp10(x: Any) -> Expr:
    """10 to the power x."""
    return _intrin("pow", [10.0, plain(x)], None)


def hypot(x1: Any, x2: Any) -> Expr:
    """sqrt(x1^2 + x2^2)."""
    return _TABLE["sqrt"](add(multiply(x1, x1), multiply(x2, x2)))


def ldexp(x1: Any, x2: Any) -> Expr:
    """x1 times 2 to the power x2."""
    dtype = plain(x1).ty
    return multiply(x1, _TABLE["exp2"](cast(dtype, x2)))


def logaddexp(x1: Any, x2: Any) -> Expr:
    """log(exp(x1) + exp(x2)), without overflow in between."""
    distance = _TABLE["abs"](subtract(x1, x2))
    return add(max(x1, x2), _TABLE["log1p"](_TABLE["exp"](subtract(0.0, distance))))


def all(*args: Any, span: Any = None) -> Expr:
    """Do all conditions hold?"""
    return functools.reduce(_two("And"), [plain(a) for a in args])


def any(*args: Any, span: Any = None) -> Expr:
    """Does one condition hold?"""
    return functools.reduce(_two("Or"), [plain(a) for a in args])


def cast(dtype: Any, value: Any) -> Expr:
    """`value` as another dtype; immediates are converted at once."""
    if not isinstance(dtype, (str, tvm_ffi.dtype, PrimType)):
        dtype, value = value, dtype  # cast(value, dtype)
    name = dtype.dtype if isinstance(dtype, PrimType) else dtype
    return _fold_cast(tvm_ffi.dtype(str(name)), plain(value))


def reinterpret(dtype: Any, value: Any) -> Expr:
    """The same bits as another dtype of that size."""
    return _intrin("reinterpret", [plain(value)], tvm_ffi.dtype(str(dtype)))


def min_value(dtype: Any, span: Any = None) -> Expr:
    """The least value of a dtype; -inf for floats."""
    return _min_value(tvm_ffi.dtype(str(dtype)))


def max_value(dtype: Any, span: Any = None) -> Expr:
    """The greatest value of a dtype; inf for floats."""
    return _max_value(tvm_ffi.dtype(str(dtype)))


def infinity(dtype: Any, span: Any = None) -> Expr:
    return _max_value(tvm_ffi.dtype(str(dtype)))


NAMES = sorted(
    name
    for name, value in list(globals().items())
    if callable(value)
    and not name.startswith("_")
    and name not in ("Expr", "PrimType", "Callable", "is_prim_expr")
    and name != "Any"
)
__all__ = NAMES
