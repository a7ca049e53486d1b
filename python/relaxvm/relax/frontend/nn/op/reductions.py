# SPDX-License-Identifier: Apache-2.0
"""Products, sums, extremes, and orders along a dimension."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from relaxvm.ir.expr import Call
from relaxvm.relax import op

from ..tensor import Tensor, expr_of, wrap_nested


def _reduction(record: Callable[..., Call], default: str, doc: str) -> Callable[..., Tensor]:
    def apply(
        x: Tensor,
        axis: int | list[int] | None = None,
        keepdims: bool = False,
        name: str = default,
    ) -> Tensor:
        return wrap_nested(record(expr_of(x), axis, keepdims), name)

    apply.__name__ = apply.__qualname__ = default
    apply.__doc__ = doc
    return apply


sum = _reduction(op.sum, "sum", "The sum over dimensions; axis None: over all.")
max = _reduction(op.max, "max", "The largest element over dimensions; axis None: over all.")
min = _reduction(op.min, "min", "The smallest element over dimensions; axis None: over all.")


def matmul(a: Tensor, b: Tensor, out_dtype: str | None = None, name: str = "matmul") -> Tensor:
    """The product of matrices; dimensions before the last two are broadcast."""
    return wrap_nested(op.matmul(expr_of(a), expr_of(b), out_dtype=out_dtype), name)


def cumsum(
    data: Tensor,
    axis: int | None = None,
    dtype: str | None = None,
    exclusive: bool | None = None,
    name: str = "cumsum",
) -> Tensor:
    """Running sums; axis None: of the flat tensor; `exclusive` leaves the element itself out."""
    return wrap_nested(op.cumsum(expr_of(data), axis, dtype, bool(exclusive)), name)


def sort(x: Tensor, axis: int = -1, descending: bool = False, name: str = "sort") -> Tensor:
    """The elements in order along a dimension."""
    return wrap_nested(op.sort(expr_of(x), axis, descending), name)


def argsort(
    data: Tensor,
    axis: int = -1,
    descending: bool = False,
    dtype: str = "int32",
    name: str = "argsort",
) -> Tensor:
    """The indices that sort."""
    return wrap_nested(op.argsort(expr_of(data), axis, descending, dtype), name)


def topk(
    data: Tensor,
    k: int = 1,
    axis: int = -1,
    ret_type: str = "both",
    largest: bool = True,
    dtype: str = "int32",
    name: str = "topk",
) -> Any:
    """The k largest (or smallest) elements and their indices, or one of both ("values", "indices")."""
    return wrap_nested(op.topk(expr_of(data), k, axis, ret_type, largest, dtype), name)
