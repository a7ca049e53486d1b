# SPDX-License-Identifier: Apache-2.0
"""Tensors: tvm-ffi's, with the methods that TVM's users know."""

from __future__ import annotations

import numpy as np

from relaxvm._ffi import runtime_function, tvm_ffi
from relaxvm.runtime.device import Device, cpu

_empty = runtime_function("runtime.empty")
_copy = runtime_function("runtime.copy")
_copy_to = runtime_function("runtime.copy_to")
_reinterpret = runtime_function("runtime.reinterpret")
_CPU = 1
# Element types that DLPack and NumPy do not both know: handed over as bytes and labelled again.
_ML_DTYPES = (
    "bfloat16",
    "float8_e3m4",
    "float8_e4m3",
    "float8_e4m3b11fnuz",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
)


def _numpy_dtype(name: str) -> np.dtype:
    if name in _ML_DTYPES:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))
    return np.dtype(name)


class _Tensor(tvm_ffi.core.Tensor):
    """tvm-ffi's tensor with TVM's methods."""

    __slots__ = ()

    def numpy(self) -> np.ndarray:
        """A copy of the values as an array."""
        host = self if self.device.dlpack_device_type() == _CPU else _copy_to(self, cpu())
        return np.array(_numpy_view(host, str(host.dtype)))

    def copyfrom(self, values) -> Tensor:
        """Overwrites the values."""
        if not isinstance(values, tvm_ffi.core.Tensor):
            values = tensor(np.asarray(values, dtype=_numpy_dtype(str(self.dtype))))
        _copy(values, self)
        return self

    def copyto(self, target: Tensor | Device, mem_scope: str | None = None) -> Tensor:
        """Copies to another tensor, or to a new one on a device."""
        if not isinstance(target, tvm_ffi.core.Tensor):
            target = empty(self.shape, str(self.dtype), target, mem_scope)
        _copy(self, target)
        return target

    def __str__(self) -> str:
        return str(self.numpy())

    def __repr__(self) -> str:
        shape = ", ".join(str(dim) for dim in self.shape)
        return f"<relaxvm.Tensor shape=({shape}), {self.dtype}, {self.device}>\n{self}"

    def __setitem__(self, index, values) -> None:
        if index != slice(None) and index is not ...:
            raise ValueError("only the whole tensor can be assigned: t[:] = values")
        self.copyfrom(values)


def _tensor_class() -> type:
    """What tvm-ffi returns tensors as.  A class that another package (apache-tvm) has set stays: it has the methods."""
    current = type(_empty(tvm_ffi.Shape([]), tvm_ffi.dtype("float32"), cpu()))
    if current is not tvm_ffi.core.Tensor:
        return current
    tvm_ffi.register_object("ffi.Tensor")(_Tensor)
    tvm_ffi.core._set_class_tensor(_Tensor)
    return _Tensor


Tensor = _tensor_class()


def empty(
    shape, dtype: str = "float32", device: Device | None = None, mem_scope: str | None = None
) -> Tensor:
    """A tensor whose values are not set."""
    if mem_scope not in (None, "global"):
        raise ValueError(f"memory scope {mem_scope!r} does not exist here; use 'global'")
    dims = (shape,) if isinstance(shape, int) else tuple(shape)
    return _empty(tvm_ffi.Shape([int(dim) for dim in dims]), tvm_ffi.dtype(dtype), device or cpu())


def _from_numpy(array: np.ndarray) -> Tensor:
    """A new tensor with the array's values."""
    name = array.dtype.name
    result = empty(array.shape, name)
    if array.size:
        _numpy_view(result, name)[...] = array
    return result


def _numpy_view(value: Tensor, name: str) -> np.ndarray:
    """The memory of a host tensor as an array, without a copy."""
    dtype = _numpy_dtype(name)
    if name in _ML_DTYPES:
        integers = _reinterpret(value, tvm_ffi.dtype(f"uint{dtype.itemsize * 8}"))
        return np.from_dlpack(integers).view(dtype)
    return np.from_dlpack(value)


def tensor(arr, device: Device | None = None, mem_scope: str | None = None) -> Tensor:
    """A tensor with a copy of the values (an array, a tensor, nested lists, a number) on the device."""
    if mem_scope not in (None, "global"):
        raise ValueError(f"memory scope {mem_scope!r} does not exist here; use 'global'")
    if isinstance(arr, tvm_ffi.core.Tensor):
        result = empty(arr.shape, str(arr.dtype), device)
        _copy(arr, result)
        return result
    array = np.asarray(arr)
    result = _from_numpy(array)
    return result if device is None else _copy_to(result, device)


def from_dlpack(ext_tensor) -> Tensor:
    """The values of another library's array, without a copy."""
    return tvm_ffi.from_dlpack(ext_tensor)


class _Writable:
    """The memory of a read-only array as if it could be written: kernels never write to inputs, and
    DLPack hands out nothing that is read-only."""

    def __init__(self, array: np.ndarray) -> None:
        interface = dict(array.__array_interface__)
        interface["data"] = (interface["data"][0], False)
        self.__array_interface__ = interface
        self._keep = array


def exportable(array: np.ndarray) -> np.ndarray:
    """The array, or a copy of it when its memory is not that of a dense, aligned tensor."""
    if not (array.flags.c_contiguous and array.flags.aligned):
        return array.copy(order="C")
    if not array.flags.writeable and array.dtype.kind in "biuf":
        return np.asarray(_Writable(array))
    return array


def borrow(values) -> Tensor:
    """A host tensor over the memory of an array of NumPy or of another library with DLPack.

    Without a copy, unless the values are not dense, or of a dtype that DLPack does not take from NumPy (bfloat16).
    The memory must not change while the tensor is in use.
    """
    if not isinstance(values, np.ndarray):
        result = from_dlpack(values)
        if result.is_contiguous() or result.device.dlpack_device_type() != _CPU:
            return result
        return tensor(np.from_dlpack(result))
    array = exportable(values)
    return from_dlpack(array) if array.dtype.kind in "biuf" else tensor(array)
