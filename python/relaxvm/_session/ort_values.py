# SPDX-License-Identifier: Apache-2.0
"""OrtValue: a value on the CPU that sessions read and write where it lies."""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..inference_errors import InvalidArgument
from .signature import ELEMENT_TYPES, numpy_dtype

# Of a tensor's type as text, ONNX's number and NumPy's element type.
_BY_TEXT = {f"tensor({text})": (code, name) for code, (text, name) in ELEMENT_TYPES.items()}
_BY_DTYPE = {name: (code, f"tensor({text})") for code, (text, name) in ELEMENT_TYPES.items()}


class OrtValue:
    """A tensor (a NumPy array), or a list of values, or None for an optional without an element."""

    def __init__(self, value: Any) -> None:
        self._value = value

    @classmethod
    def ortvalue_from_numpy(
        cls, numpy_obj: Any, /, device_type: str = "cpu", device_id: int = 0, vendor_id: int = -1
    ) -> OrtValue:
        """A value that shares the array's memory; an array that is not contiguous is copied."""
        check_device(device_type)
        return cls(contiguous(np.asarray(numpy_obj)))

    @classmethod
    def ortvalue_from_shape_and_type(
        cls,
        shape: Sequence[int],
        element_type: Any,
        device_type: str = "cpu",
        device_id: int = 0,
        vendor_id: int = -1,
    ) -> OrtValue:
        """A tensor of this shape whose elements are not set."""
        check_device(device_type)
        return cls(np.empty(sizes(shape), dtype_of(element_type)))

    def numpy(self) -> np.ndarray:
        """The tensor as an array that shares the memory; raises InvalidArgument for other values."""
        if not self.is_tensor():
            raise InvalidArgument("the value is no tensor; only tensors are arrays")
        return self._value

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        array = self.numpy()
        if dtype is not None and array.dtype != dtype:
            if copy is False:
                raise ValueError(f"{array.dtype} becomes {dtype} only by a copy")
            return array.astype(dtype)
        return array.copy() if copy else array

    def update_inplace(self, array: np.ndarray) -> None:
        """Overwrites the tensor's elements with those of an array of its shape and element type."""
        write(self.numpy(), np.asarray(array), "the value")

    def data_ptr(self) -> int:
        return self.numpy().ctypes.data

    def shape(self) -> list[int]:
        return list(self.numpy().shape)

    def element_type(self) -> int:
        """ONNX's number of the element type."""
        return _BY_DTYPE[self.numpy().dtype.name][0]

    def data_type(self) -> str:
        if self.is_tensor():
            return _BY_DTYPE[self._value.dtype.name][1]
        first = self._value[0] if self.is_tensor_sequence() and self._value else None
        return f"seq({OrtValue(first).data_type()})" if first is not None else "optional"

    def tensor_size_in_bytes(self) -> int:
        return self.numpy().nbytes

    def device_name(self) -> str:
        return "cpu"

    def has_value(self) -> bool:
        return self._value is not None

    def is_tensor(self) -> bool:
        return isinstance(self._value, np.ndarray)

    def is_tensor_sequence(self) -> bool:
        return isinstance(self._value, list)

    def is_sparse_tensor(self) -> bool:
        return False


def check_device(device_type: str) -> None:
    if device_type.lower() != "cpu":
        raise InvalidArgument(f"device '{device_type}' is not supported; values lie on the 'cpu'")


def dtype_of(element_type: Any) -> np.dtype:
    """Of NumPy's element type, or of ONNX's number of one."""
    try:
        code = operator.index(element_type)
    except TypeError:
        try:
            return np.dtype(element_type)
        except TypeError as e:
            raise InvalidArgument(f"{element_type!r} is no element type") from e
    if code not in ELEMENT_TYPES:
        raise InvalidArgument(f"{code} is no element type of ONNX")
    return numpy_dtype(ELEMENT_TYPES[code][1])


def sizes(shape: Sequence[int]) -> tuple[int, ...]:
    try:
        found = tuple(operator.index(n) for n in shape)
    except TypeError as e:
        raise InvalidArgument(f"a shape is a list of ints, not {shape!r}") from e
    if any(n < 0 for n in found):
        raise InvalidArgument(f"the shape {list(found)} has a negative dimension")
    return found


def contiguous(array: np.ndarray) -> np.ndarray:
    """The array itself where its elements lie one after another."""
    return array if array.flags.carray else np.array(array, order="C", subok=False)


def at_address(address: int, shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """The elements at an address, which the caller keeps alive."""
    count = int(np.prod(sizes(shape), dtype=np.int64))
    if count == 0:
        return np.empty(sizes(shape), dtype)
    if not address:
        raise InvalidArgument("the address of a tensor with elements is 0")
    raw = (ctypes.c_byte * (count * dtype.itemsize)).from_address(int(address))
    return np.frombuffer(memoryview(raw), dtype).reshape(sizes(shape))


def array_of(value: Any) -> Any:
    """The elements of an OrtValue, ours or another engine's, where they lie; of others a copy."""
    if isinstance(value, OrtValue):
        return value._value
    if not (hasattr(value, "numpy") and hasattr(value, "data_ptr")):
        raise InvalidArgument(f"an OrtValue is expected, not {type(value).__name__}")
    check_device(value.device_name())
    text = value.data_type()
    if text == "tensor(string)" or text not in _BY_TEXT:
        return value.numpy()
    return at_address(value.data_ptr(), value.shape(), numpy_dtype(_BY_TEXT[text][1]))


def write(target: np.ndarray, result: Any, what: str) -> None:
    """Copies a result into memory that a caller holds ready."""
    if not isinstance(result, np.ndarray):
        raise InvalidArgument(f"{what} is no tensor and cannot be written into memory")
    if (target.dtype, target.shape) != (result.dtype, result.shape):
        raise InvalidArgument(
            f"{what} has element type {result.dtype.name} and shape {list(result.shape)},"
            f" the memory for it {target.dtype.name} and {list(target.shape)}"
        )
    target[...] = result
