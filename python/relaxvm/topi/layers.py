# SPDX-License-Identifier: Apache-2.0
"""Layers of `topi.nn` and images whose name, or parameters, are not those of the operator that computes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..te.tensor import Tensor
from .arrays import Ints, _ints, matmul, transpose
from .operators import OPERATORS as op

# Letters of a window's axes by their number.
_SPACE = {1: "W", 2: "HW", 3: "DHW"}


def dense(
    data: Tensor, weight: Tensor, bias: Tensor | None = None, out_dtype: Any = None
) -> Tensor:
    """data [..., in] times weight [out, in] transposed, plus bias [out]."""
    product = matmul(data, weight, transp_b=True, out_dtype=out_dtype)
    return product if bias is None else op["add"](product, bias)


def batch_matmul(
    tensor_a: Tensor,
    tensor_b: Tensor,
    oshape: Any = None,
    out_dtype: Any = None,
    transpose_a: bool = False,
    transpose_b: bool = True,
) -> Tensor:
    """Products of two stacks of matrices, the second ones transposed unless told otherwise."""
    return matmul(tensor_a, tensor_b, transpose_a, transpose_b, out_dtype)


def flatten(data: Tensor) -> Tensor:
    """All dimensions but the first in one."""
    return op["nn.batch_flatten"](data)


def leaky_relu(x: Tensor, alpha: float) -> Tensor:
    """x, or alpha * x below 0."""
    return op["nn.leakyrelu"](x, alpha=alpha)


def pad(
    data: Tensor,
    pad_before: Sequence[int],
    pad_after: Sequence[int] | None = None,
    pad_value: float = 0.0,
    name: str = "PadInput",
) -> Tensor:
    """`pad_value` before and after each dimension; `pad_after` is `pad_before` unless given."""
    after = pad_before if pad_after is None else pad_after
    widths = [n for pair in zip(_ints(pad_before), _ints(after)) for n in pair]
    return op["nn.pad"](data, pad_width=widths, pad_value=pad_value)


def mirror_pad(
    data: Tensor,
    pad_before: Sequence[int],
    pad_after: Sequence[int] | None = None,
    mode: str = "SYMMETRIC",
    name: str = "MirrorPadInput",
) -> Tensor:
    """Elements mirrored at the border without it ("REFLECT")."""
    if mode != "REFLECT":
        raise NotImplementedError(f'topi.nn.mirror_pad: mode {mode!r}; use "REFLECT"')
    after = pad_before if pad_after is None else pad_after
    widths = [n for pair in zip(_ints(pad_before), _ints(after)) for n in pair]
    return op["nn.pad"](data, pad_width=widths, pad_mode="reflect")


# ---- convolutions


def _padding(padding: Any, kernel: Sequence[Any], dilation: Any) -> list[int]:
    """Numbers, or "VALID" (none) or "SAME" (the result keeps the extents at stride 1)."""
    if not isinstance(padding, str):
        return _ints(padding)
    if padding == "VALID":
        return [0] * len(kernel)
    if padding != "SAME":
        raise ValueError(f'padding must be numbers, "VALID" or "SAME", not {padding!r}')
    steps = _ints(dilation) * (len(kernel) if isinstance(dilation, int) else 1)
    total = [(int(k) - 1) * d for k, d in zip(kernel, steps)]
    return [t // 2 for t in total] + [t - t // 2 for t in total]


def _convolution(
    data: Tensor,
    kernel: Tensor,
    strides: Any,
    padding: Any,
    dilation: Any,
    layout: str,
    kernel_layout: str,
    groups: int,
    out_dtype: Any,
) -> Tensor:
    space = len(layout) - 2
    window = [kernel.shape[kernel_layout.index(c)] for c in _SPACE[space]]
    return op[f"nn.conv{space}d"](
        data,
        kernel,
        strides=_ints(strides),
        padding=_padding(padding, window, dilation),
        dilation=_ints(dilation),
        groups=groups,
        data_layout=layout,
        kernel_layout=kernel_layout,
        out_dtype=out_dtype,
    )


def conv1d(
    data: Tensor,
    kernel: Tensor,
    strides: Ints = 1,
    padding: Any = "VALID",
    dilation: Ints = 1,
    groups: int = 1,
    data_layout: str = "NCW",
    kernel_layout: str = "",
    out_dtype: Any = None,
) -> Tensor:
    """A convolution along one axis."""
    weights = kernel_layout or ("OIW" if data_layout == "NCW" else "WIO")
    return _convolution(
        data, kernel, strides, padding, dilation, data_layout, weights, groups, out_dtype
    )


def conv2d(
    data: Tensor,
    kernel: Tensor,
    strides: Ints,
    padding: Any,
    dilation: Ints,
    data_layout: str = "NCHW",
    kernel_layout: str = "",
    out_dtype: Any = None,
) -> Tensor:
    """A convolution of images in `data_layout` NCHW, NHWC or HWCN."""
    weights = kernel_layout or ("OIHW" if data_layout == "NCHW" else "HWIO")
    return _convolution(
        data, kernel, strides, padding, dilation, data_layout, weights, 1, out_dtype
    )


def _conv(layout: str, weights: str) -> Callable[..., Tensor]:
    def function(
        data: Tensor,
        kernel: Tensor,
        stride: Any,
        padding: Any,
        dilation: Any,
        groups: int = 1,
        out_dtype: Any = None,
    ) -> Tensor:
        return _convolution(
            data, kernel, stride, padding, dilation, layout, weights, groups, out_dtype
        )

    function.__doc__ = f"A convolution of {layout} by weights {weights}."
    return function


def _plain_conv(layout: str, weights: str) -> Callable[..., Tensor]:
    def function(
        data: Tensor,
        kernel: Tensor,
        strides: Any = 1,
        padding: Any = "VALID",
        dilation: Any = 1,
        out_dtype: Any = None,
    ) -> Tensor:
        return _convolution(data, kernel, strides, padding, dilation, layout, weights, 1, out_dtype)

    function.__doc__ = f"A convolution of {layout} by weights {weights}."
    return function


conv1d_ncw, conv1d_nwc = _plain_conv("NCW", "OIW"), _plain_conv("NWC", "WIO")
conv2d_nchw, conv2d_nhwc = _plain_conv("NCHW", "OIHW"), _plain_conv("NHWC", "HWIO")
conv3d_ncdhw, conv3d_ndhwc = _plain_conv("NCDHW", "OIDHW"), _plain_conv("NDHWC", "DHWIO")
group_conv1d_ncw = _conv("NCW", "OIW")
group_conv2d_nchw, group_conv2d_nhwc = _conv("NCHW", "OIHW"), _conv("NHWC", "HWIO")


def depthwise_conv2d_nchw(
    data: Tensor,
    weight: Tensor,
    stride: Ints,
    padding: Any,
    dilation: Ints,
    out_dtype: Any = None,
) -> Tensor:
    """Each channel of NCHW is convolved alone, by the filters weight[channel, m]."""
    channels, factor = (int(n) for n in weight.shape[:2])
    kernel = op["reshape"](weight, (channels * factor, 1, *weight.shape[2:]))
    return group_conv2d_nchw(data, kernel, stride, padding, dilation, channels, out_dtype)


def conv2d_transpose_nchw(
    data: Tensor,
    weight: Tensor,
    strides: Ints,
    padding: Ints,
    out_dtype: Any,
    output_padding: Ints,
) -> Tensor:
    """The transposed convolution of NCHW by weights IOHW."""
    return op["nn.conv2d_transpose"](
        data,
        weight,
        strides=_ints(strides),
        padding=_ints(padding),
        output_padding=_ints(output_padding),
        out_dtype=out_dtype,
    )


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


def _from_nhwc(data: Tensor, layout: str) -> Tensor:
    if layout not in ("NCHW", "NHWC"):
        raise ValueError(f"layout must be NCHW or NHWC, not {layout!r}")
    return data if layout == "NCHW" else transpose(data, [0, 3, 1, 2])


def _to_nhwc(data: Tensor, layout: str) -> Tensor:
    return data if layout == "NCHW" else transpose(data, [0, 2, 3, 1])


def scale_shift_nchw(inp: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """inp * scale[c] + shift[c]."""
    per_channel = (1, inp.shape[1], 1, 1)
    scaled = op["multiply"](inp, op["reshape"](scale, per_channel))
    return op["add"](scaled, op["reshape"](shift, per_channel))


def scale_shift_nhwc(inp: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """inp * scale[c] + shift[c]."""
    return op["add"](op["multiply"](inp, scale), shift)


# ---- images


def resize2d(
    data: Tensor,
    roi: Sequence[float],
    size: Sequence[Any],
    layout: str = "NCHW",
    method: str = "linear",
    coordinate_transformation_mode: str = "half_pixel",
    rounding_method: str = "",
    bicubic_alpha: float = -0.5,
    bicubic_exclude: int = 0,
    extrapolation_value: float = 0.0,
    out_dtype: Any = None,
) -> Tensor:
    """An image of another size; `roi` is the part of it that "tf_crop_and_resize" takes."""
    return op["image.resize2d"](
        data,
        tuple(size),
        roi=[float(r) for r in roi],
        layout=layout,
        method=method,
        coordinate_transformation_mode=coordinate_transformation_mode,
        rounding_method=rounding_method,
        cubic_alpha=bicubic_alpha,
        cubic_exclude=bicubic_exclude,
        extrapolation_value=extrapolation_value,
        out_dtype=out_dtype,
    )


def upsampling(
    data: Tensor,
    scale_h: float,
    scale_w: float,
    layout: str = "NCHW",
    method: str = "nearest_neighbor",
    align_corners: bool = False,
) -> Tensor:
    """An image `scale_h` times as high and `scale_w` times as wide."""
    high, wide = (data.shape[layout.index(c)] for c in "HW")
    size = (_scaled(high, scale_h), _scaled(wide, scale_w))
    mode = "align_corners" if align_corners else "asymmetric"
    method = {"bilinear": "linear", "bicubic": "cubic"}.get(method, method)
    return resize2d(data, (0.0,) * 4, size, layout, method, mode)


def _scaled(extent: Any, scale: float) -> Any:
    if float(scale).is_integer():
        return extent * int(scale)
    return round(int(extent) * scale)
