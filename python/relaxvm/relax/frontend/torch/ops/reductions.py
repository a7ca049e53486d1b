# SPDX-License-Identifier: Apache-2.0
"""Reductions, running sums, sorting."""

from __future__ import annotations

import functools
from typing import Any

import torch

from relaxvm.relax import TupleGetItem, op

from ..errors import UnsupportedProgram
from ..graph import Graph
from ..registry import Rule, aten_op


def _with_places(rule: Rule) -> Rule:
    """A rule that gives values and their places along an axis: a tensor without axes is the value, at 0."""

    @functools.wraps(rule)
    def whole(g: Graph, x: Any, *args: Any, **options: Any) -> tuple:
        return rule(g, x, *args, **options) if g.rank(x) else (x, g.const(0, "int64"))

    return whole


def _reduce(function: Any, *names: str) -> None:
    @aten_op(*names)
    def reduction(
        g: Graph, x: Any, dims: Any = None, keepdim: bool = False, *, dtype: Any = None
    ) -> Any:
        return function(g.cast(x, g.result_dtype()), g.axes(x, dims), keepdims=keepdim)


_reduce(op.sum, "sum.default", "sum.dim_IntList")
_reduce(op.mean, "mean.default", "mean.dim")
_reduce(op.prod, "prod.default", "prod.dim_int")


def _greatest(function: Any, name: str) -> None:
    @aten_op(f"a{name}.default")
    def over_axes(g: Graph, x: Any, dims: Any = (), keepdim: bool = False) -> Any:
        return _extreme(g, x, g.axes(x, dims), keepdim)

    @aten_op(f"{name}.default")
    def over_all(g: Graph, x: Any) -> Any:
        return _extreme(g, x, g.axes(x, None), False)

    def _extreme(g: Graph, x: Any, axes: list[int], keepdim: bool) -> Any:
        if g.dtype(x) != "bool":
            return function(x, axes, keepdims=keepdim)
        return op.astype(g.emit(function(g.cast(x, "int8"), axes, keepdims=keepdim)), "bool")

    place = op.argmax if function is op.max else op.argmin

    @aten_op(f"{name}.dim")
    @_with_places
    def with_place(g: Graph, x: Any, dim: int, keepdim: bool = False) -> tuple:
        return _extreme(g, x, [g.axis(x, dim)], keepdim), place(x, g.axis(x, dim), keepdim)

    @aten_op(f"arg{name}.default")
    def index(g: Graph, x: Any, dim: int | None = None, keepdim: bool = False) -> Any:
        if dim is not None:
            return place(x, dim, keepdim)
        found = place(_flat(g, x), 0, False)
        return op.reshape(g.emit(found), [1] * g.rank(x)) if keepdim else found

    any_or_all = "any" if function is op.max else "all"

    @aten_op(f"{any_or_all}.default", f"{any_or_all}.dim", f"{any_or_all}.dims")
    def test(g: Graph, x: Any, dims: Any = None, keepdim: bool = False) -> Any:
        small, axes = g.cast(g.cast(x, "bool"), "int8"), g.axes(x, dims)
        found = g.emit(function(small, axes, keepdims=keepdim))
        if function is op.max and not all(_surely_some(g.shape(x)[i]) for i in axes):
            found = g.emit(op.maximum(found, g.const(0, "int8")))  # of none: False
        return g.cast(found, g.result_dtype())  # of uint8: uint8


def _surely_some(size: Any) -> bool:
    return isinstance(size, int) and size > 0


_greatest(op.max, "max")
_greatest(op.min, "min")


def _flat(g: Graph, x: Any) -> Any:
    return g.emit(op.reshape(x, [-1]))


def variance(g: Graph, x: Any, dims: Any, keepdim: bool, correction: Any) -> Any:
    axes = g.axes(x, dims)
    result = g.emit(op.variance(x, axes, keepdim))
    correction = 1 if correction is None else correction
    if correction == 0:
        return result
    count: Any = 1
    for axis in axes:
        count = count * g.shape(x)[axis]
    dtype = g.dtype(x)
    if isinstance(count, int):
        left = count - correction
        factor = g.const(count / left if left > 0 else float("nan"), dtype)
    else:
        total = g.number(count, dtype)
        less = g.emit(op.subtract(total, g.const(correction, dtype)))
        factor = g.emit(op.divide(total, less))
    return g.emit(op.multiply(result, factor))


@aten_op("var.correction")
def var(
    g: Graph, x: Any, dims: Any = None, *, correction: Any = None, keepdim: bool = False
) -> Any:
    return variance(g, x, dims, keepdim, correction)


@aten_op("std.correction")
def std(
    g: Graph, x: Any, dims: Any = None, *, correction: Any = None, keepdim: bool = False
) -> Any:
    return op.sqrt(variance(g, x, dims, keepdim, correction))


@aten_op("var_mean.correction")
def var_mean(
    g: Graph, x: Any, dims: Any = None, *, correction: Any = None, keepdim: bool = False
) -> tuple:
    mean = op.mean(x, g.axes(x, dims), keepdims=keepdim)
    return variance(g, x, dims, keepdim, correction), mean


@aten_op("logcumsumexp.default")
def logcumsumexp(g: Graph, x: Any, dim: int) -> Any:
    """By the greatest value of a row: what is smaller by more than 100 adds nothing there."""
    if g.rank(x) == 0:
        return x
    top = g.emit(op.max(x, [g.axis(x, dim)], keepdims=True))
    powers = g.emit(op.exp(g.emit(op.subtract(x, top))))
    return op.add(g.emit(op.log(g.emit(op.cumsum(powers, g.axis(x, dim))))), top)


@aten_op("cumsum.default")
def cumsum(g: Graph, x: Any, dim: int, *, dtype: torch.dtype | None = None) -> Any:
    return _running(g, op.cumsum, x, dim)


@aten_op("cumprod.default")
def cumprod(g: Graph, x: Any, dim: int, *, dtype: torch.dtype | None = None) -> Any:
    return _running(g, op.cumprod, x, dim)


def _running(g: Graph, function: Any, x: Any, dim: int) -> Any:
    x = g.cast(x, g.result_dtype())
    return function(x, g.axis(x, dim)) if g.rank(x) else x


# ---- sorting


@aten_op("sort.default")
@_with_places
def sort(g: Graph, x: Any, dim: int = -1, descending: bool = False) -> tuple:
    order = g.emit(argsort(g, x, dim, descending))
    return op.gather_elements(x, order, g.axis(x, dim)), order


@aten_op("sort.stable")
def sort_stable(
    g: Graph, x: Any, *, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> tuple:
    return sort(g, x, dim, descending)


@aten_op("argsort.default")
def argsort(g: Graph, x: Any, dim: int = -1, descending: bool = False) -> Any:
    if g.rank(x) == 0:
        return op.zeros([], "int64")
    numbers = g.cast(x, "int8") if g.dtype(x) == "bool" else x
    return op.argsort(numbers, dim, descending, "int64")


@aten_op("argsort.stable")
def argsort_stable(g: Graph, x: Any, *, stable: bool, dim: int = -1, descending: bool = False) -> Any:  # fmt: skip
    return argsort(g, x, dim, descending)


@aten_op("topk.default")
@_with_places
def topk(g: Graph, x: Any, k: Any, dim: int = -1, largest: bool = True, *_: Any) -> tuple:
    if not isinstance(k, int):
        raise UnsupportedProgram("a number of values that is not known")
    both = g.emit(op.topk(x, k, g.axis(x, dim), "both", largest, "int64"))
    return TupleGetItem(both, 0), TupleGetItem(both, 1)


@aten_op("kthvalue.default")
@_with_places
def kthvalue(g: Graph, x: Any, k: int, dim: int = -1, keepdim: bool = False) -> tuple:
    return _of_rank(g, x, k - 1, dim, keepdim)


@aten_op("median.dim", "nanmedian.dim")
@_with_places
def median_dim(g: Graph, x: Any, dim: int, keepdim: bool = False) -> tuple:
    axis = g.axis(x, dim)
    return _of_rank(g, x, _middle(g, x, axis), axis, keepdim)


@aten_op("median.default", "nanmedian.default")
def median(g: Graph, x: Any) -> Any:
    flat = _flat(g, x)
    return op.squeeze(g.emit(_of_rank(g, flat, _middle(g, flat, 0), 0, True)[0]), [0])


def _middle(g: Graph, x: Any, axis: int) -> Any:
    """The rank of the median: a size, or a tensor with one element along `axis`.

    NaN come last.  One of them is the median itself, but for nanmedian, which looks at the others.
    """
    size = g.shape(x)[axis]
    if not g.is_float(x):
        return (size - 1) // 2
    is_nan = g.cast(g.emit(op.isnan(x)), "int64")
    found = g.emit(op.sum(is_nan, [axis], keepdims=True))
    size, one = g.number(size, "int64"), g.const(1, "int64")
    last = g.emit(op.subtract(size, one))
    if "nanmedian" in g.node.target.name():
        middle = g.emit(op.floor_divide(g.emit(op.subtract(last, found)), g.const(2, "int64")))
        return g.emit(op.maximum(middle, g.const(0, "int64")))
    middle = g.emit(op.floor_divide(last, g.const(2, "int64")))
    return g.emit(op.where(g.emit(op.greater(found, g.const(0, "int64"))), last, middle))


def _of_rank(g: Graph, x: Any, k: Any, dim: int, keepdim: bool) -> tuple:
    """The value that is the k-th in order, and its place; k is a size, or a tensor with one element along `dim`."""
    axis = g.axis(x, dim)
    order = g.emit(op.argsort(x, axis, False, "int64"))
    if g.is_tensor(k):
        place = g.emit(op.gather_elements(order, k, axis))
    else:
        place = g.emit(op.strided_slice(order, [axis], [k], [k + 1], [1]))
    return _at(g, x, place, axis, keepdim)


def _at(g: Graph, x: Any, place: Any, axis: int, keepdim: bool) -> tuple:
    """The values of places with one element along `axis`, and the places."""
    value = g.emit(op.gather_elements(x, place, axis))
    if keepdim:
        return value, place
    return op.squeeze(value, [axis]), op.squeeze(place, [axis])


@aten_op("mode.default")
@_with_places
def mode(g: Graph, x: Any, dim: int = -1, keepdim: bool = False) -> tuple:
    """The most frequent value, the least one of several, and its last place."""
    axis = g.axis(x, dim)
    values, order = sort(g, x, axis)
    values = g.emit(values)
    pairs = [g.emit(op.expand_dims(values, [axis + i])) for i in (0, 1)]
    same = g.cast(g.emit(op.equal(*pairs)), "int64")
    counts = g.emit(op.sum(same, [axis]))
    first = g.emit(op.argmax(counts, axis, True))
    most = g.emit(op.max(counts, [axis], keepdims=True))
    more = g.emit(op.maximum(g.emit(op.subtract(most, g.const(1, "int64"))), g.const(0, "int64")))
    place = g.emit(op.gather_elements(order, g.emit(op.add(first, more)), axis))
    return _at(g, x, place, axis, keepdim)


@aten_op("histc.default")
def histc(g: Graph, x: Any, bins: int = 100, min: float = 0, max: float = 0) -> Any:
    """How many elements lie in each of `bins` parts of equal width, the last one with its upper end."""
    dtype, flat = g.dtype(x), _flat(g, x)
    if min == max:
        low, high = (g.emit(f(flat)) for f in (op.min, op.max))
        equal = g.emit(op.equal(low, high))
        low = g.emit(op.where(equal, g.emit(op.subtract(low, g.const(1, dtype))), low))
        high = g.emit(op.where(equal, g.emit(op.add(high, g.const(1, dtype))), high))
    else:
        low, high = g.const(min, dtype), g.const(max, dtype)
    width = g.emit(op.subtract(high, low))
    moved = g.emit(op.multiply(g.emit(op.subtract(flat, low)), g.const(bins, dtype)))
    place = g.emit(op.floor(g.cast(g.emit(op.divide(moved, width)), "float32")))
    place = g.cast(g.emit(op.clip(place, 0, bins - 1)), "int64")
    above = g.emit(op.greater_equal(flat, low))
    inside = g.emit(op.logical_and(above, g.emit(op.less_equal(flat, high))))
    zeros = g.emit(op.full([bins], g.const(0, dtype), dtype))
    return op.scatter_elements(zeros, place, g.cast(inside, dtype), 0, "add")


@aten_op("linalg_vector_norm.default")
def vector_norm(
    g: Graph, x: Any, p: float = 2, dims: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Any:
    """Floats of 16 bits are computed in float32: their powers and sums would not fit."""
    result, axes = g.result_dtype(), g.axes(x, dims)
    x = g.cast(x, result if result == "float64" else "float32")
    return g.cast(g.emit(_norm(g, x, p, axes, keepdim)), result)


@aten_op("dist.default")
def dist(g: Graph, x: Any, y: Any, p: float = 2) -> Any:
    return vector_norm(g, g.emit(op.subtract(*g.agree(x, y))), p)


def _norm(g: Graph, x: Any, p: float, axes: list[int], keepdim: bool) -> Any:
    name = g.dtype(x)
    if p == 2:
        return op.sqrt(g.emit(op.sum(g.emit(op.multiply(x, x)), axes, keepdims=keepdim)))
    sizes = g.emit(op.abs(x))
    if abs(p) == float("inf"):
        return (op.max if p > 0 else op.min)(sizes, axes, keepdims=keepdim)
    if p == 0:
        counted = g.cast(g.emit(op.not_equal(x, g.const(0, name))), name)
        return op.sum(counted, axes, keepdims=keepdim)
    powers = sizes if p == 1 else g.emit(op.power(sizes, g.const(p, name)))
    total = op.sum(powers, axes, keepdims=keepdim)
    return total if p == 1 else op.power(g.emit(total), g.const(1 / p, name))


def _running_extreme(name: str, is_better: Any) -> None:
    @aten_op(f"{name}.default")
    @_with_places
    def running(g: Graph, x: Any, dim: int) -> tuple:
        """Doubling: after step k an element knows the 2^k elements before it (Hillis and Steele, 1986)."""
        axis, shape = g.axis(x, dim), g.shape(x)
        size = shape[axis]
        if not isinstance(size, int):
            raise UnsupportedProgram("an axis of a size that is not known")
        row = g.const(list(range(size)), "int64")
        row = g.emit(op.reshape(row, [-1 if i == axis else 1 for i in range(len(shape))]))
        places = g.broadcast(row, shape)
        cut = lambda v, a, b: g.emit(op.strided_slice(v, [axis], [a], [b], [1]))
        step = 1
        while step < size:
            before, now = cut(x, 0, size - step), cut(x, step, size)
            place_before, place_now = cut(places, 0, size - step), cut(places, step, size)
            stays = g.emit(is_better(now, before))
            if g.is_float(x):
                stays = g.emit(op.logical_or(stays, g.emit(op.isnan(now))))
            value = g.emit(op.where(stays, now, before))
            place = g.emit(op.where(stays, place_now, place_before))
            x = g.emit(op.concat([cut(x, 0, step), value], axis))
            places = g.emit(op.concat([cut(places, 0, step), place], axis))
            step *= 2
        return x, places


_running_extreme("cummax", op.greater_equal)
_running_extreme("cummin", op.less_equal)
