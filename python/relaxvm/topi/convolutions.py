# SPDX-License-Identifier: Apache-2.0
"""Convolutions of `topi.nn`, each named by the order of its dimensions, and their transposes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..te.tensor import Tensor
from .arrays import Ints, _ints
from .operators import OPERATORS as op

# Letters of a window's axes by their number.
_SPACE = {1: "W", 2: "HW", 3: "DHW"}


def _padding(padding: Any, kernel: Sequence[Any], dilation: Any = 1) -> list[int]:
    """Numbers, or "VALID" (none) or "SAME" (the result keeps the extents at stride 1; the odd one stands in front)."""
    if not isinstance(padding, str):
        return _ints(padding)
    if padding == "VALID":
        return [0] * len(kernel)
    if padding != "SAME":
        raise ValueError(f'padding must be numbers, "VALID" or "SAME", not {padding!r}')
    steps = _ints(dilation) * (len(kernel) if isinstance(dilation, int) else 1)
    total = [(int(k) - 1) * d for k, d in zip(kernel, steps)]
    return [(t + 1) // 2 for t in total] + [t // 2 for t in total]


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


# ---- by layout as a parameter


def conv(
    inp: Tensor,
    filt: Tensor,
    stride: Ints,
    padding: Any,
    dilation: Ints,
    groups: int,
    data_layout: str,
    kernel_layout: str = "",
    out_dtype: Any = None,
) -> Tensor:
    """A convolution along one to three axes; weights are OI.. for NC.., else ..IO, unless `kernel_layout` says more."""
    space = _SPACE[len(data_layout) - 2]
    weights = kernel_layout or (f"OI{space}" if data_layout.startswith("NC") else f"{space}IO")
    return _convolution(
        inp, filt, stride, padding, dilation, data_layout, weights, groups, out_dtype
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
    """A convolution along one axis in `data_layout` NCW or NWC."""
    return conv(
        data, kernel, strides, padding, dilation, groups, data_layout, kernel_layout, out_dtype
    )


def conv2d(
    input: Tensor,
    filter: Tensor,
    strides: Ints,
    padding: Any,
    dilation: Ints,
    data_layout: str = "NCHW",
    kernel_layout: str = "",
    out_dtype: Any = None,
) -> Tensor:
    """A convolution of images in `data_layout` NCHW, NHWC or HWCN."""
    return conv(input, filter, strides, padding, dilation, 1, data_layout, kernel_layout, out_dtype)


# ---- by layout as a name


def _along_width(layout: str, weights: str) -> Callable[..., Tensor]:
    def function(
        data: Tensor,
        kernel: Tensor,
        strides: Any = 1,
        padding: Any = "VALID",
        dilation: Any = 1,
        out_dtype: Any = None,
    ) -> Tensor:
        return _convolution(data, kernel, strides, padding, dilation, layout, weights, 1, out_dtype)

    return _named(function, f"conv1d_{layout.lower()}", layout, weights)


def _grouped_along_width(layout: str, weights: str) -> Callable[..., Tensor]:
    def function(
        data: Tensor,
        kernel: Tensor,
        strides: Any = 1,
        padding: Any = "VALID",
        dilation: Any = 1,
        groups: int = 1,
        out_dtype: Any = None,
    ) -> Tensor:
        return _convolution(
            data, kernel, strides, padding, dilation, layout, weights, groups, out_dtype
        )

    return _named(function, f"group_conv1d_{layout.lower()}", layout, weights)


def _of_images(layout: str, weights: str, dtype: str | None = None) -> Callable[..., Tensor]:
    def function(
        Input: Tensor,
        Filter: Tensor,
        stride: Any,
        padding: Any,
        dilation: Any,
        out_dtype: Any = dtype,
    ) -> Tensor:
        return _convolution(Input, Filter, stride, padding, dilation, layout, weights, 1, out_dtype)

    return _named(function, f"conv2d_{layout.lower()}", layout, weights)


def _grouped(name: str, layout: str, weights: str, dtype: str | None = None) -> Callable[..., Any]:
    def function(
        Input: Tensor,
        Filter: Tensor,
        stride: Any,
        padding: Any,
        dilation: Any,
        groups: int,
        out_dtype: Any = dtype,
    ) -> Tensor:
        return _convolution(
            Input, Filter, stride, padding, dilation, layout, weights, groups, out_dtype
        )

    return _named(function, name, layout, weights)


def _named(
    function: Callable[..., Tensor],
    name: str,
    layout: str,
    weights: str,
    what: str = "convolution",
) -> Callable[..., Tensor]:
    function.__name__ = name
    function.__doc__ = f"A {what} of {layout} by weights {weights}."
    return function


conv1d_ncw, conv1d_nwc = _along_width("NCW", "OIW"), _along_width("NWC", "WIO")
group_conv1d_ncw = _grouped_along_width("NCW", "OIW")
group_conv1d_nwc = _grouped_along_width("NWC", "WIO")
conv2d_nchw, conv2d_hwcn = _of_images("NCHW", "OIHW"), _of_images("HWCN", "HWIO")
conv2d_nhwc = _of_images("NHWC", "HWIO", "float32")
group_conv2d_nchw = _grouped("group_conv2d_nchw", "NCHW", "OIHW")
group_conv2d_nhwc = _grouped("group_conv2d_nhwc", "NHWC", "HWIO")
conv3d_ncdhw = _grouped("conv3d_ncdhw", "NCDHW", "OIDHW")
conv3d_ndhwc = _grouped("conv3d_ndhwc", "NDHWC", "DHWIO", "float32")


def depthwise_conv2d_nchw(
    Input: Tensor,
    Filter: Tensor,
    stride: Ints,
    padding: Any,
    dilation: Ints,
    out_dtype: Any = None,
) -> Tensor:
    """Each channel of NCHW is convolved alone, by the filters Filter[channel, m]."""
    channels, factor, *window = Filter.shape
    kernel = op["reshape"](Filter, (channels * factor, 1, *window))
    return group_conv2d_nchw(Input, kernel, stride, padding, dilation, int(channels), out_dtype)


def depthwise_conv2d_nhwc(
    Input: Tensor,
    Filter: Tensor,
    stride: Ints,
    padding: Any,
    dilation: Ints,
    kernel_layout: str = "HWOI",
    out_dtype: Any = None,
) -> Tensor:
    """Each channel of NHWC is convolved alone, by Filter[y, x, channel, m], or by [y, x, m, channel] with "HWIO"."""
    if kernel_layout not in ("HWOI", "HWIO"):
        raise ValueError(f"kernel_layout must be HWOI or HWIO, not {kernel_layout!r}")
    if kernel_layout == "HWIO":
        Filter = op["permute_dims"](Filter, axes=[0, 1, 3, 2])
    high, wide, channels, factor = Filter.shape
    kernel = op["reshape"](Filter, (high, wide, 1, channels * factor))
    return group_conv2d_nhwc(Input, kernel, stride, padding, dilation, int(channels), out_dtype)


# ---- transposes; weights are IO..


def _transposed(
    data: Tensor,
    kernel: Tensor,
    strides: Any,
    padding: Any,
    out_dtype: Any,
    output_padding: Any,
    groups: int = 1,
) -> Tensor:
    space = data.ndim - 2
    return op[f"nn.conv{space}d_transpose"](
        data,
        kernel,
        strides=_ints(strides),
        padding=_padding(padding, list(kernel.shape)[2:]),
        output_padding=_ints(output_padding),
        groups=groups,
        out_dtype=out_dtype,
    )


def conv1d_transpose_ncw(
    data: Tensor,
    kernel: Tensor,
    stride: Ints,
    padding: Any,
    out_dtype: Any,
    output_padding: Ints,
) -> Tensor:
    """The transposed convolution of NCW by weights IOW."""
    return _transposed(data, kernel, stride, padding, out_dtype, output_padding)


def _transpose(name: str, layout: str, weights: str) -> Callable[..., Tensor]:
    def function(
        Input: Tensor,
        Filter: Tensor,
        strides: Ints,
        padding: Any,
        out_dtype: Any,
        output_padding: Ints,
    ) -> Tensor:
        return _transposed(Input, Filter, strides, padding, out_dtype, output_padding)

    return _named(function, name, layout, weights, "transposed convolution")


def _grouped_transpose(name: str, layout: str, weights: str) -> Callable[..., Tensor]:
    def function(
        data: Tensor,
        kernel: Tensor,
        stride: Ints,
        padding: Any,
        out_dtype: Any,
        output_padding: Ints,
        groups: int,
    ) -> Tensor:
        return _transposed(data, kernel, stride, padding, out_dtype, output_padding, groups)

    return _named(function, name, layout, weights, "transposed convolution in groups")


conv2d_transpose_nchw = _transpose("conv2d_transpose_nchw", "NCHW", "IOHW")
conv3d_transpose_ncdhw = _transpose("conv3d_transpose_ncdhw", "NCDHW", "IODHW")
group_conv1d_transpose_ncw = _grouped_transpose("group_conv1d_transpose_ncw", "NCW", "IOW")
group_conv2d_transpose_nchw = _grouped_transpose("group_conv2d_transpose_nchw", "NCHW", "IOHW")


def group_conv3d_transpose_ncdhw(
    data: Tensor,
    kernel: Tensor,
    strides: Ints,
    padding: Any,
    out_dtype: Any,
    output_padding: Ints,
    groups: int,
) -> Tensor:
    """The transposed convolution of each group of channels of NCDHW by weights IODHW."""
    return _transposed(data, kernel, strides, padding, out_dtype, output_padding, groups)
