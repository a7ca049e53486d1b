# SPDX-License-Identifier: Apache-2.0
"""Devices by name, and what they say of themselves."""

from __future__ import annotations

from collections.abc import Callable

from relaxvm._ffi import runtime_function, tvm_ffi

_NULL_DEVICE_TYPE = 12  # DLPack's extension device; runtime/device.h
_CUDA_DEVICE_TYPE = 2

_exists = runtime_function("runtime.device_exists")
_synchronize = runtime_function("runtime.synchronize")
_null_stats = runtime_function("runtime.null_device_stats")


class _Device(tvm_ffi.Device):
    """tvm-ffi's device with TVM's methods."""

    __slots__ = ()

    @property
    def exist(self) -> bool:
        """Whether this build can use the device."""
        return _exists(self)

    def sync(self, stream: int | None = None) -> None:
        """Returns when all work of the device is done.  Raises ValueError for a device that this build cannot use."""
        synchronize(self)


def _device_class() -> type:
    """What tvm-ffi returns devices as.  A class that another package (apache-tvm) has set stays: it has the methods."""
    current = type(tvm_ffi.device("cpu", 0))
    if current is not tvm_ffi.Device:
        return current
    tvm_ffi.core._set_class_device(_Device)
    return _Device


Device = _device_class()


def device(device_type: str | int, index: int | None = None) -> Device:
    """A device from its name ("cpu", "cpu:1", "null") or DLPack type, and index."""
    if isinstance(device_type, int):
        return Device(device_type, index or 0)
    kind, _, suffix = device_type.partition(":")
    if suffix:
        index = int(suffix)
    if kind in ("null", "ext_dev"):
        return null(index or 0)
    if kind in ("llvm", "c"):
        return cpu(index or 0)
    return tvm_ffi.device(kind, index or 0)


def cpu(dev_id: int = 0) -> Device:
    return tvm_ffi.device("cpu", dev_id)


def null(dev_id: int = 0) -> Device:
    """The null device: it queues work and runs it late, for tests."""
    return Device(_NULL_DEVICE_TYPE, dev_id)


def cuda(dev_id: int = 0) -> Device:
    """A CUDA device; builds without CUDA refuse it when it is used."""
    return Device(_CUDA_DEVICE_TYPE, dev_id)


def _of_kind(kind: str) -> Callable[..., Device]:
    def named(dev_id: int = 0) -> Device:
        return device(kind, dev_id)

    return named


gpu = cuda
# Devices of TVM's builds.  They can be named and asked whether they exist; what uses one is refused.
opencl, vulkan, metal, rocm, vpi, hexagon = (
    _of_kind(kind) for kind in ("opencl", "vulkan", "metal", "rocm", "vpi", "hexagon")
)
ext_dev = null


def exists(dev: Device) -> bool:
    """Whether this build can use the device."""
    return _exists(dev)


def synchronize(dev: Device) -> None:
    """Returns when all work of the device is done."""
    _synchronize(dev)


def null_stats() -> dict[str, int]:
    """What the null device counts: launches, copies, synchronisations, allocations, frees, failures, waiting works."""
    return {str(name): int(count) for name, count in _null_stats().items()}
