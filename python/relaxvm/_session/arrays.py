# SPDX-License-Identifier: Apache-2.0
"""NumPy arrays as tensors of the VM and back, without copies where that is safe."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from .. import runtime
from ..runtime.tensor import borrow, exportable

# Element types that NumPy takes from DLPack.
_DLPACK_DTYPES = frozenset(
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64".split()
)


class Borrowed:
    """Tensors over the memory of arrays, for the time of one call."""

    def __init__(self, arrays: Sequence[np.ndarray]) -> None:
        self._arrays = [exportable(a) for a in arrays]
        self.tensors = [borrow(a) for a in self._arrays]

    def __enter__(self) -> Borrowed:
        return self

    def __exit__(self, *exc: object) -> None:
        self.tensors = []
        self._arrays = []

    def overlaps(self, array: np.ndarray) -> bool:
        return any(np.may_share_memory(array, a) for a in self._arrays)


def to_numpy(tensor: Any, borrowed: Borrowed, owned: Sequence[tuple[int, int]]) -> np.ndarray:
    """The tensor as an array that the caller owns: memory of an input or of the model is copied."""
    if str(tensor.dtype) not in _DLPACK_DTYPES:
        return tensor.numpy()
    array = np.from_dlpack(tensor)
    if array.size == 0:
        return array
    start = array.__array_interface__["data"][0]
    shared = borrowed.overlaps(array) or any(low <= start < high for low, high in owned)
    return array.copy() if shared or not array.flags.writeable else array


def constant_ranges(executable: Any) -> list[tuple[int, int]]:
    """Where the constants of a model lie: an output may be one of them, or a view of it."""
    ranges = []
    for tensor in _constants(executable):
        if isinstance(tensor, runtime.Tensor) and str(tensor.dtype) in _DLPACK_DTYPES:
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
