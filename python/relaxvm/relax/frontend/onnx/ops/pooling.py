# SPDX-License-Identifier: Apache-2.0
"""Pooling over windows and over whole images."""

from __future__ import annotations

import itertools
import math

import numpy as np

from relaxvm.relax import op

from ..graph import Graph
from ..padding import pad_constant, window_counts
from ..registry import Dims, Expr, onnx_op
from ..slicing import take_first
from .convolution import resolve_padding, spatial_rank

_LAYOUT = {1: "NCW", 2: "NCHW", 3: "NCDHW"}
_MAX, _AVERAGE = "max_pool", "avg_pool"


@onnx_op("MaxPool", since=1)
def max_pool(
    g: Graph,
    x: Expr,
    *,
    kernel_shape: list[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
    storage_order: int = 0,
    strides: list[int] | None = None,
) -> Expr:
    lowest = -math.inf if not g.dtype(x).startswith(("int", "uint")) else np.iinfo(g.dtype(x)).min
    if g.wants(1):
        window = (kernel_shape, auto_pad, ceil_mode, dilations, pads, strides)
        return _max_and_place(g, x, lowest, window, bool(storage_order))
    return _pool(
        g, x, _MAX, lowest, kernel_shape, auto_pad, ceil_mode, dilations, pads, strides, False
    )


@onnx_op("AveragePool", since=1)
def average_pool(
    g: Graph,
    x: Expr,
    *,
    kernel_shape: list[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Expr:
    return _pool(
        g,
        x,
        _AVERAGE,
        0.0,
        kernel_shape,
        auto_pad,
        ceil_mode,
        dilations,
        pads,
        strides,
        bool(count_include_pad),
    )


@onnx_op("LpPool", since=2)
def lp_pool(
    g: Graph,
    x: Expr,
    *,
    kernel_shape: list[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: list[int] | None = None,
    p: int = 2,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Expr:
    dtype, x = g.dtype(x), g.widened(x)
    powers = g.emit(op.power(op.abs(x), g.scalar(p, x)))
    # The average of all window positions, padding included, times their number is the sum.
    mean = average_of_all(g, powers, kernel_shape, auto_pad, ceil_mode, dilations, pads, strides)
    total = op.multiply(mean, g.scalar(math.prod(kernel_shape), x))
    return g.as_type(op.power(total, g.scalar(1 / p, x)), dtype)


def average_of_all(g, x, kernel, auto_pad, ceil_mode, dilations, pads, strides):
    n = spatial_rank(g, x)
    strides, dilations = strides or [1] * n, dilations or [1] * n
    x, pads = resolve_padding(g, x, auto_pad, pads, kernel, strides, dilations, 0.0)
    x, pads, out, _ = _round_up(g, x, kernel, dilations, pads, strides, ceil_mode, False)
    y = _pool(g, x, _AVERAGE, 0.0, kernel, "NOTSET", 0, dilations, pads, strides, True)
    return take_first(g, g.emit(y), out)


def _pool(
    g, x, kind, value, kernel, auto_pad, ceil_mode, dilations, pads, strides, count_include_pad
):
    n = spatial_rank(g, x)
    strides, dilations = strides or [1] * n, dilations or [1] * n
    size = g.shape(x)[2:]
    symbolic_same = auto_pad in ("SAME_UPPER", "SAME_LOWER") and any(
        not isinstance(d, int) for d in size
    )
    if symbolic_same and kind == _AVERAGE and not count_include_pad:
        # The padding has become part of the input: the share of each window that is not padding.
        ones = g.emit(op.full([1, 1, *size], g.scalar(1, x), dtype=g.dtype(x)))
        mean = lambda v: g.emit(
            _pool(g, v, kind, value, kernel, auto_pad, ceil_mode, dilations, pads, strides, True)
        )
        return op.divide(mean(x), mean(ones))
    x, pads = resolve_padding(g, x, auto_pad, pads, kernel, strides, dilations, value)
    x, pads, out, count_include_pad = _round_up(
        g, x, kernel, dilations, pads, strides, ceil_mode, count_include_pad
    )
    y = getattr(op.nn, f"{kind}{n}d")(
        x,
        pool_size=kernel,
        strides=strides,
        dilation=dilations,
        padding=pads,
        ceil_mode=False,
        count_include_pad=count_include_pad,
        layout=_LAYOUT[n],
    )
    return take_first(g, g.emit(y), out)


def _max_and_place(g, x, lowest, window, columns_first):
    """The greatest of each window and where it stands in the whole tensor, tap by tap."""
    kernel, auto_pad, ceil_mode, dilations, pads, strides = window
    n, s = spatial_rank(g, x), g.scalars
    strides, dilations = strides or [1] * n, dilations or [1] * n
    batch, channels, *size = g.shape(x)
    area = g.product(size)
    place = op.arange(0, area, 1, dtype="int64")
    if columns_first:
        place = op.permute_dims(op.reshape(place, size[::-1]), list(range(n))[::-1])
    place = g.emit(op.reshape(place, [1, 1, *size]))
    place, _ = resolve_padding(g, place, auto_pad, pads, kernel, strides, dilations, -1)
    x, pads = resolve_padding(g, x, auto_pad, pads, kernel, strides, dilations, lowest)
    x, pads, out, _ = _round_up(g, x, kernel, dilations, pads, strides, ceil_mode, False)
    before, after = [0, 0, *pads[:n]], [0, 0, *pads[n:]]
    x, place = (g.emit(pad_constant(g, v, before, after, w)) for v, w in ((x, lowest), (place, -1)))
    whole = window_counts(s, g.shape(x)[2:], kernel, strides, dilations, [0] * 2 * n)
    counts = [w if o is None else o for w, o in zip(whole, out[2:])]
    ends = [s.add(s.mul(s.sub(c, 1), step), 1) for c, step in zip(counts, strides)]
    best = at = None
    for tap in itertools.product(*(range(0, k * d, d) for k, d in zip(kernel, dilations))):
        cut = {
            "axes": list(range(2, n + 2)),
            "begin": list(tap),
            "end": [s.add(end, first) for end, first in zip(ends, tap)],
            "strides": strides,
        }
        value, index = (g.emit(op.strided_slice(v, **cut)) for v in (x, place))
        value = g.checked(value, [batch, channels, *counts])
        index = g.checked(index, [1, 1, *counts])
        if best is None:
            best, at = value, index
            continue
        # An element that is as low as the padding stands before the padding.
        better = op.logical_or(op.greater(value, best), op.less(at, g.constant(0, "int64")))
        at = g.emit(op.where(better, index, at))
        best = g.emit(op.maximum(best, value))
    image = op.reshape(
        op.arange(0, s.mul(batch, channels), 1, dtype="int64"), [batch, channels, *[1] * n]
    )
    offset = op.multiply(image, g.as_expr(g.dims_value([area], ()), "size"))
    return best, op.add(at, offset)


@onnx_op("MaxUnpool", since=9)
def max_unpool(
    g: Graph,
    x: Expr,
    indices: Expr,
    output_shape: Dims | None = None,
    *,
    kernel_shape: list[int],
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Expr:
    n, s = spatial_rank(g, x), g.scalars
    strides, pads = strides or [1] * n, pads or [0] * 2 * n
    shape = g.shape(x)[:2]
    for i, extent in enumerate(g.shape(x)[2:]):
        full = s.add(s.mul(s.sub(extent, 1), strides[i]), kernel_shape[i])
        shape.append(s.sub(full, pads[i] + pads[n + i]))
    count = g.product(g.shape(x))
    zeros = g.emit(op.full([g.product(shape)], g.scalar(0, x), dtype=g.dtype(x)))
    places, values = (g.emit(op.reshape(v, [count])) for v in (indices, x))
    y = g.emit(op.reshape(op.scatter_elements(zeros, places, values, axis=0), shape))
    if output_shape is None:
        return y
    # The indices are those of the shape without it; what is more lies behind.
    after = [s.maximum(s.sub(want, have), 0) for want, have in zip(output_shape, shape)]
    return take_first(g, g.emit(pad_constant(g, y, [0] * (n + 2), after, 0)), output_shape)


def _round_up(g, x, kernel, dilations, pads, strides, ceil_mode, count_include_pad):
    """Where windows may reach over the end: more padding behind, never counted, and how many windows there are.

    A window that would start in that padding is cut off.  Without `ceil_mode` a single window reaches over, of a known
    size that it is larger than by less than a step: ONNX's formula has none there, ONNX Runtime divides towards zero.
    """
    n, s = len(kernel), g.scalars
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations)]
    room = [s.sub(s.add(d, pads[i] + pads[n + i]), reach[i]) for i, d in enumerate(g.shape(x)[2:])]
    is_less = [isinstance(r, int) and -step < r < 0 for r, step in zip(room, strides)]
    ups = [step > 1 and (bool(ceil_mode) or less) for step, less in zip(strides, is_less)]
    if not any(ups):
        return x, pads, [None] * (n + 2), count_include_pad
    if count_include_pad and any(pads):
        widths = [0, 0, 0, 0] + [p for i in range(n) for p in (pads[i], pads[n + i])]
        x = g.emit(op.nn.pad(x, pad_width=widths, pad_value=0.0, pad_mode="constant"))
        limits = [s.sub(d, pads[n + i]) for i, d in enumerate(g.shape(x)[2:])]
        pads = [0] * 2 * n
    else:
        limits = [s.add(d, pads[i]) for i, d in enumerate(g.shape(x)[2:])]
    # Windows start inside the image or the padding before it.
    counts = [s.add(s.ceildiv(r, step), 1) for r, step in zip(room, strides)]
    starts = [s.ceildiv(limit, step) for limit, step in zip(limits, strides)]
    out = [s.minimum(c, at) if up else None for up, c, at in zip(ups, counts, starts)]
    behind = [p + (step - 1 if up else 0) for p, step, up in zip(pads[n:], strides, ups)]
    return x, [*pads[:n], *behind], [None, None, *out], False


def _spatial_axes(g, x):
    return list(range(2, g.rank(x)))


@onnx_op("GlobalAveragePool", since=1)
def global_average_pool(g: Graph, x: Expr) -> Expr:
    return op.mean(x, axis=_spatial_axes(g, x), keepdims=True)


@onnx_op("GlobalMaxPool", since=1)
def global_max_pool(g: Graph, x: Expr) -> Expr:
    return op.max(x, axis=_spatial_axes(g, x), keepdims=True)


@onnx_op("GlobalLpPool", since=2)
def global_lp_pool(g: Graph, x: Expr, *, p: int = 2) -> Expr:
    dtype, x = g.dtype(x), g.widened(x)
    powers = op.power(op.abs(x), g.scalar(p, x))
    total = op.sum(powers, axis=_spatial_axes(g, x), keepdims=True)
    return g.as_type(op.power(total, g.scalar(1 / p, x)), dtype)
