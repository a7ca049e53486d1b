# SPDX-License-Identifier: Apache-2.0
"""Reading and writing at places that tensors name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from relaxvm import relax
from relaxvm.relax import op

from ..errors import UnsupportedProgram
from ..graph import Graph, Size
from ..registry import aten_op
from .movement import strided_places


def _from_front(g: Graph, indices: Any, size: Size) -> Any:
    """Indices below 0 count from the end."""
    if isinstance(indices, relax.Constant):
        values = indices.data.numpy()
        if values.size == 0 or values.min() >= 0:
            return indices
        if isinstance(size, int):
            return g.const(np.where(values < 0, values + size, values), g.dtype(indices))
    dtype = g.dtype(indices)
    below = g.emit(op.less(indices, g.const(0, dtype)))
    return g.emit(op.where(below, g.emit(op.add(indices, g.number(size, dtype))), indices))


@aten_op("index_select.default")
def index_select(g: Graph, x: Any, dim: int, indices: Any) -> Any:
    if g.rank(x) == 0:
        return x
    return op.take(x, indices, axis=g.axis(x, dim))


@aten_op("take.default")
def take(g: Graph, x: Any, indices: Any) -> Any:
    flat = g.emit(op.reshape(x, [-1]))
    return op.take(flat, _from_front(g, indices, g.shape(flat)[0]), axis=0)


@aten_op("gather.default")
def gather(g: Graph, x: Any, dim: int, indices: Any, **_: Any) -> Any:
    if any(isinstance(d, int) and d == 0 for d in g.shape(indices)):
        return op.zeros(g.shape(indices), g.dtype(x))
    if g.rank(x) == 0:
        return g.broadcast(x, g.shape(indices))
    return op.gather_elements(x, g.cast(indices, "int64"), g.axis(x, dim))


class _Places:
    """The indices of x[..., i, :, j]: tensors of one shape, and the axes that they stand for."""

    def __init__(self, g: Graph, x: Any, indices: Sequence[Any]) -> None:
        given: list[tuple[int, Any]] = []
        axis = 0
        for index in indices:
            if index is None:
                axis += 1
            elif g.dtype(index) == "bool":
                rows = _rows_of(g, index)
                given += [(axis + i, row) for i, row in enumerate(rows)]
                axis += len(rows)
            else:
                given.append((axis, index))
                axis += 1
        self.axes = [a for a, _ in given]
        self.others = [i for i in range(g.rank(x)) if i not in self.axes]
        sizes = g.shape(x)
        self.tensors = [_from_front(g, g.cast(t, "int64"), sizes[a]) for a, t in given]
        # Results of indices that stand side by side take their place, others come first.
        beside = self.axes == list(range(self.axes[0], self.axes[0] + len(self.axes)))
        self.first = self.axes[0] if beside else 0
        self.shape = _common_shape(g, self.tensors)
        self.rank = len(self.shape)

    def stacked(self, g: Graph) -> Any:
        """[..., k]: for each element of the result its place along the k axes."""
        parts = [g.emit(op.expand_dims(g.broadcast(t, self.shape), [-1])) for t in self.tensors]
        return parts[0] if len(parts) == 1 else g.emit(op.concat(parts, self.rank))

    def order(self) -> list[int]:
        """From [indices, others] to where PyTorch has them."""
        split = self.rank + len([i for i in self.others if i < self.first])
        end = self.rank + len(self.others)
        return [*range(self.rank, split), *range(self.rank), *range(split, end)]


def _rows_of(g: Graph, mask: Any) -> list[Any]:
    """The places of a mask's true elements: a vector for each axis, of one size that is known only now."""
    rank = g.rank(mask)
    found = g.emit(op.nonzero(mask))
    count = _found_size(g)
    found = g.builder.match_cast(found, relax.TensorType([rank, count], "int64"))
    rows = []
    for i in range(rank):
        row = g.emit(op.strided_slice(found, [0], [i], [i + 1], [1]))
        rows.append(g.emit(op.reshape(row, [count])))
    return rows


def _found_size(g: Graph) -> Any:
    """The variable of the size that the node finds; one of its own where the result does not show it."""
    result = g.result[0] if isinstance(g.result, tuple) else g.result
    for d in getattr(result, "shape", ()):
        if not isinstance(d, int) and not g.symbols.knows(d.node.expr) and d.node.expr.is_Symbol:
            return g.symbols.variable(d.node.expr.name)
    return g.symbols.variable(f"{g.node.name}_found")


def _common_shape(g: Graph, tensors: list[Any]) -> list[Size]:
    shape: list[Size] = []
    for t in tensors:
        dims = g.shape(t)
        width = max(len(shape), len(dims))
        left = [1] * (width - len(shape)) + shape
        right = [1] * (width - len(dims)) + dims
        shape = [b if isinstance(a, int) and a == 1 else a for a, b in zip(left, right)]
    return shape


def _moved(g: Graph, x: Any, order: list[int]) -> Any:
    return x if order == sorted(order) else g.emit(op.permute_dims(x, order))


@aten_op("index.Tensor", "_unsafe_index.Tensor")
def index(g: Graph, x: Any, indices: Sequence[Any]) -> Any:
    places = _Places(g, x, indices)
    if len(places.axes) == 1:
        return op.take(x, places.tensors[0], axis=places.axes[0])
    data = _moved(g, x, places.axes + places.others)
    return _moved(g, g.emit(op.gather_nd(data, places.stacked(g))), places.order())


@aten_op("masked_select.default")
def masked_select(g: Graph, x: Any, mask: Any) -> Any:
    shape = _common_shape(g, [x, mask]) or [1]
    return index(g, g.broadcast(x, shape), [g.broadcast(mask, shape)])


@aten_op("nonzero.default")
def nonzero(g: Graph, x: Any) -> Any:
    found = g.emit(op.nonzero(g.cast(x, "bool")))
    found = g.builder.match_cast(found, relax.TensorType([g.rank(x), _found_size(g)], "int64"))
    return op.permute_dims(found, [1, 0])


@aten_op("nonzero_static.default")
def nonzero_static(g: Graph, x: Any, *, size: Size, fill_value: int = -1) -> Any:
    """The first `size` of them; where there are fewer, rows of `fill_value`."""
    found, rank = g.emit(nonzero(g, x)), g.rank(x)
    rest = g.emit(op.full([size, rank], g.const(fill_value, "int64"), "int64"))
    both = g.emit(op.concat([found, rest], 0))
    return op.strided_slice(both, [0], [0], [size], [1], assume_inbound=True)


@aten_op("index_put.default", "_unsafe_index_put.default")
def index_put(g: Graph, x: Any, indices: Sequence[Any], values: Any, accumulate: bool = False) -> Any:  # fmt: skip
    mask = indices[0]
    if len(indices) == 1 and g.dtype(mask) == "bool" and g.rank(values) == 0 and not accumulate:
        wide = g.rank(x) - g.rank(mask)
        if wide:
            mask = g.emit(op.expand_dims(mask, [g.rank(mask) + i for i in range(wide)]))
        return op.where(mask, values, x)
    places = _Places(g, x, indices)
    order, shape = places.axes + places.others, g.shape(x)
    inner = places.shape + [shape[i] for i in places.others]
    outer = [inner[i] for i in places.order()]
    updates = _moved(g, g.broadcast(values, outer), list(map(int, np.argsort(places.order()))))
    how = "add" if accumulate else "update"
    result = g.emit(op.scatter_nd(_moved(g, x, order), places.stacked(g), updates, how))
    return _moved(g, result, list(map(int, np.argsort(order))))


# ---- scatter


@aten_op("put.default")
def put(g: Graph, x: Any, places: Any, source: Any, accumulate: bool = False) -> Any:
    """At places among all elements."""
    flat = g.emit(op.reshape(x, [-1]))
    places = g.emit(op.reshape(g.cast(places, "int64"), [-1]))
    places = _from_front(g, places, g.shape(flat)[0])
    source = g.emit(op.reshape(source, [-1]))
    how = "add" if accumulate else "update"
    return op.reshape(g.emit(op.scatter_elements(flat, places, source, 0, how)), g.shape(x))


@aten_op("diagonal_scatter.default")
def diagonal_scatter(
    g: Graph, x: Any, source: Any, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Any:
    shape = g.shape(x)
    if not all(isinstance(d, int) for d in shape):
        raise UnsupportedProgram("the diagonal of sizes that are not known")
    numbers = np.arange(int(np.prod(shape))).reshape(shape)
    return put(g, x, g.const(np.diagonal(numbers, offset, dim1, dim2), "int64"), source)


@aten_op("as_strided_scatter.default")
def as_strided_scatter(
    g: Graph, x: Any, source: Any, shape: Any, strides: Any, offset: int | None = None
) -> Any:
    return put(g, x, g.const(strided_places(g, x, shape, strides, offset), "int64"), source)


@aten_op("scatter.src")
def scatter(g: Graph, x: Any, dim: int, indices: Any, source: Any) -> Any:
    return _scatter(g, x, dim, indices, source, "update")


@aten_op("scatter.value")
def scatter_value(g: Graph, x: Any, dim: int, indices: Any, value: Any) -> Any:
    return _scatter(g, x, dim, indices, g.cast(value, g.dtype(x)), "update")


@aten_op("scatter_add.default")
def scatter_add(g: Graph, x: Any, dim: int, indices: Any, source: Any) -> Any:
    return _scatter(g, x, dim, indices, source, "add")


_REDUCTIONS = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min", "add": "add", "multiply": "mul"}  # fmt: skip
_NEUTRAL = {"add": 0.0, "mul": 1.0, "max": float("-inf"), "min": float("inf")}


@aten_op("scatter_reduce.two")
def scatter_reduce(
    g: Graph, x: Any, dim: int, indices: Any, source: Any, reduce: str, *, include_self: bool = True
) -> Any:
    if reduce == "mean":
        return _scatter_mean(g, x, dim, indices, source, include_self)
    how = _REDUCTIONS[reduce]
    if not include_self:
        value = _NEUTRAL[how]
        if not g.is_float(x) and how in ("max", "min"):
            limits = np.iinfo(g.dtype(x))
            value = limits.min if how == "max" else limits.max
        x = g.emit(_scatter(g, x, dim, indices, g.const(value, g.dtype(x)), "update"))
    return _scatter(g, x, dim, indices, source, how)


def _scatter_mean(g: Graph, x: Any, dim: int, indices: Any, source: Any, include_self: bool) -> Any:
    total = scatter_reduce(g, x, dim, indices, source, "sum", include_self=include_self)
    dtype = g.dtype(x)
    one = g.const(1, dtype)
    start = g.emit(op.full(g.shape(x), one if include_self else g.const(0, dtype), dtype))
    counts = g.emit(_scatter(g, start, dim, indices, one, "add"))
    divide = op.divide if g.is_float(x) else op.floor_divide
    return divide(g.emit(total), g.emit(op.maximum(counts, one)))


@aten_op("index_reduce.default")
def index_reduce(
    g: Graph, x: Any, dim: int, index: Any, source: Any, reduce: str, *, include_self: bool = True
) -> Any:
    if g.rank(x) == 0:
        x, source = (g.emit(op.reshape(v, [1])) for v in (x, source))
        one = index_reduce(g, x, 0, index, source, reduce, include_self=include_self)
        return op.reshape(g.emit(one), [])
    axis, shape = g.axis(x, dim), g.shape(source)
    row = [shape[axis] if i == axis else 1 for i in range(len(shape))]
    places = g.broadcast(g.emit(op.reshape(index, row)), shape)
    return scatter_reduce(g, x, dim, places, source, reduce, include_self=include_self)


@aten_op("scatter.reduce", "scatter.value_reduce")
def scatter_with(g: Graph, x: Any, dim: int, indices: Any, source: Any, *, reduce: str) -> Any:
    source = g.cast(source, g.dtype(x))
    return _scatter(g, x, dim, indices, source, _REDUCTIONS[reduce])


def _scatter(g: Graph, x: Any, dim: int, indices: Any, source: Any, how: str) -> Any:
    shape = g.shape(indices)
    if g.rank(source) == 0 and shape:
        source = g.emit(op.broadcast_to(source, shape))
    else:
        for axis, (have, want) in enumerate(zip(g.shape(source), shape)):
            if not (isinstance(have, int) and isinstance(want, int) and have == want):
                source = g.emit(op.strided_slice(source, [axis], [0], [want], [1]))
    return op.scatter_elements(x, g.cast(indices, "int64"), source, g.axis(x, dim), how)


@aten_op("slice_scatter.default")
def slice_scatter(
    g: Graph, x: Any, source: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Any:
    axis = g.axis(x, dim)
    size, length = g.shape(x)[axis], g.shape(source)[axis]
    if not all(isinstance(v, int) for v in (size, length)) or not isinstance(start, (int, type(None))):  # fmt: skip
        return _sized_scatter(g, x, source, axis, start, step)
    begin, stop, step = slice(start, end, step).indices(size)
    places = np.arange(begin, stop, step)
    if len(places) == size:
        return g.broadcast(source, g.shape(x))
    if step == 1:
        parts = []
        if begin:
            parts.append(g.emit(op.strided_slice(x, [axis], [0], [begin], [1])))
        shape = g.shape(x)
        shape[axis] = len(places)
        parts.append(g.broadcast(source, shape))
        if stop < size:
            parts.append(g.emit(op.strided_slice(x, [axis], [stop], [size], [1])))
        return op.concat(parts, axis)
    shape = g.shape(source)
    wide = places.reshape([-1 if i == axis else 1 for i in range(len(shape))])
    indices = g.broadcast(g.const(wide, "int64"), shape)
    return op.scatter_elements(x, indices, source, axis)


def _sized_scatter(g: Graph, x: Any, source: Any, axis: int, start: Any, step: int) -> Any:
    """Of sizes that are not known."""
    if step != 1:
        raise UnsupportedProgram("a slice with a step, of sizes that are not known")
    size, length = g.shape(x)[axis], g.shape(source)[axis]
    begin = 0 if start is None else start
    if isinstance(begin, int) and begin < 0:
        begin = size + begin
    parts = [op.strided_slice(x, [axis], [0], [begin], [1], assume_inbound=True), source]
    rest = op.strided_slice(x, [axis], [begin + length], [size], [1], assume_inbound=True)
    return op.concat([g.emit(p) for p in [*parts, rest]], axis)


@aten_op("masked_scatter.default")
def masked_scatter(g: Graph, x: Any, mask: Any, source: Any) -> Any:
    """The n-th true place gets the n-th value."""
    flat_mask = g.emit(op.reshape(g.broadcast(mask, g.shape(x)), [-1]))
    order = g.emit(op.cumsum(g.cast(flat_mask, "int64"), 0))
    first = g.const(1, "int64")
    place = g.emit(op.maximum(g.emit(op.subtract(order, first)), g.const(0, "int64")))
    values = g.emit(op.take(g.emit(op.reshape(source, [-1])), place, axis=0))
    chosen = g.emit(op.where(flat_mask, values, g.emit(op.reshape(x, [-1]))))
    return op.reshape(chosen, g.shape(x))


# ---- results whose size depends on values


def _size_of(g: Graph, total: Any) -> Any:
    """The size that a scalar tensor holds."""
    count = _found_size(g)
    vector = g.emit(op.reshape(g.cast(total, "int64"), [1]))
    g.builder.match_cast(g.emit(op.tensor_to_shape(vector)), relax.ShapeType([count]))
    return count


@aten_op("repeat_interleave.Tensor")
def repeat_interleave(g: Graph, repeats: Any, *, output_size: Any = None) -> Any:
    """Place i as often as repeats[i] says."""
    repeats = g.cast(repeats, "int64")
    count = _size_of(g, g.emit(op.sum(repeats))) if output_size is None else output_size
    numbers = g.emit(op.arange(0, count, 1, dtype="int64"))
    ends = g.emit(op.cumsum(repeats, 0))
    return op.astype(g.emit(op.bucketize(numbers, ends, False, True)), g.result_dtype())


@aten_op("bincount.default")
def bincount(g: Graph, x: Any, weights: Any = None, minlength: int = 0) -> Any:
    least = g.const(max(minlength - 1, 0), "int64")
    top = g.emit(op.maximum(g.emit(op.max(g.cast(x, "int64"))), least))
    count = _size_of(g, g.emit(op.add(top, g.const(1, "int64"))))
    dtype = g.result_dtype()
    ones = g.emit(op.full(g.shape(x), g.const(1, dtype), dtype)) if weights is None else weights
    zeros = g.emit(op.full([count], g.const(0, dtype), dtype))
    return op.scatter_elements(zeros, g.cast(x, "int64"), g.cast(ones, dtype), 0, "add")


@aten_op("_unique2.default")
def unique(
    g: Graph, x: Any, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> tuple:
    return _unique(g, x, return_inverse, return_counts, None)


@aten_op("unique_dim.default")
def unique_dim(
    g: Graph,
    x: Any,
    dim: int,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
) -> tuple:
    return _unique(g, x, return_inverse, return_counts, g.axis(x, dim))


@aten_op("unique_consecutive.default")
def unique_consecutive(
    g: Graph, x: Any, return_inverse: bool = False, return_counts: bool = False, dim: Any = None
) -> tuple:
    """What differs from the one before: its values, for each the number of its value, and how often it repeats."""
    if dim is None:
        x_rows, axis = g.emit(op.reshape(x, [-1])), 0
        rows = g.emit(op.expand_dims(x_rows, [1]))
    else:
        x_rows, axis = x, g.axis(x, dim)
        order = [axis, *(i for i in range(g.rank(x)) if i != axis)]
        rows = g.emit(op.permute_dims(x, order))
        rows = g.emit(op.reshape(rows, [g.shape(x)[axis], -1]))
    count = g.shape(rows)[0]
    cut = lambda start, end: g.emit(op.strided_slice(rows, [0], [start], [end], [1]))
    differs = g.emit(op.not_equal(cut(1, count), cut(0, count - 1)))
    differs = g.emit(op.max(g.cast(differs, "int64"), [1]))
    starts = g.emit(op.concat([g.const([1], "int64"), differs], 0))
    (places,) = _rows_of(g, g.cast(starts, "bool"))
    values = op.take(x_rows, places, axis=axis)
    inverse = counts = None
    if return_inverse or return_counts:
        inverse = g.emit(op.subtract(g.emit(op.cumsum(starts, 0)), g.const(1, "int64")))
    if return_counts:
        zeros, ones = (
            g.emit(op.full([n], g.const(v, "int64"), "int64"))
            for v, n in ((0, g.shape(places)[0]), (1, count))
        )
        counts = op.scatter_elements(zeros, inverse, ones, 0, "add")
    if return_inverse and dim is None:
        inverse = op.reshape(inverse, g.shape(x))
    return values, inverse if return_inverse else None, counts


def _unique(g: Graph, x: Any, inverse: bool, counts: bool, axis: int | None) -> tuple:
    found = op.unique(
        x, sorted=True, return_index=False, return_inverse=inverse, return_counts=counts, axis=axis
    )
    found = g.emit(found)
    if not (inverse or counts):
        return found, None, None
    parts = [relax.TupleGetItem(found, i) for i in range(1 + inverse + counts)]
    values = parts.pop(0)
    where = parts.pop(0) if inverse else None
    if where is not None and axis is None:
        where = op.reshape(g.emit(where), g.shape(x))
    return values, where, parts.pop(0) if counts else None
