# SPDX-License-Identifier: Apache-2.0
"""What the VM gives as NumPy arrays, without copies where that is safe."""

from __future__ import annotations

from typing import Any

import numpy as np

_from_dlpack = np.from_dlpack
# Element types that NumPy takes from DLPack.
_DLPACK_DTYPES = frozenset(
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64".split()
)


class Values:
    """Several results of a call; Python's own tuple would become an array of tvm-ffi."""

    __slots__ = ("values",)

    def __init__(self, *values: Any) -> None:
        self.values = values


def is_lendable(array: np.ndarray) -> bool:
    """Can the VM read the array where it is?"""
    return array.flags.carray and array.dtype.kind in "biuf"


def is_plain(dtype: str) -> bool:
    """Does NumPy take a tensor of this element type as it is?"""
    return dtype in _DLPACK_DTYPES


def to_numpy(tensor: Any, plain: bool) -> Any:
    """A tensor that belongs to the caller as an array that can be written."""
    if not plain:
        return _unpacked(tensor)
    array = _from_dlpack(tensor)
    return array if array.flags.writeable else array.copy()  # NumPy before 2.1 lets nobody write


def _unpacked(value: Any) -> Any:
    """Of a sequence a list; None where an optional value has no element."""
    if value is None:
        return None
    return value.numpy() if hasattr(value, "numpy") else [_unpacked(item) for item in value]


def to_dictionaries(rows: np.ndarray, keys: list) -> list[dict]:
    """A dictionary for each row of a matrix with a column for each key."""
    return [dict(zip(keys, row, strict=True)) for row in rows.tolist()]
