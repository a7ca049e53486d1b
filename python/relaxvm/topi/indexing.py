# SPDX-License-Identifier: Apache-2.0
"""Parts of arrays by place: slices, indices that are tensors, diagonals, windows, places in a sorted sequence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import te, tirx
from ..ir.base import plain
from ..relax.expr import Tuple
from ..te.tensor import Tensor, compute
from .arrays import _ints, transpose
from .operators import OPERATORS as op


def strided_slice(
    a: Tensor,
    begin: Sequence[Any],
    end: Sequence[Any],
    strides: Sequence[Any] | None = None,
    axes: Sequence[int] | None = None,
    slice_mode: str = "end",
    assume_inbound: bool = True,
) -> Tensor:
    """a[begin:end:strides] along `axes`, or along the first ones; with `slice_mode="size"` `end` counts elements."""
    names = list(range(len(begin))) if axes is None else _ints(axes)
    steps = [1] * len(names) if not strides else [*strides, *[1] * (len(names) - len(strides))]
    stops = list(end)
    if slice_mode == "size":
        stops = [a.shape[x] if n == -1 else b + n for x, b, n in zip(names, begin, stops)]
        steps = [1] * len(names)
    elif slice_mode != "end":
        raise ValueError(f'slice_mode must be "end" or "size", not {slice_mode!r}')
    bounds = (Tuple([_size(v) for v in values]) for values in (names, begin, stops, steps))
    return op["strided_slice"](a, *bounds)


def _size(value: Any) -> Any:
    return tirx.const(value, "int64") if isinstance(value, int) else plain(value)


def dynamic_strided_slice(
    a: Tensor, begin: Tensor, end: Tensor, strides: Tensor, output_shape: Sequence[Any]
) -> Tensor:
    """a[begin:end:strides] along the first axes by bounds that are tensors; `output_shape` says what that gives."""
    count = int(begin.shape[0])

    def formula(*i: Any) -> Any:
        places = list(i)
        for d in range(count):
            first, step = _first(begin(d), strides(d), a.shape[d])
            places[d] = first + i[d] * step
        return a(*places)

    return compute(output_shape, formula, name="T_strided_slice_dynamic")


def _first(begin: Any, step: Any, extent: Any) -> tuple[Any, Any]:
    """Where a slice begins, inside of the axis, and its step, as int64."""
    begin, step, extent = (plain(v).astype("int64") for v in map(_size, (begin, step, extent)))
    begin = tirx.Select(begin < 0, begin + extent, begin)
    greatest = tirx.Select(step < 0, extent - 1, extent)
    least = tirx.Select(step < 0, _size(-1), _size(0))
    return tirx.min(tirx.max(begin, least), greatest), step


def strided_set(a: Tensor, v: Tensor, begin: Any, end: Any, strides: Any = None) -> Tensor:
    """`a` with `v` in a[begin:end:strides] along the first axes; bounds are tensors or lists of numbers."""
    count = int(begin.shape[0]) if isinstance(begin, Tensor) else len(begin)
    if v.ndim != a.ndim:
        raise ValueError(f"strided_set: v has {v.ndim} dimensions, a has {a.ndim}")

    def formula(*i: Any) -> Any:
        places, inside = list(i), []
        for d in range(count):
            first, step = _first(begin[d], 1 if strides is None else strides[d], a.shape[d])
            extent, last = (_size(x).astype("int64") for x in (a.shape[d], end[d]))
            last = tirx.Select(last < 0, last + extent, last)
            past = tirx.Select(step < 0, tirx.all(i[d] <= first, i[d] > last), i[d] >= first)
            before = tirx.Select(step < 0, _true(), i[d] < last)
            distance = i[d] - first
            inside += [past, before, tirx.floormod(distance, step) == 0]
            places[d] = tirx.floordiv(distance, step)
        return tirx.if_then_else(tirx.all(*inside), v(*places), a(*i))

    return compute(a.shape, formula, name="T_strided_set")


def _true() -> Any:
    return tirx.const(True, "bool")


def take(
    a: Tensor, indices: Tensor, axis: int | None = None, batch_dims: int = 0, mode: str = "fast"
) -> Tensor:
    """Elements of `a` along `axis` at `indices`; without an axis `a` counts as one row.

    The first `batch_dims` dimensions of `a` and `indices` are the same.  An index outside gives the border, or counts
    on from the start with `mode="wrap"`.
    """
    if axis is None:
        a, axis = op["reshape"](a, (-1,)), 0
    if batch_dims == 0:
        return op["take"](a, indices, axis=axis, mode=mode)
    if mode not in ("fast", "clip", "wrap"):
        raise ValueError(f'mode must be "fast", "clip" or "wrap" with batch_dims, not {mode!r}')
    first = axis % a.ndim
    batches = batch_dims % indices.ndim
    extent, inner = a.shape[first], indices.ndim - batches
    shape = [*list(a.shape)[:first], *list(indices.shape)[batches:], *list(a.shape)[first + 1 :]]

    def formula(*i: Any) -> Any:
        place = indices(*i[:batches], *i[first : first + inner]).astype("int64")
        if mode == "wrap":
            place = tirx.floormod(place, extent)
        else:
            place = tirx.max(tirx.min(place, extent - 1), _size(0))
        return a(*i[:first], place, *i[first + inner :])

    return compute(shape, formula, name="T_take")


def gather(data: Tensor, axis: int, indices: Tensor) -> Tensor:
    """out[.., i, ..] = data[.., indices[.., i, ..], ..] along `axis`."""
    return op["gather_elements"](data, indices, axis=axis)


def _last(indices: Tensor) -> Tensor:
    """Coordinates, which topi has along the first axis, along the last one."""
    return transpose(indices, [*range(1, indices.ndim), 0])


def gather_nd(a: Tensor, indices: Tensor, batch_dims: int = 0) -> Tensor:
    """out[b, j] = a[b, indices[0, b, j], indices[1, b, j] ...]; b are the first `batch_dims` dimensions."""
    return op["gather_nd"](a, _last(indices), batch_dims=batch_dims)


def scatter_nd(data: Tensor, indices: Tensor, updates: Tensor, mode: str = "update") -> Tensor:
    """`data` with updates[j] at [indices[0, j], indices[1, j] ...]; `mode` combines them with what is there."""
    return op["scatter_nd"](data, _last(indices), updates, reduction=mode)


def adv_index(data: Tensor, indices: Sequence[Tensor]) -> Tensor:
    """data[indices[0], indices[1] ...], the indices broadcast to one shape."""
    return op["index_tensor"](data, list(indices))


def unravel_index(indices: Tensor, shape: Any) -> Tensor:
    """The coordinates, along a new first axis, of places counted through an array of `shape`, a tensor or numbers."""
    rank = int(shape.shape[0]) if isinstance(shape, Tensor) else len(shape)
    dtype = str(indices.dtype)

    def formula(*i: Any) -> Any:
        rest = indices(*i[1:])
        found = None
        for d in reversed(range(rank)):
            extent = shape[d] if isinstance(shape, Tensor) else _size(shape[d])
            extent = extent.astype(dtype)
            here = tirx.indexmod(rest, extent)
            found = here if found is None else tirx.Select(i[0] == d, here, found)
            rest = tirx.indexdiv(rest, extent)
        return found

    return compute((rank, *indices.shape), formula, name="T_unravel")


def searchsorted(
    sorted_sequence: Tensor, values: Tensor, right: bool = False, out_dtype: str = "int64"
) -> Tensor:
    """How many elements of each sorted row are below the value, or, with `right`, are not above it.

    A sequence of one dimension is searched for all values; else rows of `values` go with rows of `sorted_sequence`.
    """
    if sorted_sequence.ndim == 1:
        found = op["bucketize"](
            values, sorted_sequence, out_int32=out_dtype == "int32", right=right
        )
        return found if out_dtype in ("int32", "int64") else op["astype"](found, dtype=out_dtype)
    k = te.reduce_axis((0, sorted_sequence.shape[-1]), "k")

    def formula(*i: Any) -> Any:
        element, value = sorted_sequence(*i[:-1], k), values(*i)
        below = element <= value if right else element < value
        return te.sum(below.astype(out_dtype), axis=k)

    return compute(values.shape, formula, name="T_searchsorted")


# ---- diagonals and windows


def matrix_set_diag(
    data: Tensor, diagonal: Tensor, k: Any = 0, align: str = "RIGHT_LEFT"
) -> Tensor:
    """Matrices with other diagonals: number `k`, or, for a pair, all from k[0] to k[1], the highest one first.

    `align` says on which side of its row a shorter diagonal above, and one below, the main one stands.
    """
    several = isinstance(k, (tuple, list))
    low, high = (int(n) for n in k) if several else (int(k), int(k))
    several = several and low != high
    if align not in [f"{a}_{b}" for a in ("LEFT", "RIGHT") for b in ("LEFT", "RIGHT")]:
        raise ValueError(f"align must be like RIGHT_LEFT, not {align!r}")
    above, below = (side == "RIGHT" for side in align.split("_"))
    rows, columns = list(data.shape)[-2:]
    longest = diagonal.shape[diagonal.ndim - 1]

    def formula(*i: Any) -> Any:
        *batch, row, column = i
        offset = column - row
        place = tirx.min(row, column)
        if several:
            length = tirx.min(
                rows + tirx.min(offset, _size(0)), columns - tirx.max(offset, _size(0))
            )
            shift = longest - length
            shifts = [shift if on_right else _size(0) for on_right in (above, below)]
            place = place + tirx.Select(offset >= 0, *shifts)
            value = diagonal(*batch, high - offset, place)
        else:
            value = diagonal(*batch, place)
        return tirx.if_then_else(tirx.all(offset >= low, offset <= high), value, data(*i))

    return compute(data.shape, formula, name="T_matrix_set_diag")


def sparse_to_dense(
    sparse_indices: Tensor,
    output_shape: Sequence[Any],
    sparse_values: Tensor,
    default_value: Any = 0,
) -> Tensor:
    """`sparse_values` at `sparse_indices` [n, dimensions] (or [n], or a scalar), elsewhere `default_value`."""
    dtype = str(sparse_values.dtype)

    def background(*i: Any) -> Any:
        if isinstance(default_value, Tensor):
            return default_value()
        return plain(
            tirx.const(default_value, dtype)
            if isinstance(default_value, (int, float))
            else default_value
        )

    count = sparse_indices.shape[0] if sparse_indices.ndim else 1
    width = sparse_indices.shape[1] if sparse_indices.ndim == 2 else 1
    places = op["reshape"](sparse_indices, (count, width))
    values = op["broadcast_to"](sparse_values, (count,))
    dense = compute(list(output_shape), background, name="T_sparse_to_dense")
    return op["scatter_nd"](dense, places, values, reduction="update")


def sliding_window(
    data: Tensor, axis: int, window_shape: Sequence[int], strides: Sequence[int]
) -> Tensor:
    """Windows along all dimensions from `axis` on: [.., places, within the window]."""
    first = axis % data.ndim
    window, steps = _ints(window_shape), _ints(strides)
    if not len(window) == len(steps) == data.ndim - first:
        raise ValueError(
            f"sliding_window: a window of {data.ndim - first} dimensions from axis {axis}"
        )
    lead, slid = list(data.shape)[:first], list(data.shape)[first:]
    counts = [(n - w) // s + 1 for n, w, s in zip(slid, window, steps)]

    def formula(*i: Any) -> Any:
        places, within = i[first : first + len(window)], i[first + len(window) :]
        return data(*i[:first], *(p * s + w for p, s, w in zip(places, steps, within)))

    return compute([*lead, *counts, *window], formula, name="T_sliding_window")
