# SPDX-License-Identifier: Apache-2.0
"""Matrix products."""

from __future__ import annotations

from relaxvm.relax import op

from .. import block_weights, byte_products
from ..broadcasting import fitted, joint_shape
from ..graph import Graph, Product, known
from ..registry import Expr, onnx_op


@onnx_op("MatMul", since=1)
def matmul(g: Graph, a: Expr, b: Expr) -> Expr:
    found = _product_of_quantized(g, False)
    if found is not None:
        return byte_products.with_bias(g, found, None, None, 0)
    left, right = inner_agree(g, a, b)
    y = block_weights.product_of(g, left, 1)
    return op.matmul(left, right) if y is None else y


def _product_of_quantized(g: Graph, transposed: bool) -> Product | None:
    """The product of dequantized tensors by way of the integers.  None: of another form."""
    a, b = g.dequantized_input(0), g.dequantized_input(1)
    if a is None or b is None or not byte_products.worth_it(g, a, b):
        return None
    rank = g.rank(b.values)
    if rank < 2 or not byte_products.scales_are(g, b, rank - 2 if transposed else rank - 1):
        return None
    right = turned(g, b.values) if transposed else b.values
    left, right = inner_agree(g, a.values, right)
    y = byte_products.matmul(g, g.emit(left), g.emit(right), a.zero, b.zero)
    return None if y is None else byte_products.scaled(g, y, a, b, g.rank(y.plain) - 1)


def turned(g, matrix):
    array = known(matrix)
    if array is not None:
        return g.constant(array.T)
    return g.emit(op.permute_dims(matrix, [1, 0]))


def inner_agree(g: Graph, a: Expr, b: Expr) -> list:
    """Operands whose inner dimensions surely agree, checked at run time where unknown."""
    left, right = g.shape(a), g.shape(b)
    if not left or not right:
        return [a, b]  # the operator's own rule reports scalars
    inner = -2 if len(right) > 1 else -1
    left[-1] = right[inner] = next(
        (d for d in (left[-1], right[inner]) if isinstance(d, int)), left[-1]
    )
    if len(left) > 2 and len(right) > 2:
        batch = joint_shape(g, [left[:-2], right[:-2]])
        return [fitted(g, a, [*batch, *left[-2:]]), fitted(g, b, [*batch, *right[-2:]])]
    return [g.checked(a, left), g.checked(b, right)]


@onnx_op("Gemm", since=7)
def gemm(
    g: Graph,
    a: Expr,
    b: Expr,
    c: Expr | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,  # noqa: N803: ONNX's name
    transB: int = 0,
) -> Expr:
    found = None
    if not transA and g.node.op_type == "Gemm":
        found = _product_of_quantized(g, bool(transB))
    if found is not None and alpha == beta == 1.0:
        if c is None or g.shape(c) == g.shape(found.sums.plain)[1:]:
            what = None if c is None else g.dequantized_input(2)
            return byte_products.with_bias(g, found, c, what, 1)
    if found is not None:
        y = g.emit(found.real(g))
    else:
        left = g.emit(op.permute_dims(a, [1, 0])) if transA else a
        right = g.emit(op.permute_dims(b, [1, 0])) if transB else b
        left, right = inner_agree(g, left, right)
        y = None
        if g.node.op_type == "Gemm":
            y = block_weights.product_of(g, left, 1, bool(transB))
        y = g.emit(op.matmul(left, right) if y is None else y)
    if alpha != 1.0:
        y = op.multiply(y, g.scalar(alpha, a))
    if c is None or beta == 0.0:
        return y
    c = c if beta == 1.0 else op.multiply(c, g.scalar(beta, c))
    return op.add(*g.agree(y, c))


@onnx_op("MatMulInteger", since=10)
@onnx_op("MatMulInteger16", since=1, domain="com.microsoft")
def matmul_integer(
    g: Graph, a: Expr, b: Expr, a_zero: Expr | None = None, b_zero: Expr | None = None
) -> Expr:
    a, b = inner_agree(g, a, b)
    y = byte_products.matmul(g, g.emit(a), g.emit(b), a_zero, b_zero)
    if y is not None:
        return y.total(g)
    a, b = _centred(g, a, a_zero, -1), _centred(g, b, b_zero, -2)
    return op.matmul(*inner_agree(g, a, b))


def _centred(g: Graph, x: Expr, zero: Expr | None, axis: int) -> Expr:
    """`x` minus its zero point, as int32.  A vector has one for each row of A, each column of B."""
    x = g.emit(op.astype(x, "int32"))
    if zero is None:
        return x
    zero = g.emit(op.astype(zero, "int32"))
    if g.rank(zero) == 1 and axis == -1:
        zero = g.emit(op.expand_dims(zero, axis=[1]))
    return g.emit(op.subtract(*g.agree(x, zero)))


@onnx_op("Einsum", since=12)
def einsum(g: Graph, x: Expr, *rest: Expr, equation: str) -> Expr:
    equation = equation.replace(" ", "")
    return op.einsum(_sizes_agree(g, (x, *rest), equation.split("->")[0].split(",")), equation)


def _sizes_agree(g: Graph, operands: tuple, terms: list[str]) -> tuple:
    """Operands of einsum where a letter that has a number in one of them has it in all, checked at run time."""
    spelled, numbers = [], {}
    for operand, term in zip(operands, terms, strict=False):
        head, dots, tail = term.partition("...")
        shape = g.shape(operand)
        gap = len(shape) - len(head) - len(tail)
        if gap < 0 or (gap and not dots):
            return operands  # the operator's own rule reports it
        spelled.append([*head, *[""] * gap, *tail])
        named = zip(spelled[-1], shape, strict=True)
        numbers |= {n: d for n, d in named if n and isinstance(d, int) and d != 1}
    if len(spelled) != len(operands):
        return operands
    return tuple(
        g.checked(
            operand,
            [
                d if isinstance(d, int) else numbers.get(n, d)
                for n, d in zip(names, g.shape(operand), strict=True)
            ],
        )
        for operand, names in zip(operands, spelled, strict=True)
    )
