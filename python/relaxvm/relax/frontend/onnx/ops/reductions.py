# SPDX-License-Identifier: Apache-2.0
"""Reductions.  The axes are an attribute at first and an input later (ReduceSum: 13, the others: 18)."""

from __future__ import annotations

from relaxvm.relax import op

from ..graph import Graph
from ..registry import Axes, Expr, onnx_op


def _sum_of(before):
    return lambda g, x, axes, keepdims: op.sum(before(x), axis=axes, keepdims=keepdims)


def _log_sum_exp(g, x, axes, keepdims):
    # The maximum is taken out first, so that exp does not overflow; an infinite one would give NaN.
    top = op.max(x, axis=axes, keepdims=True)
    top = op.where(op.isinf(top), g.scalar(0, x), top)
    total = op.log(op.sum(op.exp(op.subtract(x, top)), axis=axes, keepdims=True))
    result = op.add(total, top)
    return result if keepdims else op.squeeze(result, axis=axes)


def _extreme(reduce):
    def build(g, x, axes, keepdims):
        if g.dtype(x) != "bool":
            return reduce(x, axis=axes, keepdims=keepdims)
        # The greatest of no element is false, the least is true: 0 and 255 of bytes without a sign.
        small = reduce(op.astype(x, "uint8"), axis=axes, keepdims=keepdims)
        return op.astype(small, "bool")

    return build


_REDUCTIONS = {
    "ReduceL1": _sum_of(lambda x: op.abs(x)),
    "ReduceL2": lambda g, x, a, k: op.sqrt(op.sum(op.multiply(x, x), axis=a, keepdims=k)),
    "ReduceLogSum": lambda g, x, a, k: op.log(op.sum(x, axis=a, keepdims=k)),
    "ReduceLogSumExp": _log_sum_exp,
    "ReduceMax": _extreme(op.max),
    "ReduceMean": lambda g, x, a, k: op.mean(x, axis=a, keepdims=k),
    "ReduceMin": _extreme(op.min),
    "ReduceProd": lambda g, x, a, k: op.prod(x, axis=a, keepdims=k),
    "ReduceSum": _sum_of(lambda x: x),
    "ReduceSumSquare": _sum_of(lambda x: op.multiply(x, x)),
}


# Of integers they are the real number, rounded towards zero; floats of 16 bits are summed up as wider ones.
_REAL = ("ReduceL2", "ReduceLogSum", "ReduceLogSumExp")


def _reduce(g, name, x, axes, keepdims):
    rank, dtype = g.rank(x), g.dtype(x)
    axes = sorted({g.axis(a, rank) for a in axes or range(rank)})
    return _built(g, name, x, axes, bool(keepdims), dtype)


def _built(g, name, x, axes, keepdims, dtype):
    if name not in _REAL:
        return _REDUCTIONS[name](g, x, axes, keepdims)
    real = g.emit(op.astype(x, "float64")) if "int" in dtype else g.widened(x)
    return g.as_type(_REDUCTIONS[name](g, real, axes, keepdims), dtype)


def _register(name, input_since):
    @onnx_op(name, since=1)
    def with_attribute(
        g: Graph, x: Expr, *, axes: list[int] | None = None, keepdims: int = 1
    ) -> Expr:
        return _reduce(g, name, x, axes, keepdims)

    @onnx_op(name, since=input_since)
    def with_input(
        g: Graph,
        x: Expr,
        axes: Axes | None = None,
        *,
        keepdims: int = 1,
        noop_with_empty_axes: int = 0,
    ) -> Expr:
        if not axes and noop_with_empty_axes:
            # The elementwise part of the reduction still happens (ReduceSumSquare squares).
            if name not in _ELEMENTWISE_PART:
                return x
            return _built(g, name, x, [], True, g.dtype(x))
        return _reduce(g, name, x, axes, keepdims)


_ELEMENTWISE_PART = ("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare")

for _name in _REDUCTIONS:
    _register(_name, 13 if _name == "ReduceSum" else 18)


def _arg_extreme(name, build):
    @onnx_op(name, since=1)
    def rule(
        g: Graph, x: Expr, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0
    ) -> Expr:
        axis = g.axis(axis, g.rank(x))
        if not select_last_index:
            return build(x, axis=axis, keepdims=bool(keepdims))
        size = g.shape(x)[axis]
        last = g.as_expr(g.dims_value([g.scalars.sub(size, 1)], ()), "axis")
        return op.subtract(last, build(op.flip(x, axis=axis), axis=axis, keepdims=bool(keepdims)))


_arg_extreme("ArgMax", op.argmax)
_arg_extreme("ArgMin", op.argmin)


def _running(name, since, build):
    @onnx_op(name, since=since)
    def rule(g: Graph, x: Expr, axis: Axes, *, exclusive: int = 0, reverse: int = 0) -> Expr:
        axis = g.axis(axis[0], g.rank(x))
        if reverse:
            x = op.flip(x, axis=axis)
        y = build(x, axis=axis, exclusive=bool(exclusive))
        return op.flip(y, axis=axis) if reverse else y


_running("CumSum", 11, op.cumsum)
_running("CumProd", 26, op.cumprod)
