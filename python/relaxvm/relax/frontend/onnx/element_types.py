# SPDX-License-Identifier: Apache-2.0
"""ONNX's element types.  Numbers of 2 and 4 bits travel in bytes, one element each, as in NumPy."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import onnx
from onnx import helper

from .errors import InvalidModel, UnsupportedModel

_T = onnx.TensorProto


@dataclasses.dataclass(frozen=True)
class Narrow:
    """An element type smaller than a byte."""

    carrier: str  # the element type that its values have in programs
    low: float
    high: float
    bits: int


# By number: older versions of onnx do not name all of them.
NARROW = {
    21: Narrow("uint8", 0, 15, 4),
    22: Narrow("int8", -8, 7, 4),
    23: Narrow("float8_e4m3fn", -6, 6, 4),
    25: Narrow("uint8", 0, 3, 2),
    26: Narrow("int8", -2, 1, 2),
}
# Greatest values of the floats of 8 bits.
_FLOAT8_MAX = {
    "float8_e4m3fn": 448.0,
    "float8_e4m3fnuz": 240.0,
    "float8_e5m2": 57344.0,
    "float8_e5m2fnuz": 57344.0,
}


def numpy_dtype(elem_type: int) -> np.dtype:
    """As ONNX's own library says it."""
    try:
        return np.dtype(helper.tensor_dtype_to_np_dtype(elem_type))
    except (KeyError, ValueError) as e:
        raise InvalidModel(f"the element type {elem_type} is unknown") from e


def carrier(elem_type: int) -> str:
    """The element type of a tensor in programs."""
    if elem_type == _T.STRING:
        raise UnsupportedModel("strings are not supported")
    if elem_type in NARROW:
        return NARROW[elem_type].carrier
    return numpy_dtype(elem_type).name


def carried(array: np.ndarray, elem_type: int) -> np.ndarray:
    """The array with elements of the type that programs use."""
    return array.astype(np.dtype(carrier(elem_type))) if elem_type in NARROW else array


def converted(g: Any, x: Any, elem_type: int, saturate: bool = True, round_mode: str = "up") -> Any:
    """`x` as a tensor of an ONNX element type; `round_mode` is float8_e8m0's."""
    from relaxvm.relax import op

    x = g.emit(x)
    dtype, have = carrier(elem_type), g.dtype(x)
    narrow = NARROW.get(elem_type)
    if narrow is not None and dtype.startswith("float"):
        return op.astype(_to_float4(g, x), dtype)
    if narrow is not None:
        return op.astype(_low_bits(g, x, narrow), dtype)
    if have == dtype:
        return x
    if dtype == "float8_e8m0fnu":
        return op.astype(_power_of_two(g, x, saturate, round_mode), dtype)
    top = _FLOAT8_MAX.get(dtype)
    if top is None or not saturate:
        return op.astype(x, dtype)
    return op.astype(_clamped(g, _float32(g, x), -top, top), dtype)


def _float32(g: Any, x: Any) -> Any:
    from relaxvm.relax import op

    return x if g.dtype(x) == "float32" else g.emit(op.astype(x, "float32"))


def _clamped(g: Any, x: Any, low: float, high: float) -> Any:
    """Bounded on both sides; NaN stays."""
    from relaxvm.relax import op

    least, most = g.constant(low, "float32"), g.constant(high, "float32")
    x = op.where(op.greater(x, most), most, x)
    return op.where(op.less(x, least), least, x)


def _power_of_two(g: Any, x: Any, saturate: bool, round_mode: str) -> Any:
    """What float8_e8m0 holds: 2^-127 to 2^127; out of range a value is bounded, or NaN."""
    from relaxvm.relax import op

    least, f = g.constant(2.0**-127, "float32"), g.constant
    x = _float32(g, x)
    if saturate:
        x = _clamped(g, x, 2.0**-127, 2.0**127)
    else:
        x = op.where(op.less(x, least), f(np.nan, "float32"), x)
    if round_mode == "nearest":
        return x  # as the cast rounds
    if round_mode not in ("up", "down"):
        raise InvalidModel(f"round_mode is 'up', 'down' or 'nearest', not '{round_mode}'")
    x = g.emit(x)
    shape = g.shape(x)
    bits = g.emit(op.memory.view(x, shape, "int32"))
    if round_mode == "up":
        bits = op.add(bits, f(0x7FFFFF, "int32"))
    rounded = g.emit(op.bitwise_and(bits, f(0x7F800000, "int32")))
    rounded = op.memory.view(rounded, shape, "float32")
    # The least power has no exponent of its own among normal floats, and down from it is nothing.
    small = op.less_equal(x, least)
    if round_mode == "down":
        small = op.less(x, f(2.0**-126, "float32"))
    return op.where(op.isnan(x), x, op.where(small, least, g.emit(rounded)))


def _low_bits(g: Any, x: Any, narrow: Narrow) -> Any:
    """Integers wrap, as everywhere."""
    from relaxvm.relax import op

    x = x if g.dtype(x) == "int32" else op.astype(x, "int32")
    if narrow.low == 0:
        return op.bitwise_and(x, g.constant(int(narrow.high), "int32"))
    shift = g.constant(32 - narrow.bits, "int32")
    return op.right_shift(op.left_shift(x, shift), shift)


def _to_float4(g: Any, x: Any) -> Any:
    """The nearest of 0, 0.5, 1, 1.5, 2, 3, 4, 6 with either sign; halves to even."""
    from relaxvm.relax import op

    f = lambda v: g.constant(v, "float32")
    x = g.emit(op.astype(x, "float32") if g.dtype(x) != "float32" else x)
    size = g.emit(op.abs(x))
    step = op.where(op.less(size, f(2)), f(0.5), op.where(op.less(size, f(4)), f(1), f(2)))
    step = g.emit(step)
    near = op.minimum(op.multiply(op.round(op.divide(size, step)), step), f(6))
    signed = op.where(op.less(x, f(0)), op.negative(near), near)
    return op.where(op.isnan(x), f(0), signed)
