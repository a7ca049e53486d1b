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


def converted(g: Any, x: Any, elem_type: int, saturate: bool = True) -> Any:
    """`x` as a tensor of an ONNX element type."""
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
    top = _FLOAT8_MAX.get(dtype)
    if top is None or not saturate:
        return op.astype(x, dtype)
    wide = x if have == "float32" else op.astype(x, "float32")
    return op.astype(_clamped(g, g.emit(wide), top), dtype)


def _clamped(g: Any, x: Any, top: float) -> Any:
    """Bounded by `top` on both sides; NaN stays."""
    from relaxvm.relax import op

    high, low = g.constant(top, "float32"), g.constant(-top, "float32")
    x = op.where(op.greater(x, high), high, x)
    return op.where(op.less(x, low), low, x)


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
