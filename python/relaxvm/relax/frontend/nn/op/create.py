# SPDX-License-Identifier: Apache-2.0
"""Tensors from nothing."""

from __future__ import annotations

from collections.abc import Sequence

from relaxvm.ir.expr import Expr
from relaxvm.relax import op
from relaxvm.relax.expr import DataTypeImm, ShapeExpr, StringImm, const, prim_value

from ..tensor import Tensor, expr_of, wrap_nested

Shape = Sequence[int | Expr]


def full(
    shape: Shape, fill_value: Tensor | float, dtype: str = "float32", name: str = "full"
) -> Tensor:
    """One value everywhere: a tensor without dimensions, or a number."""
    value = expr_of(fill_value) if isinstance(fill_value, Tensor) else const(fill_value, dtype)
    return wrap_nested(op.full(ShapeExpr(list(shape)), value, dtype), name)


def zeros(shape: Shape, dtype: str = "float32", name: str = "zeros") -> Tensor:
    """Zeros."""
    return wrap_nested(op.zeros(ShapeExpr(list(shape)), dtype), name)


def ones(shape: Shape, dtype: str = "float32", name: str = "ones") -> Tensor:
    """Ones."""
    return wrap_nested(op.ones(ShapeExpr(list(shape)), dtype), name)


def empty(shape: Shape, dtype: str = "float32", name: str = "empty") -> Tensor:
    """Memory with whatever is in it; for results that a program fills in place."""
    call = op.builtin.alloc_tensor(
        ShapeExpr(list(shape)), DataTypeImm(dtype), prim_value(0), StringImm("global")
    )
    return wrap_nested(call, name)


def arange(
    start: int,
    end: int | None = None,
    step: int = 1,
    dtype: str | None = "float32",
    name: str = "arange",
) -> Tensor:
    """Numbers from `start` (0 when `end` is None, which then is `start`) up to `end`."""
    first, last = (0, start) if end is None else (start, end)
    return wrap_nested(op.arange(first, last, step, dtype), name)


def triu(x: Tensor, diagonal: int = 0, name: str = "triu") -> Tensor:
    """Zeros below a diagonal."""
    return wrap_nested(op.triu(expr_of(x), diagonal), name)
