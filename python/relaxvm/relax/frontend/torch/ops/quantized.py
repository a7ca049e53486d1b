# SPDX-License-Identifier: Apache-2.0
"""Quantisation as `convert_pt2e` writes it: real numbers to whole ones of a scale and a zero point, and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from relaxvm.relax import op

from ..graph import Graph, dtype_name
from ..registry import aten_op

_SPACE = "quantized_decomposed::"


def _along(g: Graph, value: Any, x: Any, axis: int | None) -> Any:
    """A number of each channel, as it is broadcast against `x`."""
    if axis is None or not g.is_tensor(value):
        return value
    at = g.axis(x, axis)
    return g.emit(op.reshape(value, [-1 if i == at else 1 for i in range(g.rank(x))]))


def _inverse(g: Graph, scale: Any) -> Any:
    """PyTorch multiplies by the reciprocal."""
    if not g.is_tensor(scale):
        return g.const(1 / scale)
    return g.emit(op.divide(g.const(1.0), g.cast(scale, "float32")))


def _levels(g: Graph, x: Any, scale: Any, zero: Any, low: Any, high: Any) -> Any:
    """round(x / scale) + zero between `low` and `high`, in float32."""
    steps = g.emit(op.multiply(g.cast(x, "float32"), _inverse(g, scale)))
    moved = g.emit(op.add(g.emit(op.round(steps)), g.cast(zero, "float32")))
    above = g.emit(op.maximum(moved, g.cast(low, "float32")))
    return g.emit(op.minimum(above, g.cast(high, "float32")))


def _real(g: Graph, x: Any, scale: Any, zero: Any, dtype: str) -> Any:
    """(x - zero) scale"""
    moved = g.emit(op.subtract(g.cast(x, "float32"), g.cast(zero, "float32")))
    return g.cast(g.emit(op.multiply(moved, g.cast(scale, "float32"))), dtype)


@aten_op(*(f"{_SPACE}quantize_per_tensor.{o}" for o in ("default", "tensor", "tensor2")))
def quantize(
    g: Graph, x: Any, scale: Any, zero: Any, low: Any, high: Any, dtype: torch.dtype
) -> Any:
    return g.cast(_levels(g, x, scale, zero, low, high), dtype_name(dtype))


@aten_op(*(f"{_SPACE}dequantize_per_tensor.{o}" for o in ("default", "tensor", "tensor2")))
def dequantize(
    g: Graph,
    x: Any,
    scale: Any,
    zero: Any,
    low: Any,
    high: Any,
    dtype: torch.dtype,
    *,
    out_dtype: torch.dtype | None = None,
) -> Any:
    return _real(g, x, scale, zero, g.result_dtype())


@aten_op(f"{_SPACE}quantize_per_channel.default")
def quantize_channels(
    g: Graph,
    x: Any,
    scales: Any,
    zeros: Any,
    axis: int,
    low: int,
    high: int,
    dtype: torch.dtype,
) -> Any:
    scale, zero = (_along(g, v, x, axis) for v in (scales, zeros))
    return quantize(g, x, scale, zero, low, high, dtype)


@aten_op(f"{_SPACE}dequantize_per_channel.default")
def dequantize_channels(
    g: Graph,
    x: Any,
    scales: Any,
    zeros: Any,
    axis: int,
    low: int,
    high: int,
    dtype: torch.dtype,
    *,
    out_dtype: torch.dtype | None = None,
) -> Any:
    zero = 0 if zeros is None else _along(g, zeros, x, axis)
    return _real(g, x, _along(g, scales, x, axis), zero, g.result_dtype())


def _row(g: Graph, x: Any) -> Any:
    return op.reshape(x, [1])


@aten_op(f"{_SPACE}choose_qparams.tensor")
def choose(g: Graph, x: Any, low: int, high: int, eps: float, dtype: torch.dtype) -> tuple:
    """Scale and zero point, so that the range of the values, with 0, takes all levels."""
    nothing, flat = g.const(0.0), g.cast(x, "float32")
    least = g.emit(op.minimum(g.emit(op.min(flat)), nothing))
    most = g.emit(op.maximum(g.emit(op.max(flat)), nothing))
    width = g.emit(op.subtract(most, least))
    scale = g.emit(op.divide(width, g.const(float(high - low))))
    scale = g.emit(op.maximum(scale, g.const(max(eps, float(np.finfo("float32").tiny)))))
    zero = g.emit(op.round(g.emit(op.divide(least, scale))))
    zero = g.emit(op.clip(g.emit(op.subtract(g.const(float(low)), zero)), low, high))
    return _row(g, g.cast(scale, "float64")), _row(g, g.cast(zero, "int64"))


@aten_op(f"{_SPACE}choose_qparams_symmetric.tensor")
def choose_symmetric(
    g: Graph, x: Any, low: int, high: int, eps: float, dtype: torch.dtype
) -> tuple:
    """The scale of the greatest size; 0 stands in the middle of the levels."""
    flat = g.cast(x, "float32")
    size = g.emit(op.max(g.emit(op.abs(flat))))
    scale = g.emit(op.divide(size, g.const((high - low) / 2)))
    scale = g.emit(op.maximum(scale, g.const(max(eps, float(np.finfo("float32").tiny)))))
    middle = 0 if low < 0 else (low + high + 1) // 2
    return _row(g, g.cast(scale, "float64")), g.const([middle], "int64")


# ---- values that look as if they were quantised


@aten_op(
    "fake_quantize_per_tensor_affine.default",
    "fake_quantize_per_tensor_affine.tensor_qparams",
)
def fake(g: Graph, x: Any, scale: Any, zero: Any, low: int, high: int) -> Any:
    return _real(g, _levels(g, x, scale, zero, low, high), scale, zero, g.result_dtype())


@aten_op("fake_quantize_per_tensor_affine_cachemask.default")
def fake_with_mask(g: Graph, x: Any, scale: Any, zero: Any, low: int, high: int) -> tuple:
    return fake(g, x, scale, zero, low, high), None


@aten_op("fake_quantize_per_channel_affine.default")
def fake_channels(g: Graph, x: Any, scales: Any, zeros: Any, axis: int, low: int, high: int) -> Any:
    scale, zero = (_along(g, v, x, axis) for v in (scales, zeros))
    return fake(g, x, scale, zero, low, high)


@aten_op("fake_quantize_per_channel_affine_cachemask.default")
def fake_channels_with_mask(
    g: Graph, x: Any, scales: Any, zeros: Any, axis: int, low: int, high: int
) -> tuple:
    return fake_channels(g, x, scales, zeros, axis, low, high), None
