# SPDX-License-Identifier: Apache-2.0
"""Products of matrices, and what is made of them."""

from __future__ import annotations

from typing import Any

from relaxvm.relax import op

from ..graph import Graph
from ..registry import aten_op


@aten_op("mm.default", "bmm.default", "matmul.default")
def matmul(g: Graph, a: Any, b: Any) -> Any:
    return op.matmul(a, b)


@aten_op("linear.default")
def linear(g: Graph, x: Any, weight: Any, bias: Any = None) -> Any:
    turned = weight if g.rank(weight) == 1 else g.emit(op.permute_dims(weight, [1, 0]))
    product = op.matmul(x, turned)
    return product if bias is None else op.add(g.emit(product), bias)


@aten_op("addmm.default", "baddbmm.default")
def addmm(g: Graph, x: Any, a: Any, b: Any, beta: float = 1, alpha: float = 1) -> Any:
    product = g.emit(op.matmul(a, b))
    dtype = g.dtype(product)
    if alpha != 1:
        product = g.emit(op.multiply(product, g.const(alpha, dtype)))
    if beta == 0:
        return product
    if beta != 1:
        x = g.emit(op.multiply(x, g.const(beta, dtype)))
    return op.add(x, product)


@aten_op("outer.default")
def outer(g: Graph, a: Any, b: Any) -> Any:
    return op.multiply(g.emit(op.expand_dims(a, [1])), b)


@aten_op("_trilinear.default")
def trilinear(
    g: Graph,
    a: Any,
    b: Any,
    c: Any,
    expand1: Any,
    expand2: Any,
    expand3: Any,
    sumdim: Any,
    unroll_dim: int = 1,
) -> Any:
    """The sum over `sumdim` of the product of three tensors, each with axes of 1 where it has none."""
    pairs = ((a, expand1), (b, expand2), (c, expand3))
    wide = [g.emit(op.expand_dims(x, list(axes))) if axes else x for x, axes in pairs]
    product = g.emit(op.multiply(g.emit(op.multiply(wide[0], wide[1])), wide[2]))
    return op.sum(product, list(sumdim))


@aten_op("_cdist_forward.default")
def cdist(g: Graph, a: Any, b: Any, p: float, compute_mode: int | None = None) -> Any:
    """Distances of all pairs of rows in the norm of `p`."""
    rows, columns = g.emit(op.expand_dims(a, [-2])), g.emit(op.expand_dims(b, [-3]))
    difference = g.emit(op.abs(g.emit(op.subtract(rows, columns))))
    dtype = g.dtype(difference)
    if p == float("inf"):
        return op.max(difference, [-1])
    if p == 2:
        return op.sqrt(g.emit(op.sum(g.emit(op.multiply(difference, difference)), [-1])))
    if p == 0:
        return op.sum(g.cast(g.emit(op.not_equal(difference, g.const(0, dtype))), dtype), [-1])
    powers = g.emit(op.sum(g.emit(op.power(difference, g.const(p, dtype))), [-1]))
    return op.power(powers, g.const(1 / p, dtype))
