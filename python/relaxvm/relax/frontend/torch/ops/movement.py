# SPDX-License-Identifier: Apache-2.0
"""Shapes: views, axes, joining and splitting, slices, order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from relaxvm.relax import TupleGetItem, op

from ..errors import UnsupportedProgram
from ..graph import Graph
from ..registry import aten_op
from ..symbols import Size, same_size


@aten_op("view.default", "reshape.default", "_unsafe_view.default")
def view(g: Graph, x: Any, shape: Sequence[Size]) -> Any:
    return op.reshape(x, g.result_shape() if _has_minus_one(shape) else list(shape))


def _has_minus_one(shape: Sequence[Size]) -> bool:
    return any(isinstance(d, int) and d == -1 for d in shape)


@aten_op("view.dtype")
def view_dtype(g: Graph, x: Any, dtype: Any) -> Any:
    """The same bytes as elements of another type."""
    return op.memory.view(x, g.result_shape(), g.result_dtype(), 0)


@aten_op("permute.default")
def permute(g: Graph, x: Any, dims: Sequence[int]) -> Any:
    return op.permute_dims(x, list(dims)) if dims else x


@aten_op("transpose.int")
def transpose(g: Graph, x: Any, a: int, b: int) -> Any:
    order = list(range(g.rank(x)))
    if not order:
        return x
    a, b = g.axis(x, a), g.axis(x, b)
    order[a], order[b] = order[b], order[a]
    return op.permute_dims(x, order)


@aten_op("squeeze.default", "squeeze.dim", "squeeze.dims")
def squeeze(g: Graph, x: Any, dims: Any = None) -> Any:
    if isinstance(dims, (list, tuple)) and not dims:
        return x  # here no axis is none
    shape = g.shape(x)
    axes = [i for i in g.axes(x, dims) if isinstance(shape[i], int) and shape[i] == 1]
    return op.squeeze(x, axes) if axes else x


@aten_op("unsqueeze.default")
def unsqueeze(g: Graph, x: Any, dim: int) -> Any:
    return op.expand_dims(x, [dim])


@aten_op("expand.default")
def expand(g: Graph, x: Any, shape: Sequence[Size], **_: Any) -> Any:
    return g.broadcast(x, g.result_shape())


@aten_op("repeat.default", "tile.default")
def repeat(g: Graph, x: Any, times: Sequence[Size]) -> Any:
    if all(isinstance(t, int) for t in times):
        return op.tile(x, list(times))
    # [a, b] -> [1, a, 1, b] -> [n, a, m, b] -> [n * a, m * b]
    shape: list[Size] = [1] * (len(times) - g.rank(x)) + g.shape(x)
    apart = g.emit(op.reshape(x, [d for size in shape for d in (1, size)]))
    wide = [d for pair in zip(times, shape) for d in pair]
    return op.reshape(g.emit(op.broadcast_to(apart, wide)), g.result_shape())


@aten_op("repeat_interleave.self_int")
def repeat_interleave(g: Graph, x: Any, times: int, dim: int | None = None, **_: Any) -> Any:
    if dim is None:
        return op.repeat(g.emit(op.reshape(x, [-1])), times, 0)
    return op.repeat(x, times, g.axis(x, dim))


# ---- joining, splitting


@aten_op("cat.default")
def cat(g: Graph, tensors: Sequence[Any], dim: int = 0) -> Any:
    # PyTorch leaves out what has the shape [0], whatever the others are.
    kept = [t for t in tensors if g.shape(t) != [0]] or list(tensors[:1])
    parts = g.agree(*kept, dtype=g.result_dtype())
    return parts[0] if len(parts) == 1 else op.concat(parts, g.axis(parts[0], dim))


@aten_op("stack.default")
def stack(g: Graph, tensors: Sequence[Any], dim: int = 0) -> Any:
    parts = g.agree(*tensors, dtype=g.result_dtype())
    return op.stack(parts, dim)


@aten_op("split.Tensor")
def split(g: Graph, x: Any, size: Any, dim: int = 0) -> tuple:
    axis = g.axis(x, dim)
    sizes = [g.symbols.size(part.shape[axis]) for part in g.result]
    return split_with_sizes(g, x, sizes, dim)


@aten_op("split_with_sizes.default")
def split_with_sizes(g: Graph, x: Any, sizes: Sequence[Size], dim: int = 0) -> tuple:
    axis = g.axis(x, dim)
    if len(sizes) == 1:
        return (x,)
    if all(isinstance(s, int) for s in sizes):
        ends = np.cumsum(sizes)[:-1].tolist()
        parts = g.emit(op.split(x, [int(e) for e in ends], axis))
        return tuple(TupleGetItem(parts, i) for i in range(len(sizes)))
    results, begin = [], 0
    for size in sizes:
        results.append(_cut(x, axis, begin, begin + size, 1))
        begin = begin + size
    return tuple(results)


@aten_op("unbind.int")
def unbind(g: Graph, x: Any, dim: int = 0) -> tuple:
    axis = g.axis(x, dim)
    return tuple(_row(g, x, axis, i) for i in range(len(g.result)))


# ---- slices


def _cut(x: Any, axis: int, begin: Size, end: Size, step: int) -> Any:
    return op.strided_slice(x, [axis], [begin], [end], [step], assume_inbound=True)


@aten_op("slice.Tensor")
def slice_tensor(
    g: Graph, x: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Any:
    axis = g.axis(x, dim)
    begin, length = _begin(g, x, axis, start), g.result_shape()[axis]
    same = not isinstance(begin, int) or begin or step != 1
    if not same and same_size(length, g.shape(x)[axis]):
        return x
    span = length * step
    if isinstance(length, int) and length:
        span -= step - 1
    return _cut(x, axis, begin, begin + span, step)


def _begin(g: Graph, x: Any, axis: int, start: Any) -> Size:
    """Where a slice begins: from the front, and not behind the end."""
    size = g.shape(x)[axis]
    if start is None:
        return 0
    if isinstance(start, int) and isinstance(size, int):
        return slice(start, None).indices(size)[0]
    if isinstance(start, int) and start < 0:
        # PyTorch found how much is left: all of it stands at the end.
        to_end = g.node.args[3:4] in ((), (None,), (2**63 - 1,))
        return size - g.result_shape()[axis] if to_end else size + start
    return start


@aten_op("select.int")
def select(g: Graph, x: Any, dim: int, index: Any) -> Any:
    return _row(g, x, g.axis(x, dim), index)


def _row(g: Graph, x: Any, axis: int, index: Any) -> Any:
    if isinstance(index, int):
        size = g.shape(x)[axis]
        begin = index + size if index < 0 else index
        return op.squeeze(g.emit(_cut(x, axis, begin, begin + 1, 1)), [axis])
    return op.take(x, g.number(index, "int64"), axis=axis)


@aten_op("diagonal.default")
def diagonal(g: Graph, x: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    a, b = g.axis(x, dim1), g.axis(x, dim2)
    others = [i for i in range(g.rank(x)) if i not in (a, b)]
    shape = g.shape(x)
    rows, columns, length = shape[a], shape[b], g.result_shape()[-1]
    moved = g.emit(op.permute_dims(x, [*others, a, b]))
    flat = g.emit(op.reshape(moved, [*(shape[i] for i in others), rows * columns]))
    first = offset if offset >= 0 else -offset * columns
    places = _steps(g, first, length, columns + 1)
    return op.take(flat, places, axis=len(others))


def _steps(g: Graph, first: Size, count: Size, step: Size) -> Any:
    """first, first + step, .., of so many numbers."""
    if all(isinstance(v, int) for v in (first, count, step)):
        return g.const(first + np.arange(count) * step, "int64")
    numbers = g.emit(op.arange(0, count, 1, dtype="int64"))
    far = g.emit(op.multiply(numbers, g.number(step, "int64")))
    return g.emit(op.add(far, g.number(first, "int64")))


@aten_op("as_strided.default")
def as_strided(
    g: Graph, x: Any, shape: Sequence[int], strides: Sequence[int], offset: int | None = None
) -> Any:
    """By places among all elements."""
    places = strided_places(g, x, shape, strides, offset)
    return op.take(g.emit(op.reshape(x, [-1])), g.const(places, "int64"), axis=0)


def strided_places(
    g: Graph, x: Any, shape: Sequence[int], strides: Sequence[int], offset: int | None
) -> np.ndarray:
    """Where the elements of a view by strides lie in `x`, the node's first argument, which lies in order."""
    sizes = [*shape, *strides, *g.shape(x)]
    if not all(isinstance(d, int) for d in sizes):
        raise UnsupportedProgram("a view by strides of sizes that are not known")
    meta = g.node.args[0].meta["val"]
    if not meta.is_contiguous() or meta.storage_offset() != 0:
        raise UnsupportedProgram("a view by strides of a tensor that does not lie in order")
    places = np.full(tuple(shape), offset or 0, "int64")
    for axis, (size, stride) in enumerate(zip(shape, strides)):
        row = np.arange(size) * stride
        places = places + row.reshape([-1 if i == axis else 1 for i in range(len(shape))])
    return places


@aten_op("unfold.default")
def unfold(g: Graph, x: Any, dim: int, size: int, step: int) -> Any:
    if g.rank(x) == 0:
        return op.reshape(x, [1]) if size else op.zeros([0], g.dtype(x))
    axis, count = g.axis(x, dim), g.result_shape()[g.axis(x, dim)]
    begins = g.emit(op.expand_dims(_steps(g, 0, count, step), [1]))
    places = g.emit(op.add(begins, g.const(np.arange(size), "int64")))
    windows = g.emit(op.take(x, places, axis=axis))
    rank = g.rank(x) + 1
    return op.permute_dims(windows, [i for i in range(rank) if i != axis + 1] + [axis + 1])


# ---- order


@aten_op("flip.default")
def flip(g: Graph, x: Any, dims: Sequence[int]) -> Any:
    for dim in dims:
        x = g.emit(op.flip(x, g.axis(x, dim)))
    return x


@aten_op("roll.default")
def roll(g: Graph, x: Any, shifts: Any, dims: Any = ()) -> Any:
    shifts = [shifts] if not isinstance(shifts, (list, tuple)) else list(shifts)
    if not dims:
        flat = g.emit(op.reshape(x, [-1]))
        return op.reshape(_rolled(g, flat, shifts[0], 0), g.shape(x))
    for shift, dim in zip(shifts, [dims] if isinstance(dims, int) else dims):
        x = _rolled(g, x, shift, g.axis(x, dim))
    return x


def _rolled(g: Graph, x: Any, shift: Any, axis: int) -> Any:
    size = g.shape(x)[axis]
    if not isinstance(shift, int):
        raise UnsupportedProgram("a shift that is not known")
    if isinstance(size, int):
        shift %= max(size, 1)
    if shift == 0:
        return x
    # A size that is not known is at least the shift: PyTorch asks for it as well where it slices.
    split = size - shift if shift > 0 else -shift
    parts = [_cut(x, axis, split, size, 1), _cut(x, axis, 0, split, 1)]
    return g.emit(op.concat([g.emit(p) for p in parts], axis))
