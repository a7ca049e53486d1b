# SPDX-License-Identifier: Apache-2.0
"""Products of matrices, and what is made of them."""

from __future__ import annotations

from typing import Any

from relaxvm import relax, tirx
from relaxvm.relax import op

from ..errors import UnsupportedProgram
from ..graph import Graph
from ..registry import aten_op


@aten_op("mm.default", "bmm.default", "matmul.default")
def matmul(g: Graph, a: Any, b: Any) -> Any:
    return op.matmul(a, b)


@aten_op("_int_mm.default")
def int_mm(g: Graph, a: Any, b: Any) -> Any:
    return op.matmul(a, b, out_dtype="int32")


@aten_op("_grouped_mm.default", "transformers::grouped_mm_fallback.default")
def grouped_mm(
    g: Graph, a: Any, b: Any, offs: Any = None, bias: Any = None, out_dtype: Any = None
) -> Any:
    """Products of groups: rows of `a` up to offs[i] by the i-th matrix of `b`."""
    if offs is None:
        return op.matmul(a, b)
    if g.rank(a) != 2 or g.rank(b) != 3 or bias is not None:
        raise UnsupportedProgram("groups of columns, or with a bias")
    count = g.shape(b)[0]
    if not isinstance(count, int):
        raise UnsupportedProgram("a number of groups that is not known")
    ends = [tirx.Var(f"{g.node.name}_{i}", "int64") for i in range(count)]
    known = g.emit(op.tensor_to_shape(g.cast(offs, "int64")))
    g.builder.match_cast(known, relax.ShapeType(ends))
    parts = []
    for i, (first, last) in enumerate(zip([0, *ends[:-1]], ends)):
        rows = g.emit(op.strided_slice(a, [0], [first], [last], [1], assume_inbound=True))
        matrix = g.emit(op.strided_slice(b, [0], [i], [i + 1], [1]))
        parts.append(g.emit(op.matmul(rows, g.emit(op.squeeze(matrix, [0])))))
    return g.builder.match_cast(
        g.emit(op.concat(parts, 0)), relax.TensorType(g.result_shape(), g.result_dtype())
    )


@aten_op("linear.default")
def linear(g: Graph, x: Any, weight: Any, bias: Any = None) -> Any:
    turned = weight if g.rank(weight) == 1 else g.emit(op.permute_dims(weight, [1, 0]))
    product = op.matmul(x, turned)
    return product if bias is None else op.add(g.emit(product), bias)


@aten_op("addmm.default", "addmv.default", "baddbmm.default")
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


@aten_op("addbmm.default")
def addbmm(g: Graph, x: Any, a: Any, b: Any, beta: float = 1, alpha: float = 1) -> Any:
    """The sum of all products of the batch: one product, of rows that are joined."""
    batch, rows, inner = g.shape(a)
    joined = g.emit(op.permute_dims(a, [1, 0, 2]))
    joined = g.emit(op.reshape(joined, [rows, batch * inner]))
    return addmm(g, x, joined, g.emit(op.reshape(b, [batch * inner, g.shape(b)[2]])), beta, alpha)


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
