# SPDX-License-Identifier: Apache-2.0
"""Convolutions in one, two and three dimensions."""

from __future__ import annotations

import math

import numpy as np

from relaxvm.relax import op

from .. import byte_products
from ..errors import InvalidModel, UnsupportedModel
from ..graph import Graph
from ..padding import pad_constant, same_padding
from ..registry import Expr, onnx_op
from ..slicing import Range, take_ranges

_LAYOUT = {1: "NCW", 2: "NCHW", 3: "NCDHW"}
_KERNEL = {1: "OIW", 2: "OIHW", 3: "OIDHW"}
_TRANSPOSED_KERNEL = {1: "IOW", 2: "IOHW", 3: "IODHW"}


@onnx_op("Conv", since=1)
def conv(
    g: Graph,
    x: Expr,
    weight: Expr,
    bias: Expr | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Expr:
    geometry = (auto_pad, dilations, group, kernel_shape, pads, strides)
    y = _conv_of_quantized(g, bias, geometry)
    return add_bias(g, g.emit(convolved(g, x, weight, geometry)), bias) if y is None else y


def _conv_of_quantized(g, bias, geometry):
    """The convolution of dequantized tensors by way of the integers.  None: of another form."""
    x, weight = g.dequantized_input(0), g.dequantized_input(1)
    if x is None or weight is None or not byte_products.worth_it(g, x, weight):
        return None
    if not byte_products.scales_are(g, weight, 0):
        return None
    if geometry[2] != 1 and not byte_products.groups_add_up(
        g, x.values, weight.values, weight.zero, geometry[2]
    ):
        return None
    y = conv_of_bytes(g, x.values, weight.values, x.zero, weight.zero, geometry)
    if y is None:
        return None
    product = byte_products.scaled(g, y, x, weight, 1)
    what = None if bias is None else g.dequantized_input(2)
    return byte_products.with_bias(g, product, bias, what, 1)


def conv_of_bytes(g, x, weight, x_zero, w_zero, geometry):
    """The convolution of the integers less their zero points, as Sums.  None: of another form."""
    n, group = spatial_rank(g, x), geometry[2]
    kernel_dims(g, weight, geometry[3], n)
    small = byte_products.weight_of_conv(g, x, weight, w_zero, group)
    if small is None or not byte_products.is_single(g, x_zero):
        return None
    weight, w_zero = small
    channels = g.shape(weight)[1]
    if not isinstance(channels, int):
        return None
    x = _with_channels(g, x, channels * group)
    x, x_zero = byte_products.unsigned(g, x, x_zero)
    around = byte_products.filler(g, x_zero)
    x, geometry = _padded_geometry(g, x, weight, geometry, around)
    if group == 1 and channels % byte_products.GROUP:
        extra = -channels % byte_products.GROUP
        x = pad_constant(g, x, [0] * (n + 2), [0, extra, *[0] * n], around)
        weight = pad_constant(g, weight, [0] * (n + 2), [0, extra, *[0] * n], 0)
    y = byte_products.Sums(g.emit(convolved(g, x, weight, geometry, 0, "int32")))
    y = byte_products.without_x_zero(g, y, weight, x_zero)
    if w_zero is None:
        return y
    # One output channel with weights of 1 gives the sums of the windows.
    sums = g.emit(op.sum(op.astype(x, "int32"), axis=[1], keepdims=True))
    ones = g.constant(np.ones([1, 1, *g.shape(weight)[2:]]), "int32")
    windows = g.emit(convolved(g, sums, ones, geometry, 0, "int32"))
    taps = math.prod(g.shape(weight)[1:])
    return byte_products.without_w_zero(g, y, windows, taps, x_zero, w_zero)


def _padded_geometry(g, x, weight, geometry, value):
    """The input with `value` around it, and the geometry for it; zeros are left to the operator."""
    auto_pad, dilations, group, kernel_shape, pads, strides = geometry
    n = spatial_rank(g, x)
    kernel = kernel_dims(g, weight, kernel_shape, n)
    steps = strides or [1] * n, dilations or [1] * n
    x, pads = resolve_padding(g, x, auto_pad, pads, kernel, *steps, value)
    if not isinstance(value, (int, float)) or value != 0:
        x = pad_constant(g, x, [0, 0, *pads[:n]], [0, 0, *pads[n:]], value)
        pads = [0] * 2 * n
    return x, ("NOTSET", dilations, group, kernel, pads, strides)


def convolved(g, x, weight, geometry, pad_value=0.0, out_dtype=None):
    """`geometry`: auto_pad, dilations, group, kernel_shape, pads, strides.  Padding of another value than 0, which
    may be a scalar tensor, is written around the data."""
    x, (_, dilations, group, _, pads, strides) = _padded_geometry(g, x, weight, geometry, pad_value)
    n = spatial_rank(g, x)
    x = _with_channels(g, x, g.shape(weight)[1] * group)
    return getattr(op.nn, f"conv{n}d")(
        x,
        weight,
        strides=strides or [1] * n,
        padding=pads,
        dilation=dilations or [1] * n,
        groups=group,
        data_layout=_LAYOUT[n],
        kernel_layout=_KERNEL[n],
        out_dtype=out_dtype,
    )


@onnx_op("ConvTranspose", since=1)
def conv_transpose(
    g: Graph,
    x: Expr,
    weight: Expr,
    bias: Expr | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    output_padding: list[int] | None = None,
    output_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Expr:
    n = spatial_rank(g, x)
    kernel = kernel_dims(g, weight, kernel_shape, n)
    strides, dilations = strides or [1] * n, dilations or [1] * n
    extra, wanted = output_padding or [0] * n, None
    x = _with_channels(g, x, g.shape(weight)[0])
    if output_shape is not None or auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        size = g.shape(x)[2:]
        wanted = (
            output_shape[-n:]
            if output_shape
            else [g.scalars.mul(d, s) for d, s in zip(size, strides)]
        )
        pads, extra = _transposed_padding(
            g, size, wanted, auto_pad, kernel, strides, dilations, extra
        )
    else:
        pads = pads or [0] * 2 * n
    fixed = all(isinstance(p, int) for p in pads)
    y = getattr(op.nn, f"conv{n}d_transpose")(
        x,
        weight,
        strides=strides,
        padding=pads if fixed else [0] * 2 * n,
        output_padding=extra,
        dilation=dilations,
        groups=group,
        data_layout=_LAYOUT[n],
        kernel_layout=_TRANSPOSED_KERNEL[n],
    )
    y = g.emit(y)
    return add_bias(g, y if fixed else _cut(g, y, pads[:n], wanted), bias)


def _cut(g, y, before, wanted):
    """The part of `y` behind the padding, where that depends on symbolic sizes; zeros behind what is too short."""
    s, n = g.scalars, len(before)
    ends = [s.add(b, w) for b, w in zip(before, wanted)]
    lacks = [s.maximum(s.sub(end, have), 0) for end, have in zip(ends, g.shape(y)[2:])]
    y = g.emit(pad_constant(g, y, [0] * (n + 2), [0, 0, *lacks], 0))
    ranges = {i + 2: Range(b, end, 1) for i, (b, end) in enumerate(zip(before, ends))}
    return g.checked(g.emit(take_ranges(g, y, ranges)), [*g.shape(y)[:2], *wanted])


def _transposed_padding(g, size, wanted, auto_pad, kernel, strides, dilations, extra):
    """Padding that gives the wanted size; what no padding can give becomes output padding."""
    before, after, extra, s = [], [], list(extra), g.scalars
    for i, (have, want) in enumerate(zip(size, wanted)):
        reach = (kernel[i] - 1) * dilations[i] + 1
        full = s.add(s.mul(s.sub(have, 1), strides[i]), reach + extra[i])
        total = s.sub(full, want)
        if isinstance(total, int) and total < 0:
            extra[i] -= total
        total = s.maximum(total, 0)
        half = s.floordiv(total, 2)
        rest = s.sub(total, half)
        upper = auto_pad == "SAME_UPPER"
        before.append(half if upper else rest)
        after.append(rest if upper else half)
    return before + after, extra


def spatial_rank(g: Graph, x: Expr) -> int:
    n = g.rank(x) - 2
    if n not in _LAYOUT:
        raise UnsupportedModel(f"works on 3 to 5 dimensions; its input has {n + 2}")
    return n


def kernel_dims(g: Graph, weight: Expr, kernel_shape: list[int] | None, n: int) -> list[int]:
    dims = g.shape(weight)
    if len(dims) != n + 2:
        raise InvalidModel(
            f"input and weight differ in their number of dimensions: {n + 2}, {len(dims)}"
        )
    if kernel_shape is not None:
        for have, said in zip(dims[2:], kernel_shape, strict=True):
            if g.scalars.differ(have, said):
                raise InvalidModel(f"kernel_shape is {kernel_shape}, the weight's shape is {dims}")
        return kernel_shape
    if not all(isinstance(d, int) for d in dims[2:]):
        raise UnsupportedModel("its weight has a symbolic size and kernel_shape is missing")
    return dims[2:]


def resolve_padding(g, x, auto_pad, pads, kernel, strides, dilations, value):
    """The input, padded already where the amount is symbolic, and the padding that is left."""
    n = len(kernel)
    if auto_pad in ("NOTSET", ""):
        pads = list(pads or [0] * 2 * n)
        if len(pads) != 2 * n:
            raise InvalidModel(f"pads has {len(pads)} values, {2 * n} are needed")
        return x, pads
    if auto_pad == "VALID":
        return x, [0] * 2 * n
    if auto_pad not in ("SAME_UPPER", "SAME_LOWER"):
        raise InvalidModel(f"auto_pad is '{auto_pad}'")
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations)]
    before, after = same_padding(
        g.scalars, g.shape(x)[2:], reach, strides, auto_pad == "SAME_LOWER"
    )
    if all(isinstance(p, int) for p in before + after):
        return x, before + after
    return pad_constant(g, x, [0, 0, *before], [0, 0, *after], value), [0] * 2 * n


def _with_channels(g, x, channels):
    return g.checked(x, [d if i != 1 else channels for i, d in enumerate(g.shape(x))])


def add_bias(g, y, bias):
    if bias is None:
        return y
    n = g.rank(y) - 2
    return op.add(y, op.reshape(bias, [1, g.shape(bias)[0], *[1] * n]))
