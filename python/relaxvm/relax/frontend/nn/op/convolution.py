# SPDX-License-Identifier: Apache-2.0
"""Convolutions and other sizes of images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from relaxvm.ir.expr import Call, Expr
from relaxvm.relax import op

from ..tensor import Tensor, expr_of, wrap_nested

Ints = int | Sequence[int]


def _with_bias(call: Call, bias: Tensor | None, layout: str, name: str) -> Tensor:
    if bias is None:
        return wrap_nested(call, name)
    shape = [expr_of(bias).ty.shape.values[0] if axis == "C" else 1 for axis in layout]
    value = wrap_nested(call, "")
    shift = wrap_nested(op.reshape(expr_of(bias), shape), "")
    return wrap_nested(op.add(expr_of(value), expr_of(shift)), name)


def _same_padding(
    weight: Tensor, stride: Ints, dilation: Ints, groups: int, what: str
) -> list[int]:
    """Padding with which a convolution of stride 1 keeps sizes; the odd element goes behind, as in PyTorch."""
    sizes = weight.shape[2:]
    steps = [stride] if isinstance(stride, int) else list(stride)
    if any(step != 1 for step in steps) or not all(isinstance(s, int) for s in sizes):
        raise ValueError(f'{what}: padding "same" needs stride 1 and a kernel of known size')
    dilations = [dilation] * len(sizes) if isinstance(dilation, int) else list(dilation)
    total = [d * (s - 1) for d, s in zip(dilations, sizes)]
    return [t // 2 for t in total] + [t - t // 2 for t in total]


def _convolution(
    record: Callable[..., Call],
    layouts: tuple[str, str],
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    attrs: dict[str, Any],
    name: str,
) -> Tensor:
    data_layout, kernel_layout = layouts
    padding = attrs["padding"]
    if isinstance(padding, str):
        if padding not in ("same", "valid"):
            raise ValueError(f'{name}: padding is a size, "same" or "valid", not {padding!r}')
        attrs["padding"] = (
            _same_padding(weight, attrs["strides"], attrs["dilation"], attrs["groups"], name)
            if padding == "same"
            else 0
        )
    call = record(
        expr_of(x),
        expr_of(weight),
        data_layout=data_layout,
        kernel_layout=kernel_layout,
        **attrs,
    )
    return _with_bias(call, bias, data_layout, name)


def conv1d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | tuple | None = 1,
    padding: int | tuple | str | None = 0,
    dilation: int | tuple | None = 1,
    groups: int | None = 1,
    name: str = "conv1d",
) -> Tensor:
    """x (n, channels, width) with weight (out, channels / groups, kernel)."""
    attrs = {"strides": stride, "padding": padding, "dilation": dilation, "groups": groups}
    return _convolution(op.nn.conv1d, ("NCW", "OIW"), x, weight, bias, attrs, name)


def conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | tuple | None = 1,
    padding: int | tuple | str | None = 0,
    dilation: int | tuple | None = 1,
    groups: int | None = 1,
    data_layout: str | None = "NCHW",
    name: str = "conv2d",
) -> Tensor:
    """x in `data_layout` with weight (out, channels / groups, kernel height, kernel width)."""
    attrs = {"strides": stride, "padding": padding, "dilation": dilation, "groups": groups}
    layouts = (data_layout or "NCHW", "OIHW")
    return _convolution(op.nn.conv2d, layouts, x, weight, bias, attrs, name)


def conv3d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | tuple | None = 1,
    padding: int | tuple | str | None = 0,
    dilation: int | tuple | None = 1,
    groups: int | None = 1,
    data_layout: str | None = "NCDHW",
    name: str = "conv3d",
) -> Tensor:
    """x in `data_layout` with weight (out, channels / groups, kernel depth, height, width)."""
    attrs = {"strides": stride, "padding": padding, "dilation": dilation, "groups": groups}
    layouts = (data_layout or "NCDHW", "OIDHW")
    return _convolution(op.nn.conv3d, layouts, x, weight, bias, attrs, name)


def conv1d_transpose(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | tuple[int] | None = 1,
    padding: int | tuple[int, ...] | None = 0,
    output_padding: int | tuple[int] | None = 0,
    dilation: int | tuple | None = 1,
    groups: int | None = 1,
    name: str = "conv1d_transpose",
) -> Tensor:
    """The gradient of conv1d as an operator; weight (channels, out / groups, kernel)."""
    call = op.nn.conv1d_transpose(
        expr_of(x),
        expr_of(weight),
        strides=stride,
        padding=padding,
        output_padding=output_padding,
        dilation=dilation,
        groups=groups,
    )
    return _with_bias(call, bias, "NCW", name)


_METHODS = {
    "nearest": "nearest_neighbor",
    "nearest-exact": "nearest_neighbor",
    "bilinear": "linear",
    "bicubic": "cubic",
}


def interpolate(
    x: Tensor,
    size: int | tuple[int] | None = None,
    scale_factor: float | tuple[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool | None = None,
    data_layout: str | None = "NCHW",
    name: str = "interpolate",
) -> Tensor:
    """An image in another size: `size`, or its own times `scale_factor`.

    Modes are "nearest" (also as "nearest-exact"), "bilinear" and "bicubic".  ValueError for what resize2d cannot do.
    """
    layout = data_layout or "NCHW"
    if recompute_scale_factor or antialias:
        raise ValueError("interpolate: recompute_scale_factor and antialias are not supported")
    if mode not in _METHODS or x.ndim != 4:
        raise ValueError(
            f"interpolate: mode is one of {', '.join(_METHODS)} and x has 4 dimensions; got {mode!r} and {x.ndim}"
        )
    if align_corners:
        transform = "align_corners"
    else:
        transform = "asymmetric" if mode.startswith("nearest") else "half_pixel"
    call = op.image.resize2d(
        expr_of(x),
        _image_size(x, size, scale_factor, layout),
        layout=layout,
        method=_METHODS[mode],
        coordinate_transformation_mode=transform,
        rounding_method="round",
        cubic_alpha=-0.75,
    )
    return wrap_nested(call, name)


def _image_size(x: Tensor, size: Any, scale_factor: Any, layout: str) -> list[int | Expr]:
    if size is not None:
        return [size, size] if isinstance(size, (int, Expr)) else list(size)
    if scale_factor is None:
        raise ValueError("interpolate: give size or scale_factor")
    pair = isinstance(scale_factor, (list, tuple))
    factors = list(scale_factor) if pair else [scale_factor, scale_factor]
    sizes = [x.shape[layout.index(axis)] for axis in "HW"]
    return [_scaled(s, f) for s, f in zip(sizes, factors)]


def _scaled(size: int | Expr, factor: float) -> int | Expr:
    if isinstance(size, int):
        return int(size * factor)
    if factor != int(factor):
        raise ValueError(f"interpolate: the size {size} is symbolic; its factor must be an integer")
    return size * int(factor)
