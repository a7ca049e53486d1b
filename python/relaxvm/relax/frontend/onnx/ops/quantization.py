# SPDX-License-Identifier: Apache-2.0
"""Conversion between real numbers and small integers with a scale and a zero point."""

from __future__ import annotations

import numpy as np

from onnx import helper
from relaxvm.relax import op

from ..errors import UnsupportedModel
from ..graph import Graph
from ..registry import Expr, onnx_op


def _along(g, parameter, x, axis):
    """A scale or zero point in the rank of `x`: one number, or one for each index of `axis`."""
    if g.rank(parameter) == 0 or g.shape(parameter) == [1]:
        return op.reshape(parameter, [])
    if g.rank(parameter) != 1:
        raise UnsupportedModel("blocked quantization is not supported")
    axis = g.axis(axis, g.rank(x))
    shape = [1] * g.rank(x)
    shape[axis] = g.shape(parameter)[0]
    return op.reshape(parameter, shape)


@onnx_op("DequantizeLinear", since=10)
def dequantize_linear(
    g: Graph,
    x: Expr,
    scale: Expr,
    zero: Expr | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> Expr:
    dtype = g.dtype(scale)
    if output_dtype:
        dtype = np.dtype(helper.tensor_dtype_to_np_dtype(output_dtype)).name
    if block_size:
        raise UnsupportedModel("blocked quantization is not supported")
    wide = op.astype(x, "int32") if g.dtype(x) != "int32" else x
    if zero is not None and g.dtype(x) != "int32":
        wide = op.subtract(wide, op.astype(_along(g, zero, x, axis), "int32"))
    y = op.multiply(op.astype(wide, g.dtype(scale)), _along(g, scale, x, axis))
    return y if dtype == g.dtype(scale) else op.astype(y, dtype)


@onnx_op("QuantizeLinear", since=10)
def quantize_linear(
    g: Graph,
    x: Expr,
    scale: Expr,
    zero: Expr | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
    saturate: int = 1,
) -> Expr:
    if block_size:
        raise UnsupportedModel("blocked quantization is not supported")
    dtype = "uint8" if zero is None else g.dtype(zero)
    if zero is None and output_dtype:
        dtype = np.dtype(helper.tensor_dtype_to_np_dtype(output_dtype)).name
    y = op.round(op.divide(_as(g, x, g.dtype(scale)), _along(g, scale, x, axis)))
    return _saturate(g, y, None if zero is None else _along(g, zero, x, axis), dtype)


def _as(g, x, dtype):
    return x if g.dtype(x) == dtype else op.astype(x, dtype)


def _saturate(g, rounded, zero, dtype):
    if np.dtype(dtype).kind not in "iu" or np.dtype(dtype).itemsize > 2:
        raise UnsupportedModel(f"quantization to {dtype} is not supported")
    limits = np.iinfo(dtype)
    if zero is not None:
        rounded = op.add(rounded, op.astype(zero, "float32"))
    return op.astype(op.clip(rounded, float(limits.min), float(limits.max)), dtype)


@onnx_op("DynamicQuantizeLinear", since=11)
def dynamic_quantize_linear(g: Graph, x: Expr) -> tuple:
    nothing, steps = g.constant(0, "float32"), g.constant(255, "float32")
    low = op.minimum(op.min(x, axis=None, keepdims=False), nothing)
    high = op.maximum(op.max(x, axis=None, keepdims=False), nothing)
    low, high = g.emit(low), g.emit(high)
    scale = g.emit(op.divide(op.subtract(high, low), steps))
    zero = op.round(op.clip(op.divide(op.subtract(nothing, low), scale), 0.0, 255.0))
    zero = g.emit(op.astype(zero, "uint8"))
    return _saturate(g, op.round(op.divide(x, scale)), zero, "uint8"), scale, zero
