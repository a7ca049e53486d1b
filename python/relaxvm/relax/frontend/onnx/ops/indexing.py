# SPDX-License-Identifier: Apache-2.0
"""Gather, scatter, search and sort."""

from __future__ import annotations

from typing import Any

import numpy as np

from relaxvm import relax
from relaxvm.relax import TupleGetItem, op

from ..element_types import carrier
from ..errors import InvalidModel, UnsupportedModel
from ..graph import Graph
from ..registry import Dims, Expr, onnx_op
from ..scalars import is_symbolic
from ..slicing import Range, take_ranges
from ..values import Known, Value


def _from_front(g: Graph, indices: Value, size, name: str = "indices"):
    """Indices counted from the front: ONNX counts negative ones from the end."""
    if isinstance(indices, Known) and indices.is_constant and not is_symbolic(size):
        values = indices.array
        if values.size and (values.min() < -size or values.max() >= size):
            raise InvalidModel(f"an index is out of range for an axis of {size} elements")
        return g.constant(np.where(values < 0, values + size, values), values.dtype)
    expr = g.as_expr(indices, name)
    if isinstance(indices, Known) and indices.is_constant and (indices.array >= 0).all():
        return expr
    dtype = g.dtype(expr)
    if dtype.startswith("uint"):
        return expr
    limit = g.as_expr(g.dims_value([size], ()), "size")
    limit = limit if dtype == "int64" else op.astype(limit, dtype)
    return op.where(op.less(expr, g.scalar(0, expr)), op.add(expr, limit), expr)


def _with_elements(g: Graph, x: Any, axis: int, count: Any) -> Any:
    """`x`, whose axis has so many elements or more: checked while running."""
    return g.at_least(x, [count if i == axis else 0 for i in range(g.rank(x))])


@onnx_op("Gather", since=1)
def gather(g: Graph, x: Expr, indices: Value, *, axis: int = 0) -> Expr:
    axis = g.axis(axis, g.rank(x))
    size = g.shape(x)[axis]
    if isinstance(indices, Known) and indices.is_constant and indices.array.ndim == 0:
        index = indices.array.item()
        if index >= 0 or not is_symbolic(size):
            index = index + size if index < 0 else index
            if not is_symbolic(size) and not 0 <= index < size:
                raise InvalidModel(f"index {index} is out of range for an axis of {size} elements")
            x = _with_elements(g, x, axis, index + 1)
            row = take_ranges(g, x, {axis: Range(index, index + 1, 1)})
            return op.squeeze(row, axis=[axis])
    if isinstance(indices, Known) and indices.is_constant and indices.array.size:
        if is_symbolic(size):
            last, first = int(indices.array.max()), int(indices.array.min())
            x = _with_elements(g, x, axis, max(last + 1, -first))
    return op.take(x, _from_front(g, indices, size), axis=axis)


@onnx_op("GatherElements", since=11)
def gather_elements(g: Graph, x: Expr, indices: Value, *, axis: int = 0) -> Expr:
    axis = g.axis(axis, g.rank(x))
    return op.gather_elements(x, _from_front(g, indices, g.shape(x)[axis]), axis=axis)


@onnx_op("GatherND", since=11)
def gather_nd(g: Graph, x: Expr, indices: Value, *, batch_dims: int = 0) -> Expr:
    return op.gather_nd(x, _tuples_from_front(g, x, indices, batch_dims), batch_dims=batch_dims)


def _tuples_from_front(g, x, indices, batch_dims):
    """The last axis of `indices` holds one index for each axis of `x` after the batch axes."""
    expr = g.as_expr(indices, "indices")
    count = g.shape(expr)[-1]
    if is_symbolic(count):
        raise UnsupportedModel("the last dimension of its indices is symbolic")
    if isinstance(indices, Known) and indices.is_constant and (indices.array >= 0).all():
        return expr
    limits = g.as_expr(g.dims_value(g.shape(x)[batch_dims : batch_dims + count], (count,)), "size")
    limits = limits if g.dtype(expr) == "int64" else op.astype(limits, g.dtype(expr))
    return op.where(op.less(expr, g.scalar(0, expr)), op.add(expr, limits), expr)


_REDUCTIONS = {"none": "update", "add": "add", "mul": "mul", "min": "min", "max": "max"}


def _scatter_elements(g, x, indices, updates, axis, reduction):
    axis = g.axis(axis, g.rank(x))
    if reduction not in _REDUCTIONS:
        raise InvalidModel(f"reduction is one of {sorted(_REDUCTIONS)}, not '{reduction}'")
    indices = _from_front(g, indices, g.shape(x)[axis])
    return op.scatter_elements(x, indices, updates, axis=axis, reduction=_REDUCTIONS[reduction])


@onnx_op("Scatter", since=9)
def scatter(g: Graph, x: Expr, indices: Value, updates: Expr, *, axis: int = 0) -> Expr:
    return _scatter_elements(g, x, indices, updates, axis, "none")


@onnx_op("ScatterElements", since=11)
def scatter_elements(
    g: Graph, x: Expr, indices: Value, updates: Expr, *, axis: int = 0, reduction: str = "none"
) -> Expr:
    return _scatter_elements(g, x, indices, updates, axis, reduction)


@onnx_op("ScatterND", since=11)
def scatter_nd(
    g: Graph, x: Expr, indices: Value, updates: Expr, *, reduction: str = "none"
) -> Expr:
    if reduction not in _REDUCTIONS:
        raise InvalidModel(f"reduction is one of {sorted(_REDUCTIONS)}, not '{reduction}'")
    indices = _tuples_from_front(g, x, indices, 0)
    return op.scatter_nd(x, indices, updates, reduction=_REDUCTIONS[reduction])


@onnx_op("OneHot", since=9)
def one_hot(g: Graph, indices: Expr, depth: Dims, values: Expr, *, axis: int = -1) -> Expr:
    """An index outside [-depth, depth) gives a row of off-values."""
    rank = g.rank(indices)
    axis = g.axis(axis, rank + 1)
    if len(depth) != 1:
        raise InvalidModel("depth is one number")
    if not g.dtype(indices).startswith("int"):
        indices = g.emit(op.astype(indices, "int64"))
    dtype = g.dtype(indices)
    limit = g.as_expr(g.dims_value(depth, ()), "depth")
    limit = limit if dtype == "int64" else op.astype(limit, dtype)
    positive = op.where(op.less(indices, g.scalar(0, indices)), op.add(indices, limit), indices)
    positions = op.arange(0, depth[0], 1, dtype=dtype)
    positions = op.reshape(positions, [depth[0] if i == axis else 1 for i in range(rank + 1)])
    hit = op.equal(op.expand_dims(positive, axis=[axis]), positions)
    off, on = (
        op.squeeze(take_ranges(g, values, {0: Range(i, i + 1, 1)}), axis=[0]) for i in (0, 1)
    )
    return op.where(hit, on, off)


@onnx_op("TopK", since=1)
def top_k_1(g: Graph, x: Expr, *, k: int, axis: int = -1) -> tuple:
    return _top_k(g, x, k, axis, True)


@onnx_op("TopK", since=10)
def top_k(
    g: Graph, x: Expr, k: Dims, *, axis: int = -1, largest: int = 1, sorted: int = 1
) -> tuple:
    if not is_symbolic(k[0]):
        return _top_k(g, x, k[0], axis, bool(largest))
    axis = g.axis(axis, g.rank(x))
    x = _with_elements(g, x, axis, k[0])
    order = op.argsort(x, axis=axis, descending=bool(largest), dtype="int64")
    first = g.emit(take_ranges(g, g.emit(order), {axis: Range(0, k[0], 1)}))
    return op.gather_elements(x, first, axis=axis), first


def _top_k(g, x, k, axis, largest):
    axis = g.axis(axis, g.rank(x))
    if k < 0:
        raise InvalidModel(f"k is {k}, but it is a number of elements: give 0 or more")
    if k == 0:
        shape = g.shape(x)
        shape[axis] = 0
        return op.zeros(shape, g.dtype(x)), op.zeros(shape, "int64")
    x = _with_elements(g, x, axis, k)
    both = g.emit(op.topk(x, k=k, axis=axis, ret_type="both", largest=largest, dtype="int64"))
    return TupleGetItem(both, 0), TupleGetItem(both, 1)


@onnx_op("NonZero", since=9)
def nonzero(g: Graph, x: Expr) -> Expr:
    found = g.emit(op.nonzero(x))
    if g.rank(x) == 0:
        return found
    # A row for each axis of x: indices made of it have as many components.
    return g.match_cast(found, [g.rank(x), g.dimensions.fresh("m")])


@onnx_op("Compress", since=9)
def compress(g: Graph, x: Expr, condition: Expr, *, axis: int | None = None) -> Expr:
    if axis is None:
        # A mask of the input's shape, as Paddle's masked_select writes it, has its elements in the same order.
        x, condition = (g.emit(op.reshape(v, [g.product(g.shape(v))])) for v in (x, condition))
        axis = 0
    chosen = g.named(op.nonzero(condition))
    return op.take(x, op.reshape(chosen, [g.shape(chosen)[1]]), axis=g.axis(axis, g.rank(x)))


@onnx_op("Unique", since=11)
def unique(g: Graph, x: Expr, *, axis: int | None = None, sorted: int = 1) -> tuple:
    found = g.emit(
        op.unique(
            x,
            sorted=bool(sorted),
            return_index=True,
            return_inverse=True,
            return_counts=True,
            axis=axis,
        )
    )
    return tuple(TupleGetItem(found, i) for i in range(4))


@onnx_op("EyeLike", since=9)
def eye_like(g: Graph, x: Expr, *, dtype: int | None = None, k: int = 0) -> Expr:
    rows, columns = g.shape(x)
    name = g.dtype(x) if dtype is None else carrier(dtype)
    row = op.expand_dims(op.arange(0, rows, 1, dtype="int64"), axis=[1])
    column = op.expand_dims(op.arange(0, columns, 1, dtype="int64"), axis=[0])
    hit = op.equal(op.add(row, g.constant(k, "int64")), column)
    return op.astype(hit, name)


@onnx_op("NonMaxSuppression", since=10)
def non_max_suppression(
    g: Graph,
    boxes: Expr,
    scores: Expr,
    limit: Expr | None = None,
    iou: Expr | None = None,
    least_score: Expr | None = None,
    *,
    center_point_box: int = 0,
) -> Expr:
    """Without a limit nothing is chosen.  How many are depends on the data."""
    args = [
        g.emit(boxes),
        g.emit(scores),
        g.constant(0, "int64") if limit is None else g.emit(limit),
        g.constant(0, "float32") if iou is None else g.emit(iou),
        relax.prim_value(center_point_box),
    ]
    args += [] if least_score is None else [g.emit(least_score)]
    ty = relax.TensorType(None, "int64", ndim=2)
    found = g.emit(op.call_pure_packed("relax.run.non_max_suppression", *args, ty_args=[ty]))
    return g.match_cast(found, [g.dimensions.fresh("boxes"), 3])


@onnx_op("TensorScatter", since=24)
def tensor_scatter(
    g: Graph,
    cache: Expr,
    update: Expr,
    write_indices: Expr | None = None,
    *,
    axis: int = -2,
    mode: str = "linear",
) -> Expr:
    """Rows of the cache along `axis`, from write_indices[b] on, become those of the update."""
    rank = g.rank(cache)
    axis = g.axis(axis, rank)
    size, count = g.shape(cache)[axis], g.shape(update)[axis]
    if rank == 4 and axis == 2 and mode == "linear":
        starts = op.zeros([g.shape(cache)[0]], "int64")
        starts = starts if write_indices is None else op.astype(write_indices, "int64")
        return op.rvm.cache_rows(cache, update, g.emit(starts), [size])
    place = op.arange(0, count, 1, dtype="int64")
    along = [1] * rank
    along[axis] = count
    place = op.reshape(place, along)
    if write_indices is not None:
        batch = [g.shape(cache)[0], *[1] * (rank - 1)]
        place = op.add(place, op.reshape(op.astype(write_indices, "int64"), batch))
    if mode == "circular":
        place = op.floor_mod(place, g.as_expr(g.dims_value([size], ()), "size"))
    elif mode != "linear":
        raise InvalidModel(f"mode is 'linear' or 'circular', not '{mode}'")
    indices = op.broadcast_to(g.emit(place), g.shape(update))
    return op.scatter_elements(cache, indices, update, axis=axis, reduction="update")
