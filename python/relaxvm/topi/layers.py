# SPDX-License-Identifier: Apache-2.0
"""Layers of `topi.nn` whose name, or parameters, are not those of the operator that computes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .. import te, tirx
from ..te.tensor import Tensor, compute
from .arrays import Ints, _ints, concatenate, layout_transform, transpose
from .arrays import matmul as _matmul
from .convolutions import _SPACE
from .indexing import strided_slice
from .operators import OPERATORS as op


def matmul(
    tensor_a: Tensor,
    tensor_b: Tensor,
    bias: Tensor | None = None,
    out_dtype: Any = None,
    transpose_a: bool = False,
    transpose_b: bool = False,
) -> Tensor:
    """The product of matrices, each transposed on demand, plus bias."""
    product = _matmul(tensor_a, tensor_b, transpose_a, transpose_b, out_dtype)
    return product if bias is None else op["add"](product, bias)


def dense(
    data: Tensor, weight: Tensor, bias: Tensor | None = None, out_dtype: Any = None
) -> Tensor:
    """data [..., in] times weight [out, in] transposed, plus bias [out]."""
    return matmul(data, weight, bias, out_dtype, transpose_b=True)


def batch_matmul(
    tensor_a: Tensor,
    tensor_b: Tensor,
    oshape: Any = None,
    out_dtype: Any = None,
    transpose_a: bool = False,
    transpose_b: bool = True,
) -> Tensor:
    """Products of two stacks of matrices, the second ones transposed unless told otherwise."""
    return _matmul(tensor_a, tensor_b, transpose_a, transpose_b, out_dtype)


def flatten(data: Tensor) -> Tensor:
    """All dimensions but the first in one."""
    return op["nn.batch_flatten"](data)


def leaky_relu(x: Tensor, alpha: float) -> Tensor:
    """x, or alpha * x below 0."""
    return op["nn.leakyrelu"](x, alpha=alpha)


# ---- pads


def _pad(
    data: Tensor,
    pad_before: Sequence[int],
    pad_after: Sequence[int] | None,
    mode: str,
    pad_value: float = 0.0,
) -> Tensor:
    after = pad_before if pad_after is None else pad_after
    widths = [n for pair in zip(_ints(pad_before), _ints(after)) for n in pair]
    return op["nn.pad"](data, pad_width=widths, pad_value=pad_value, pad_mode=mode)


def pad(
    data: Tensor,
    pad_before: Sequence[int],
    pad_after: Sequence[int] | None = None,
    pad_value: Any = 0.0,
    name: str = "PadInput",
    attrs: Any = None,
) -> Tensor:
    """`pad_value` before and after each dimension; `pad_after` is `pad_before` unless given."""
    return _pad(data, pad_before, pad_after, "constant", getattr(pad_value, "value", pad_value))


def mirror_pad(
    data: Tensor,
    pad_before: Sequence[int],
    pad_after: Sequence[int] | None = None,
    mode: str = "SYMMETRIC",
    name: str = "MirrorPadInput",
) -> Tensor:
    """Elements mirrored at the border, with it ("SYMMETRIC") or without it ("REFLECT")."""
    if mode == "REFLECT":
        return _pad(data, pad_before, pad_after, "reflect")
    if mode != "SYMMETRIC":
        raise ValueError(f'mode must be "SYMMETRIC" or "REFLECT", not {mode!r}')
    before = _ints(pad_before)
    after = before if pad_after is None else _ints(pad_after)
    shape = [b + n + a for b, n, a in zip(before, data.shape, after)]

    def mirrored(place: Any, extent: Any) -> Any:
        place = tirx.Select(place < 0, -1 - place, place)
        return tirx.Select(place >= extent, 2 * extent - 1 - place, place)

    def formula(*i: Any) -> Any:
        return data(*(mirrored(x - b, n) for x, b, n in zip(i, before, data.shape)))

    return compute(shape, formula, name=name)


def reflect_pad(
    data: Tensor,
    pad_before: Sequence[int],
    pad_after: Sequence[int] | None = None,
    name: str = "ReflectPadInput",
) -> Tensor:
    """Elements mirrored at the border, without it."""
    return _pad(data, pad_before, pad_after, "reflect")


def replicate_pad(
    data: Tensor,
    pad_before: Sequence[int],
    pad_after: Sequence[int] | None = None,
    name: str = "ReplicatePadInput",
) -> Tensor:
    """The border again and again."""
    return _pad(data, pad_before, pad_after, "replicate")


def circular_pad(
    data: Tensor,
    pad_before: Sequence[int],
    pad_after: Sequence[int] | None = None,
    name: str = "CircularPadInput",
) -> Tensor:
    """Elements from the other end."""
    return _pad(data, pad_before, pad_after, "circular")


def dilate(
    data: Tensor, strides: Sequence[int], dilation_value: float = 0.0, name: str = "DilatedInput"
) -> Tensor:
    """The elements `strides` apart, with `dilation_value` between them."""
    steps = _ints(strides)
    if len(steps) != data.ndim:
        raise ValueError(f"dilate: {len(steps)} strides for {data.ndim} dimensions")
    between = tirx.const(dilation_value, str(data.dtype))

    def formula(*i: Any) -> Any:
        hits = [x % s == 0 for x, s in zip(i, steps) if s != 1]
        value = data(*(x // s for x, s in zip(i, steps)))
        return tirx.if_then_else(tirx.all(*hits), value, between) if hits else value

    return compute([(n - 1) * s + 1 for n, s in zip(data.shape, steps)], formula, name=name)


# ---- pools


def _pool(space: int) -> Callable[..., Tensor]:
    def function(
        data: Tensor,
        kernel: Sequence[int],
        stride: Sequence[int],
        dilation: Sequence[int],
        padding: Sequence[int],
        pool_type: str,
        ceil_mode: bool = False,
        layout: str = "NC" + _SPACE[space],
        count_include_pad: bool = True,
    ) -> Tensor:
        return op[f"nn.{_pool_type(pool_type)}_pool{space}d"](
            data,
            pool_size=_ints(kernel),
            strides=_ints(stride),
            padding=_ints(padding),
            dilation=_ints(dilation),
            ceil_mode=ceil_mode,
            layout=layout,
            count_include_pad=count_include_pad,
        )

    function.__name__ = f"pool{space}d"
    function.__doc__ = f"Maxima ('max') or means ('avg') of windows along {space} axes."
    return function


pool1d, pool2d, pool3d = _pool(1), _pool(2), _pool(3)


def _pool_type(pool_type: str) -> str:
    if pool_type not in ("max", "avg"):
        raise ValueError(f'pool_type must be "max" or "avg", not {pool_type!r}')
    return pool_type


def pool_grad(
    grads: Tensor,
    data: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    pool_type: str,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    layout: str = "NCHW",
) -> Tensor:
    """The gradient of `data` that pool2d was given, by that of its result."""
    return op[f"grad.{_pool_type(pool_type)}_pool2d_backward"](
        grads,
        data,
        pool_size=_ints(kernel),
        strides=_ints(stride),
        padding=_ints(padding),
        ceil_mode=ceil_mode,
        count_include_pad=count_include_pad,
        layout=layout,
    )


def _adaptive(space: int) -> Callable[..., Tensor]:
    def function(
        data: Tensor, output_size: Any, pool_type: str, layout: str = "NC" + _SPACE[space]
    ) -> Tensor:
        sizes = _ints(output_size) * (space if isinstance(output_size, int) else 1)
        if _pool_type(pool_type) == "avg":
            return op[f"nn.adaptive_avg_pool{space}d"](data, output_size=sizes, layout=layout)
        if sizes == [1] * space:
            axes = [layout.index(c) for c in _SPACE[space]]
            return op["max"](data, axis=axes, keepdims=True)
        raise NotImplementedError("adaptive maxima are there for one window alone; use pool2d")

    function.__doc__ = f"`output_size` windows that cover {space} axes."
    return function


adaptive_pool1d, adaptive_pool, adaptive_pool3d = _adaptive(1), _adaptive(2), _adaptive(3)


def global_pool(data: Tensor, pool_type: str, layout: str = "NCHW") -> Tensor:
    """One window over the whole image."""
    return adaptive_pool(data, 1, pool_type, layout)


# ---- norms and places


def batch_norm(
    data: Tensor,
    gamma: Tensor,
    beta: Tensor,
    moving_mean: Tensor,
    moving_var: Tensor,
    axis: int | None = None,
    epsilon: float | None = None,
    center: bool | None = None,
    scale: bool | None = None,
    training: bool | None = None,
    momentum: float | None = None,
) -> list[Tensor]:
    """[normalised, mean, variance] by the moving statistics, or, in training, by those of the batch."""
    return op["nn.batch_norm"](
        data,
        gamma,
        beta,
        moving_mean,
        moving_var,
        axis=1 if axis is None else axis,
        epsilon=1e-5 if epsilon is None else epsilon,
        center=center is not False,
        scale=scale is not False,
        momentum=0.1 if momentum is None else momentum,
        training=bool(training),
    )


def layer_norm(
    data: Tensor, gamma: Tensor, beta: Tensor, axis: Ints, epsilon: float = 1e-5
) -> Tensor:
    """Normalised over `axis`, scaled by gamma, shifted by beta."""
    return op["nn.layer_norm"](data, gamma, beta, axes=_ints(axis), epsilon=epsilon)


def rms_norm(data: Tensor, weight: Tensor, axis: Ints, epsilon: float = 1e-5) -> Tensor:
    """Divided by the root of the mean square over `axis`, scaled by weight."""
    return op["nn.rms_norm"](data, weight, axes=_ints(axis), epsilon=epsilon)


def instance_norm(
    data: Tensor,
    gamma: Tensor,
    beta: Tensor,
    channel_axis: int,
    axis: Ints,
    epsilon: float = 1e-5,
) -> Tensor:
    """Each channel of each image normalised over `axis`."""
    return op["nn.instance_norm"](
        data, gamma, beta, channel_axis=channel_axis, axes=_ints(axis), epsilon=epsilon
    )


def lrn(
    data: Tensor,
    size: int,
    axis: int = 1,
    alpha: float = 1e-4,
    beta: float = 0.75,
    bias: float = 2,
) -> Tensor:
    """Divided by (bias + alpha / size * the sum of squares of `size` neighbours along `axis`) ** beta."""
    if size % 2 == 0:
        raise ValueError(f"lrn: size must be odd, not {size}")
    axis, half, dtype = axis % data.ndim, size // 2, str(data.dtype)
    k = te.reduce_axis((0, size), "k")
    extent = data.shape[axis]

    def square(*i: Any) -> Any:
        place = i[axis] + k - half
        value = data(*i[:axis], place, *i[axis + 1 :])
        inside = tirx.all(place >= 0, place < extent)
        return te.sum(tirx.if_then_else(inside, value * value, tirx.const(0, dtype)), axis=k)

    sums = compute(data.shape, square, name="T_lrn_sums")
    factor, added, power = (tirx.const(v, dtype) for v in (alpha / size, bias, beta))
    return compute(
        data.shape,
        lambda *i: data(*i) / tirx.pow(added + factor * sums(*i), power),
        name="T_lrn",
    )


def depth_to_space(
    data: Tensor, block_size: int, layout: str = "NCHW", mode: str = "DCR"
) -> Tensor:
    """Blocks of channels become blocks of pixels."""
    data = _from_nhwc(data, layout)
    n, c, h, w = data.shape
    depth = c // (block_size * block_size)
    if mode == "DCR":
        parts, order = (n, block_size, block_size, depth, h, w), [0, 3, 4, 1, 5, 2]
    elif mode == "CRD":
        parts, order = (n, depth, block_size, block_size, h, w), [0, 1, 4, 2, 5, 3]
    else:
        raise ValueError(f'mode must be "DCR" or "CRD", not {mode!r}')
    moved = transpose(op["reshape"](data, parts), order)
    return _to_nhwc(op["reshape"](moved, (n, depth, h * block_size, w * block_size)), layout)


def space_to_depth(data: Tensor, block_size: int, layout: str = "NCHW") -> Tensor:
    """Blocks of pixels become channels."""
    data = _from_nhwc(data, layout)
    n, c, h, w = data.shape
    high, wide = h // block_size, w // block_size
    parts = op["reshape"](data, (n, c, high, block_size, wide, block_size))
    moved = transpose(parts, [0, 3, 5, 1, 2, 4])
    return _to_nhwc(op["reshape"](moved, (n, c * block_size * block_size, high, wide)), layout)


def unpack_NCHWc_to_nchw(packed_out: Tensor, out_dtype: Any) -> Tensor:
    """NCHWc as NCHW of an element type."""
    block = int(packed_out.shape[4])
    return op["astype"](layout_transform(packed_out, f"NCHW{block}c", "NCHW"), dtype=str(out_dtype))


def _from_nhwc(data: Tensor, layout: str) -> Tensor:
    if layout not in ("NCHW", "NHWC"):
        raise ValueError(f"layout must be NCHW or NHWC, not {layout!r}")
    return data if layout == "NCHW" else transpose(data, [0, 3, 1, 2])


def _to_nhwc(data: Tensor, layout: str) -> Tensor:
    return data if layout == "NCHW" else transpose(data, [0, 2, 3, 1])


def space_to_batch_nd(
    data: Tensor,
    block_shape: Sequence[int],
    pad_before: Sequence[int],
    pad_after: Sequence[int],
    pad_value: float = 0.0,
) -> Tensor:
    """Blocks along the dimensions after the first one, padded before, become batches."""
    blocks = _ints(block_shape)
    count, rest = len(blocks), data.ndim - 1 - len(blocks)
    before, after = ([0, *_ints(p), *[0] * rest] for p in (pad_before, pad_after))
    padded = pad(data, before, after, pad_value)
    batch, *extents = padded.shape
    space, tail = extents[:count], extents[count:]
    parts = [n for pair in ((s // b, b) for s, b in zip(space, blocks)) for n in pair]
    split = op["reshape"](padded, (batch, *parts, *tail))
    inner, outer = range(2, 2 * count + 1, 2), range(1, 2 * count, 2)
    moved = transpose(split, [*inner, 0, *outer, *range(2 * count + 1, split.ndim)])
    for block in blocks:
        batch = batch * block
    return op["reshape"](moved, (batch, *(s // b for s, b in zip(space, blocks)), *tail))


def batch_to_space_nd(
    data: Tensor,
    block_shape: Sequence[int],
    crop_begin_list: Sequence[int],
    crop_end_list: Sequence[int],
) -> Tensor:
    """Batches become blocks along the dimensions after the first one, which are cropped then."""
    blocks = _ints(block_shape)
    count = len(blocks)
    batch, *extents = data.shape
    for block in blocks:
        batch = batch // block
    space, tail = extents[:count], extents[count:]
    split = op["reshape"](data, (*blocks, batch, *extents))
    pairs = [d for k in range(count) for d in (count + 1 + k, k)]
    moved = transpose(split, [count, *pairs, *range(2 * count + 1, split.ndim)])
    whole = [s * b for s, b in zip(space, blocks)]
    joined = op["reshape"](moved, (batch, *whole, *tail))
    ends = [n - c for n, c in zip(whole, _ints(crop_end_list))]
    return strided_slice(joined, _ints(crop_begin_list), ends, axes=list(range(1, count + 1)))


def fifo_buffer(data: Tensor, buffer: Tensor, axis: int) -> Tensor:
    """`buffer` without its first elements along `axis`, and `data` behind them."""
    joined = concatenate([buffer, data], axis)
    return strided_slice(joined, [data.shape[axis]], [joined.shape[axis]], axes=[axis])


def binarize_pack(data: Tensor, axis: int | None = None, name: str = "PackedInput") -> Tensor:
    """32 signs along `axis` (the last one) in a uint32, the first one in the highest bit; 1 is not negative."""
    along = (data.ndim - 1 if axis is None else axis) % data.ndim
    shape = [n // 32 if d == along else n for d, n in enumerate(data.shape)]
    k: Any = te.reduce_axis((0, 32), "k")
    zero = tirx.const(0, str(data.dtype))

    def formula(*i: Any) -> Any:
        value = data(*i[:along], i[along] * 32 + k, *i[along + 1 :])
        bit = (value >= zero).astype("uint32")
        return te.sum(tirx.shift_left(bit, (31 - k).astype("uint32")), axis=k)

    return compute(shape, formula, name=name)


def scale_shift_nchw(Input: Tensor, Scale: Tensor, Shift: Tensor) -> Tensor:
    """Input * Scale[c] + Shift[c]."""
    per_channel = (1, Input.shape[1], 1, 1)
    scaled = op["multiply"](Input, op["reshape"](Scale, per_channel))
    return op["add"](scaled, op["reshape"](Shift, per_channel))


def scale_shift_nhwc(Input: Tensor, Scale: Tensor, Shift: Tensor) -> Tensor:
    """Input * Scale[c] + Shift[c]."""
    return op["add"](op["multiply"](Input, Scale), Shift)


def scale_shift_nchwc(Input: Tensor, Scale: Tensor, Shift: Tensor) -> Tensor:
    """Input * Scale[c, block] + Shift[c, block] of NCHWc."""
    per_channel = (1, Input.shape[1], 1, 1, Input.shape[4])
    scaled = op["multiply"](Input, op["reshape"](Scale, per_channel))
    return op["add"](scaled, op["reshape"](Shift, per_channel))
