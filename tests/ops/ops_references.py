# SPDX-License-Identifier: Apache-2.0
"""NumPy forms of operators that take more than an expression: what `reference` texts of the records may call.  Plain and
slow; independent of the compute rules (convolutions by windows, scatters by loops)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from ops_references_boxes import (  # noqa: F401
    class_boxes,
    get_valid_counts,
    multibox_transform_loc,
    non_max_suppression,
)
from ops_references_grad import nll_loss_backward, pool_backward, take_backward  # noqa: F401
from ops_references_images import (  # noqa: F401
    affine_grid,
    grid_sample,
    resize,
    resize_weights,
    roi_align,
    roi_pool,
)
from ops_references_layout import along, trunc_divide  # noqa: F401
from ops_references_nn import (  # noqa: F401
    adaptive_avg_pool,
    attention,
    avg_pool,
    batch_norm,
    conv,
    conv_transpose,
    group_norm,
    instance_norm,
    layer_norm,
    max_pool,
    nll_loss,
    pad,
    pixel_shuffle,
    rms_norm,
)
from ops_references_quantized import block_matmul, quantized_lstm  # noqa: F401
from ops_references_recurrent import gru, lstm, rnn  # noqa: F401

Array = np.ndarray
Ints = Sequence[int]


def count(x: Array, axis: Ints | None) -> int:
    return int(np.prod([x.shape[a] for a in (range(x.ndim) if axis is None else axis)], initial=1))


def scan(f: Callable[..., Array], x: Array, axis: int | None, dtype: Any, exclusive: bool) -> Array:
    dtype = dtype or x.dtype
    if axis is None:
        x, axis = x.reshape(-1), 0
    x = x.astype(dtype)
    if exclusive:
        identity = 0 if f is np.cumsum else 1
        first = np.full_like(np.take(x, [0] if x.shape[axis] else [], axis), identity)
        x = np.concatenate([first, np.delete(x, -1, axis) if x.shape[axis] else x], axis)
    return f(x, axis=axis, dtype=dtype)


def split(x: Array, parts: int | Ints, axis: int) -> tuple[Array, ...]:
    n = x.shape[axis]
    if isinstance(parts, int):
        step = -(-n // parts)
        points = [step * k for k in range(1, parts)]
    else:
        points = list(parts)
    bounds = [0, *[min(p, n) for p in points], n]
    take = [slice(None)] * x.ndim
    result = []
    for begin, end in itertools.pairwise(bounds):
        take[axis] = slice(begin, max(begin, end))
        result.append(x[tuple(take)])
    return tuple(result)


def reverse_sequence(x: Array, lengths: Array, seq_axis: int, batch_axis: int) -> Array:
    moved = np.moveaxis(x, (batch_axis, seq_axis), (0, 1)).copy()
    for b, n in enumerate(lengths):
        moved[b, :n] = moved[b, :n][::-1]
    return np.moveaxis(moved, (0, 1), (batch_axis, seq_axis))


def strided_slice(x: Array, axes: Ints, begin: Ints, end: Ints, strides: Ints | None) -> Array:
    take = [slice(None)] * x.ndim
    for axis, b, e, s in zip(axes, begin, end, strides or [1] * len(axes), strict=True):
        take[axis] = slice(b, e, s)
    return x[tuple(take)]


def slice_scatter(x: Array, src: Array, start: int, end: int, step: int | None, axis: int) -> Array:
    out = x.copy()
    take = [slice(None)] * x.ndim
    take[axis] = slice(start, end, step)
    out[tuple(take)] = src
    return out


def layout_transform(x: Array, index_map: Any, pad_value: Any) -> Array:
    """Every element goes where the map says."""
    places = {i: tuple(int(p) for p in index_map.map_indices(i)) for i in np.ndindex(*x.shape)}
    out = np.full([int(n) for n in index_map.map_shape(x.shape)], pad_value or 0, x.dtype)
    for i, place in places.items():
        out[place] = x[i]
    return out


# ---- indices


def cache_rows(cache: Array, rows: Array, starts: Array, length: Ints) -> Array:
    batch, heads, old, depth = cache.shape
    out = np.zeros((batch, heads, length[0], depth), cache.dtype)
    out[:, :, :old] = cache[:, :, : length[0]]
    for b, start in enumerate(starts):
        kept = rows[b, :, : max(0, length[0] - start)]
        out[b, :, start : start + kept.shape[1]] = kept
    return out


def gather_nd(x: Array, indices: Array, batch_dims: int) -> Array:
    if batch_dims == 0:
        return x[tuple(np.moveaxis(indices, -1, 0))]
    parts = [gather_nd(a, i, batch_dims - 1) for a, i in zip(x, indices, strict=True)]
    return np.stack(parts)


def one_hot(indices: Array, on: Any, off: Any, depth: int, axis: int) -> Array:
    hot = np.expand_dims(indices, axis) == along(np.arange(depth), axis, indices.ndim + 1)
    return np.where(hot, on, off)


_COMBINE: dict[str, Callable[[Any, Any], Any]] = {
    "update": lambda old, new: new,
    "add": lambda old, new: old + new,
    "mul": lambda old, new: old * new,
    "mean": lambda old, new: (old + new) / 2,
    "max": max,
    "min": min,
}


def scatter_elements(x: Array, indices: Array, updates: Array, axis: int, reduction: str) -> Array:
    out = x.copy()
    for place in np.ndindex(*indices.shape):
        to = list(place)
        to[axis] = indices[place]
        out[tuple(to)] = _COMBINE[reduction](out[tuple(to)], updates[place])
    return out


def scatter_nd(x: Array, indices: Array, updates: Array, reduction: str) -> Array:
    out = x.copy()
    for place in np.ndindex(*indices.shape[:-1]):
        to = tuple(indices[place])
        if reduction in ("max", "min"):
            f = np.maximum if reduction == "max" else np.minimum
            out[to] = f(out[to], updates[place])
        else:
            out[to] = _COMBINE[reduction](out[to], updates[place])
    return out


def index_put(x: Array, indices: Sequence[Array], values: Array, accumulate: bool) -> Array:
    out = x.copy()
    if accumulate:
        np.add.at(out, tuple(indices), values)
    else:
        out[tuple(indices)] = values
    return out


def argsort(x: Array, axis: int, descending: bool) -> Array:
    if not descending:
        return np.argsort(x, axis, kind="stable")
    flipped = np.argsort(np.flip(x, axis), axis, kind="stable")
    return np.flip(x.shape[axis] - 1 - flipped, axis)


def topk(x: Array, k: int, axis: int, ret_type: str, largest: bool) -> Any:
    order = argsort(x, axis, largest)
    if k > 0:
        order = np.take(order, range(min(k, x.shape[axis])), axis)
    values = np.take_along_axis(x, order, axis)
    missing = max(k - x.shape[axis], 0)  # an axis that turns out to be shorter
    widths = [(0, missing if d == axis % x.ndim else 0) for d in range(x.ndim)]
    values, order = np.pad(values, widths), np.pad(order, widths, constant_values=-1)
    return {"both": (values, order), "values": values, "indices": order}[ret_type]


def collapse_sum(x: Array, shape: Ints) -> Array:
    x = x.sum(tuple(range(x.ndim - len(shape))), dtype=x.dtype)
    axes = tuple(d for d, n in enumerate(shape) if n == 1 and x.shape[d] != 1)
    return x.sum(axes, keepdims=True, dtype=x.dtype)


# ---- quantisation


def _of_axis(v: Array, x: Array, axis: int) -> Array:
    return along(v, axis, x.ndim) if v.ndim == 1 else v


def quantize(x: Array, scale: Array, zero: Array, out_dtype: Any, axis: int) -> Array:
    # In float32, as the operator defines it: halves must fall where they do there.
    x, scale = x.astype("float32"), scale.astype("float32")
    scaled = np.round(x / _of_axis(scale, x, axis)) + _of_axis(zero, x, axis).astype("float32")
    limits = np.iinfo(out_dtype)
    return np.clip(scaled, limits.min, limits.max).astype(out_dtype)


def dequantize(x: Array, scale: Array, zero: Array, out_dtype: Any, axis: int) -> Array:
    distance = x.astype("float64") - _of_axis(zero, x, axis).astype("float64")
    return distance * _of_axis(scale, x, axis).astype("float64")


def hamming_window(
    size: int, periodic: bool = True, alpha: float = 0.54, beta: float = 0.46
) -> Array:
    if size == 1:
        return np.ones(1)
    return alpha - beta * np.cos(2 * np.pi * np.arange(size) / (size if periodic else size - 1))


def multinomial(prob: Array, uniform: Array, rows: Array) -> Array:
    out = np.zeros((len(uniform), 1), np.int64)
    for i, (u, row) in enumerate(zip(uniform[:, 0], rows[:, 0], strict=True)):
        if len(prob) == 0 or prob.shape[1] == 0:
            out[i] = max(prob.shape[1] - 1, 0)
            continue
        above = np.flatnonzero(np.cumsum(prob[int(np.clip(row, 0, len(prob) - 1))]) > u)
        out[i] = above[0] if above.size else prob.shape[1] - 1
    return out


def tree_sums(x: Array, splits: Array, links: Array, roots: Array, weights: Array, columns: int, compare: str,  # fmt: skip
    combine: str, missing: bool, groups: int) -> Array:  # fmt: skip
    holds = {
        "<=": np.less_equal,
        "<": np.less,
        ">=": np.greater_equal,
        ">": np.greater,
        "==": np.equal,
    }[compare]
    add, start = {"sum": (np.add, 0), "min": (np.minimum, np.inf), "max": (np.maximum, -np.inf)}[
        combine
    ]
    out = np.full((groups, len(x), columns), start, x.dtype)
    for group, row in np.ndindex(groups, len(x)):
        for tree in range(len(roots) * group // groups, len(roots) * (group + 1) // groups):
            node, pairs, column = roots[tree]
            for _ in range(2 * pairs):
                value = x[row, links[node, 0] >> 1]
                tracks = missing and links[node, 0] & 1 and np.isnan(value)
                node = links[node, 1] + bool(holds(value, splits[node]) or tracks)
            part = out[group, row, column : column + weights.shape[1]]
            part[:] = add(part, weights[node])
    return out


def slice_bounds(extents: Array, begin: Array, end: Array, strides: Array) -> Any:
    rows = zip(extents, begin, end, strides, strict=True)
    ranges = [range(n)[b:e:s] for n, b, e, s in rows]
    first = [slice(b, e, s).indices(n)[0] for n, b, e, s in zip(extents, begin, end, strides)]
    return np.array(first, np.int64), np.array([len(r) for r in ranges], np.int64)


def median(data: Array, axis: Ints | int | None, keepdims: bool) -> Any:
    axes = tuple(range(data.ndim)) if axis is None else (axis,) if isinstance(axis, int) else axis
    axes = sorted(a % data.ndim for a in axes)
    rest = [a for a in range(data.ndim) if a not in axes]
    shape = [data.shape[a] for a in rest]
    lines = data.transpose(*rest, *axes).reshape(*shape, -1)
    order = np.argsort(lines, axis=-1, kind="stable")
    middle = np.take(order, (lines.shape[-1] - 1) // 2, axis=-1)
    value = np.take_along_axis(lines, middle[..., None], -1)[..., 0]
    if keepdims:
        value, middle = np.expand_dims(value, axes), np.expand_dims(middle, axes)
    return value if axis is None else (value, middle)
