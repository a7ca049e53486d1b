# SPDX-License-Identifier: Apache-2.0
"""NumPy arrays as tensors of the VM and back, without copies where that is safe."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from .. import runtime
from ..runtime.tensor import borrow, exportable, from_dlpack

# Element types that NumPy takes from DLPack.
_DLPACK_DTYPES = frozenset(
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64".split()
)


class Owned:
    """The memory of a model's constants, which no caller may get."""

    def __init__(self, executable: Any) -> None:
        ranges = sorted(constant_ranges(executable))
        self._starts = [start for start, _ in ranges]
        self._ends = [end for _, end in ranges]

    def holds(self, address: int) -> bool:
        at = bisect.bisect_right(self._starts, address) - 1
        return at >= 0 and address < self._ends[at]


class Borrowed:
    """Tensors over the memory of arrays, for the time of one call."""

    __slots__ = ("_arrays", "tensors")

    def __init__(self, arrays: Sequence[np.ndarray]) -> None:
        # Most arrays are lent as they are: dense, aligned, writable.
        self._arrays = [a if a.flags.carray else exportable(a) for a in arrays]
        self.tensors = [
            from_dlpack(a) if a.dtype.kind in "biuf" else borrow(a) for a in self._arrays
        ]

    def holds(self, address: int) -> bool:
        for tensor, array in zip(self.tensors, self._arrays):
            if 0 <= address - tensor.data_ptr() < array.nbytes:
                return True
        return False


def is_plain(dtype: str) -> bool:
    """Does NumPy take a tensor of this element type as it is?"""
    return dtype in _DLPACK_DTYPES


def to_numpy(tensor: Any, plain: bool, borrowed: Borrowed, owned: Owned) -> np.ndarray:
    """The tensor as an array that the caller owns: memory of an input or of the model is copied."""
    if not plain:
        return tensor.numpy()
    array = np.from_dlpack(tensor)
    address = tensor.data_ptr()
    if owned.holds(address) or borrowed.holds(address) or not array.flags.writeable:
        return array.copy()
    return array


def constant_ranges(executable: Any) -> list[tuple[int, int]]:
    """Where the constants of a model lie: an output may be one of them, or a view of it."""
    ranges = []
    for tensor in _constants(executable):
        if isinstance(tensor, runtime.Tensor) and is_plain(str(tensor.dtype)):
            array: np.ndarray = np.from_dlpack(tensor)  # type: ignore[arg-type]
            start = array.__array_interface__["data"][0]
            ranges.append((start, start + max(array.nbytes, 1)))
    return ranges


def _constants(executable: Any) -> Iterator[Any]:
    for i in itertools.count():
        try:
            yield executable.constant(i)
        except IndexError:
            return
