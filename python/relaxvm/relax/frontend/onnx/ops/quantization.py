# SPDX-License-Identifier: Apache-2.0
"""Conversion between real numbers and small ones with a scale and a zero point."""

from __future__ import annotations

import numpy as np

from relaxvm.relax import op

from .. import block_weights, byte_moves, byte_products
from ..element_types import NARROW, carrier, converted
from ..errors import InvalidModel, UnsupportedModel
from ..graph import Dequantized, Graph, known
from ..registry import Expr, onnx_op

_UINT8 = 2  # ONNX's number of the type


def along(g, parameter, x, axis, block=0):
    """A scale or zero point in the rank of `x`: one number, one for each index of `axis`, or of blocks."""
    parameter = g.emit(parameter)
    if block and g.rank(parameter) == g.rank(x):
        axis = g.axis(axis, g.rank(x))
        wide = op.repeat(parameter, block, axis=axis)
        shape = g.shape(x)
        have = g.shape(g.emit(wide))
        if not g.scalars.same(have[axis], shape[axis]):
            wide = op.strided_slice(wide, axes=[axis], begin=[0], end=[shape[axis]])
        return g.emit(wide)
    if g.rank(parameter) == 0 or g.shape(parameter) == [1]:
        return byte_products.shaped(g, parameter, [])
    if g.rank(parameter) != 1:
        raise InvalidModel("scales with several dimensions need a block_size")
    axis = g.axis(axis, g.rank(x))
    shape = [1] * g.rank(x)
    shape[axis] = g.shape(parameter)[0]
    return byte_products.shaped(g, parameter, shape)


def typed(g, x, dtype):
    x = g.emit(x)
    if g.dtype(x) == dtype:
        return x
    array = known(x)
    # A number stays one that later steps know; what is large may never be needed.
    if array is not None and array.size == 1 and dtype in ("int32", "float32"):
        return g.constant(array, dtype)
    return op.astype(x, dtype)


def ratio(g, a, b):
    left, right = known(a), known(b)
    if left is None or right is None:
        return g.emit(op.divide(a, b))
    with np.errstate(all="ignore"):
        return g.constant(left / right)


def dequantized(g, x, scale, zero, axis, block=0):
    """(x - zero) * scale in the scale's type."""
    dtype = g.dtype(x)
    number = _known_number(g, x, scale, zero)
    if number is not None:
        return number
    x, by = g.agree(x, typed(g, along(g, scale, x, axis, block), "float32"))
    if dtype.startswith("float"):
        wide = op.astype(x, "float32")
    elif np.dtype(dtype).itemsize <= 2:  # float32 has all of the differences
        wide = g.emit(op.astype(x, "float32"))
        if not _is_zero(zero):
            wide = op.subtract(wide, typed(g, along(g, zero, x, axis, block), "float32"))
    else:
        wide = typed(g, x, "int32")
        if zero is not None:
            wide = op.subtract(wide, typed(g, along(g, zero, x, axis, block), "int32"))
        wide = op.astype(wide, "float32")
    y = op.multiply(wide, by)
    return typed(g, g.emit(y), g.dtype(scale))


def _is_zero(zero):
    value = np.zeros(()) if zero is None else known(zero)
    return value is not None and not np.any(value)


def _known_number(g, x, scale, zero):
    """(x - zero) * scale of numbers that are known."""
    arrays = [known(i) for i in (x, scale, zero) if i is not None]
    if any(i is None or i.size != 1 for i in arrays) or g.dtype(scale) != "float32":
        return None
    if arrays[0].dtype.kind not in "iu":
        return None
    wide = arrays[0].astype(np.int32)
    if zero is not None:
        wide = wide - arrays[2].astype(np.int32).reshape(())
    return g.constant(wide.astype(np.float32) * arrays[1].reshape(()))


def quantized(g, x, scale, zero, dtype, elem_type, axis=1, block=0, saturate=True):
    """round(x / scale) + zero, kept in the range of the type."""
    x, scale = g.agree(x, typed(g, along(g, scale, x, axis, block), g.dtype(x)))
    y = g.emit(op.divide(x, scale))
    if dtype.startswith("float"):
        wide = typed(g, y, "float32")
        return converted(g, wide, elem_type, saturate)
    # Halves go to even before the zero point is added.
    rounded = typed(g, op.round(y), "float32")
    zero = None if zero is None else along(g, zero, x, axis, block)
    return saturated(g, g.emit(rounded), zero, dtype, elem_type)


def saturated(g, rounded, zero, dtype, elem_type=0):
    if np.dtype(dtype).kind not in "iu" or np.dtype(dtype).itemsize > 2:
        raise UnsupportedModel(f"quantization to {dtype} is not supported")
    narrow = NARROW.get(elem_type)
    limits = (narrow.low, narrow.high) if narrow else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    if not _is_zero(zero):
        rounded = op.add(rounded, typed(g, zero, "float32"))
    return op.astype(op.clip(rounded, float(limits[0]), float(limits[1])), dtype)


@onnx_op("DequantizeLinear", since=10)
@onnx_op("DequantizeLinear", since=1, domain="com.microsoft")
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
    elem_type = g.input_type(0)
    raised = None if block_size else g.raised.get(g.node.input[0])
    if raised is not None:
        x, zero, elem_type = raised, _raised_zero(g, zero), _UINT8
    y = dequantized(g, x, scale, zero, axis, block_size)
    if not block_size and not output_dtype and g.node.op_type == "DequantizeLinear":
        g.note_dequantized(Dequantized(x, scale, zero, axis, elem_type))
    if raised is None and not output_dtype:
        block_weights.note(g, x, scale, zero, axis, block_size, elem_type)
    return typed(g, y, carrier(output_dtype)) if output_dtype else y


@onnx_op("QuantizeLinear", since=10)
@onnx_op("QuantizeLinear", since=1, domain="com.microsoft")
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
    elem_type = g.input_type(2) if zero is not None else output_dtype or 2  # uint8
    if precision:
        x = typed(g, x, carrier(precision))
    elif g.dtype(x) == "int32":
        x = op.astype(x, g.dtype(scale))
    g.set_output_type(0, elem_type)
    dtype, raises = carrier(elem_type), False
    if dtype == "int8" and elem_type not in NARROW and not block_size:
        # What reads it wants unsigned bytes: products, tables, and maxima that are 0 for a NaN.
        zero, dtype, elem_type, raises = _raised_zero(g, zero), "uint8", _UINT8, True
    wanted = Dequantized(None, scale, zero, axis, elem_type)

    def each(real, what):
        before = byte_moves.quantized_before(g, what, wanted)
        if before is not None:
            return before
        return quantized(
            g, g.emit(real), scale, zero, dtype, elem_type, axis, block_size, bool(saturate)
        )

    product = g.products.get(g.node.input[0])
    joined = g.joined.get(g.node.input[0])
    single = byte_products.is_single(g, scale)
    if (
        product is not None
        and single
        and dtype in byte_products.BYTES
        and elem_type not in NARROW
        and not precision
    ):
        zero = g.constant(0, dtype) if zero is None else zero
        y = requantized_sum(g, product.sums.total(g), product.scale, scale, zero, dtype)
    elif joined is not None and single:
        y = joined.join([each(*part) for part in zip(joined.real, joined.parts)])
    else:
        y = each(x, None if precision else g.dequantized_input(0))
    if not raises:
        return y
    g.raised[g.node.output[0]] = y = g.emit(y)
    return op.astype(op.subtract(op.astype(y, "int32"), g.constant(128, "int32")), "int8")


def _raised_zero(g, zero):
    """The zero point of signed bytes that are carried as unsigned ones."""
    raise_by = g.constant(128, "int32")
    if zero is None:
        return raise_by
    value = known(zero)
    if value is not None:
        return g.constant(value.astype(np.int32) + 128)
    return g.emit(op.add(op.astype(zero, "int32"), raise_by))


@onnx_op("DynamicQuantizeLinear", since=11)
def dynamic_quantize_linear(g: Graph, x: Expr) -> tuple:
    nothing, steps = g.constant(0, "float32"), g.constant(255, "float32")
    low = op.minimum(op.min(x, axis=None, keepdims=False), nothing)
    high = op.maximum(op.max(x, axis=None, keepdims=False), nothing)
    low, high = g.emit(low), g.emit(high)
    scale = g.emit(op.divide(op.subtract(high, low), steps))
    # Zeros alone are whole numbers of any scale.
    scale = g.emit(op.where(op.equal(scale, nothing), g.constant(1, "float32"), scale))
    zero = op.round(op.clip(op.divide(op.subtract(nothing, low), scale), 0.0, 255.0))
    zero = g.emit(op.astype(zero, "uint8"))
    return saturated(g, op.round(op.divide(x, scale)), zero, "uint8"), scale, zero


def requantized_sum(g, y, scale, y_scale, y_zero, dtype=None):
    """Integers in units of `scale`.  One factor does both steps: halves fall as they do elsewhere."""
    factor = ratio(g, g.emit(scale), typed(g, along(g, y_scale, y, 1), "float32"))
    rounded = op.round(g.emit(op.multiply(g.emit(op.astype(y, "float32")), factor)))
    dtype = dtype or g.dtype(y_zero)
    zero = along(g, y_zero, y, 1)
    return saturated(g, g.emit(rounded), zero, dtype, g.elem_type_of(dtype))
