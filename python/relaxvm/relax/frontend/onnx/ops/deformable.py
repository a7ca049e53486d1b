# SPDX-License-Identifier: Apache-2.0
"""Convolution whose windows are read at offsets."""

from __future__ import annotations

import math

import numpy as np

from relaxvm.relax import op

from ..errors import UnsupportedModel
from ..graph import Graph
from ..padding import window_counts
from ..registry import Expr, onnx_op
from .convolution import add_bias, kernel_dims


@onnx_op("DeformConv", since=19)
def deform_conv(
    g: Graph,
    x: Expr,
    weight: Expr,
    offset: Expr,
    bias: Expr | None = None,
    mask: Expr | None = None,
    *,
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    offset_group: int = 1,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Expr:
    """Each tap of each window is sampled where its offset says; then the products are a 1x1 convolution.

    Channels come last all the way: one place is read for all channels that share its offset.
    """
    if g.rank(x) != 4:
        raise UnsupportedModel(f"works on 4 dimensions; its input has {g.rank(x)}")
    kernel = kernel_dims(g, weight, kernel_shape, 2)
    strides, dilations = strides or [1, 1], dilations or [1, 1]
    pads = pads or [0] * 4
    batch, channels, *size = g.shape(x)
    taps, s = math.prod(kernel), g.scalars
    parts, depth = s.mul(batch, offset_group), s.floordiv(channels, offset_group)
    counts = window_counts(s, size, kernel, strides, dilations, pads)
    places = g.product(counts)
    offset = g.checked(offset, [batch, offset_group * taps * 2, *counts])
    offset = g.emit(op.reshape(offset, [parts, taps, 2, *counts]))
    grid = []
    for i in (1, 0):  # a grid holds x, then y, from -1 to 1
        move = g.emit(op.strided_slice(offset, axes=[2], begin=[i], end=[i + 1]))
        moved = op.add(
            op.reshape(move, [parts, taps, *counts]),
            _places(g, x, i, kernel, counts, strides, dilations, pads),
        )
        extent = op.astype(g.as_expr(g.dims_value([size[i]], ()), "size"), g.dtype(x))
        centre = op.divide(op.add(op.multiply(moved, g.scalar(2, x)), g.scalar(1, x)), extent)
        at = g.emit(op.subtract(centre, g.scalar(1, x)))
        grid.append(g.emit(op.reshape(at, [parts, 1, taps, places])))
    image = g.emit(op.reshape(x, [parts, depth, *size]))
    sampled = op.image.grid_sample(
        g.emit(op.permute_dims(image, [0, 2, 3, 1])),
        g.emit(op.concat(grid, axis=1)),
        method="bilinear",
        layout="NHWC",
        padding_mode="zeros",
        align_corners=False,
    )
    if mask is not None:
        mask = g.checked(mask, [batch, offset_group * taps, *counts])
        mask = op.reshape(g.emit(mask), [parts, taps, places, 1])
        sampled = op.multiply(g.emit(sampled), g.emit(mask))
    # (batch, offset group, tap, place, channel) to (batch, place, group, tap, channel)
    sampled = g.emit(op.reshape(g.emit(sampled), [batch, offset_group, taps, places, depth]))
    sampled = g.emit(op.permute_dims(sampled, [0, 3, 2, 1, 4]))
    outputs, inputs = g.shape(weight)[:2]
    sampled = g.emit(op.reshape(sampled, [batch, places, taps, group, inputs]))
    sampled = g.emit(op.permute_dims(sampled, [0, 1, 3, 2, 4]))
    columns = g.emit(op.reshape(sampled, [batch, *counts, s.mul(channels, taps)]))
    flat = g.emit(op.reshape(weight, [outputs, inputs, taps]))
    flat = g.emit(op.permute_dims(flat, [0, 2, 1]))
    flat = g.emit(op.reshape(flat, [outputs, s.mul(inputs, taps), 1, 1]))
    columns = g.emit(op.permute_dims(columns, [0, 3, 1, 2]))
    return add_bias(g, g.emit(op.nn.conv2d(columns, flat, groups=group)), bias)


def _places(g, x, axis, kernel, counts, strides, dilations, pads):
    """Where each tap of each window lies on one axis without its offset: (1, taps, rows, columns)."""
    first = op.arange(0, counts[axis], 1, dtype="int64")
    first = op.subtract(
        op.multiply(first, g.constant(strides[axis], "int64")), g.constant(pads[axis], "int64")
    )
    shape = [1, 1, 1, 1]
    shape[2 + axis] = counts[axis]
    tap = np.arange(kernel[axis]) * dilations[axis]
    tap = np.broadcast_to(tap.reshape((-1, 1) if axis == 0 else (1, -1)), kernel).reshape(
        1, -1, 1, 1
    )
    places = op.add(op.reshape(first, shape), g.constant(np.ascontiguousarray(tap), "int64"))
    return op.astype(g.emit(places), g.dtype(x))
