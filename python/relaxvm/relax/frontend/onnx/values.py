# SPDX-License-Identifier: Apache-2.0
"""The values that flow through an ONNX graph at import.

A value is `Known` when its elements are: a constant, or integers that are expressions over symbolic
dimensions (what `Shape` gives, and everything computed from it).  Everything else is a `Tensor`
of the graph language.  An absent optional input is None.
"""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from typing import Any

import numpy as np

from .errors import InvalidModel


@dataclasses.dataclass(eq=False)
class Known:
    """`array` holds the elements: of `dtype` itself, or objects (int, float, bool, Fraction-scaled
    expressions) when at least one is symbolic."""

    array: np.ndarray
    dtype: np.dtype
    expr: Any = None  # the graph expression once someone needed it

    @property
    def is_constant(self) -> bool:
        return self.array.dtype != object

    @staticmethod
    def constant(array: Any, dtype: Any = None) -> Known:
        array = np.asarray(array, dtype)
        return Known(array, array.dtype)

    @staticmethod
    def of(array: np.ndarray, dtype: Any) -> Known:
        """Elements that may be symbolic: stored natively when none is."""
        dtype = np.dtype(dtype)
        array = np.asarray(array)
        if array.dtype == object and all(isinstance(e, NUMBERS) for e in array.flat):
            array = _native(array, dtype)
        elif array.dtype != object:
            array = array.astype(dtype, copy=False)
        return Known(array, dtype)


@dataclasses.dataclass(eq=False)
class Tensor:
    """A value that exists at run time."""

    expr: Any


@dataclasses.dataclass(eq=False)
class Sequence:
    """An ONNX sequence whose length is known."""

    items: tuple


@dataclasses.dataclass(eq=False)
class ItemSequence:
    """A sequence whose length is known only while running: a list of the VM."""

    expr: Any
    item_type: Any  # a TensorType that holds every item, None when no item tells


@dataclasses.dataclass(eq=False)
class Maybe:
    """A value of optional type: its element, or None while running."""

    expr: Any  # None: surely without an element
    item_type: Any  # a TensorType that holds the element, or the items of a sequence
    is_sequence: bool = False


Value = Known | Tensor | Sequence | ItemSequence | Maybe

NUMBERS = (bool, int, float, Fraction, np.generic)


def _native(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    out = np.empty(array.shape, dtype)
    for index, element in np.ndenumerate(array):
        out[index] = float(element) if isinstance(element, Fraction) else element
    return out


def item_type_of(value: Value) -> Any:
    """Element type and rank of a tensor that becomes an item."""
    from relaxvm import relax

    if isinstance(value, Known):
        return relax.TensorType(None, value.dtype.name, ndim=value.array.ndim)
    return relax.TensorType(None, value.expr.ty.dtype, ndim=value.expr.ty.ndim)


def joined_item_type(a: Any, b: Any) -> Any:
    """The type of the items of one list; None when nothing is known.  Numbers in its shape hold for all items."""
    from relaxvm import relax

    if a is None or b is None:
        return b if a is None else a
    if str(a.dtype) != str(b.dtype):
        raise InvalidModel(f"a sequence holds tensors of types {a.dtype} and {b.dtype}")
    if a.ndim != b.ndim:
        return relax.TensorType(None, a.dtype, ndim=-1)
    if a.shape is None or fixed_dims(a) == fixed_dims(b):
        return a
    return relax.TensorType(None, a.dtype, ndim=a.ndim)


def fixed_dims(ty: Any) -> list[int | None]:
    """The dimensions of a tensor type that are numbers."""
    values = [None] * max(ty.ndim, 0) if ty.shape is None else list(ty.shape.values)
    return [getattr(d, "value", None) for d in values]
