# SPDX-License-Identifier: Apache-2.0
"""Weights by name as bytes, in the format of TVM's `save_param_dict`.

    u64 magic  u64 0   u64 count, names (u64 length, bytes)   u64 count, tensors
    tensor: u64 magic  u64 0  i32 device kind  i32 device id  i32 rank  u8 code  u8 bits  u16 lanes  i64 shape...
            i64 bytes  data

All numbers little-endian; tensors lie on the CPU, compact."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from relaxvm._ffi import tvm_ffi
from relaxvm.runtime.device import cpu
from relaxvm.runtime.tensor import Tensor, _numpy_dtype, empty, tensor

_LIST_MAGIC = 0xF7E58D4F05049CB7
_TENSOR_MAGIC = 0xDD5E40F096B4A13F
_CPU = 1


def save_param_dict(params: Mapping[str, Any]) -> bytearray:
    """Tensors (or arrays) by name as bytes."""
    out = bytearray(struct.pack("<QQ", _LIST_MAGIC, 0))
    out += struct.pack("<Q", len(params))
    for name in params:
        encoded = str(name).encode()
        out += struct.pack("<Q", len(encoded)) + encoded
    out += struct.pack("<Q", len(params))
    for value in params.values():
        _save_tensor(value if isinstance(value, Tensor) else tensor(np.asarray(value)), out)
    return out


def _save_tensor(value: Tensor, out: bytearray) -> None:
    dtype = value.dtype
    data = np.ascontiguousarray(value.numpy()).tobytes()
    out += struct.pack("<QQiii", _TENSOR_MAGIC, 0, _CPU, 0, len(value.shape))
    out += struct.pack("<BBH", int(dtype.type_code), int(dtype.bits), int(dtype.lanes))
    out += struct.pack(f"<{len(value.shape)}q", *(int(n) for n in value.shape))
    out += struct.pack("<q", len(data)) + data


def save_param_dict_to_file(params: Mapping[str, Any], path: Any) -> None:
    """Writes what `save_param_dict` gives; a file that is there is replaced when all of it is written."""
    from pathlib import Path

    target = Path(path)
    part = target.with_name(target.name + ".part")
    part.write_bytes(save_param_dict(params))
    part.replace(target)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = memoryview(data), 0

    def take(self, layout: str) -> tuple[Any, ...]:
        return struct.unpack("<" + layout, self.bytes(struct.calcsize("<" + layout)))

    def number(self, layout: str, least: int, most: int, what: str) -> int:
        value = self.take(layout)[0]
        if not least <= value <= most:
            self.fail(f"{what} is {value}")
        return int(value)

    def bytes(self, count: int) -> memoryview:
        if count > len(self.data) - self.at:
            self.fail(f"{count} bytes are wanted and {len(self.data) - self.at} are left")
        self.at += count
        return self.data[self.at - count : self.at]

    def fail(self, what: str) -> None:
        raise ValueError(f"the saved parameters are damaged at byte {self.at}: {what}")


def load_param_dict(param_bytes: bytes | bytearray) -> dict[str, Tensor]:
    """Tensors by name from what `save_param_dict` gave.  Raises ValueError for anything else."""
    reader = _Reader(bytes(param_bytes))
    if reader.take("QQ")[0] != _LIST_MAGIC:
        raise ValueError("these are no saved parameters: they begin with another number")
    limit = len(reader.data)
    names = []
    for _ in range(reader.number("Q", 0, limit, "the number of names")):
        length = reader.number("Q", 0, limit, "the length of a name")
        try:
            names.append(str(reader.bytes(length), "utf-8"))
        except UnicodeDecodeError:
            reader.fail("a name is no UTF-8")
    reader.number("Q", len(names), len(names), "the number of tensors")
    return {name: _load_tensor(reader) for name in names}


def _load_tensor(reader: _Reader) -> Tensor:
    magic, _, _, _ = reader.take("QQii")
    if magic != _TENSOR_MAGIC:
        reader.fail("no tensor begins here")
    rank = reader.number("i", 0, 64, "the rank of a tensor")
    code, bits, lanes = reader.take("BBH")
    shape = [reader.number("q", 0, 2**62, "an extent") for _ in range(rank)]
    try:
        dtype = tvm_ffi.dtype.from_dlpack_data_type((code, bits, lanes))
    except (TypeError, ValueError):
        reader.fail(f"there is no element type of kind {code} with {bits} bits")
    size = (math.prod(shape) * bits * lanes + 7) // 8
    data = reader.bytes(reader.number("q", size, size, "the size of a tensor in bytes"))
    value = empty(tuple(shape), str(dtype), cpu())
    if size:
        value.copyfrom(np.frombuffer(data, _numpy_dtype(str(dtype))).reshape(shape))
    return value


def load_param_dict_from_file(path: Any) -> dict[str, Tensor]:
    """Tensors by name from a file that `save_param_dict_to_file` wrote.  Raises ValueError for any other file."""
    from pathlib import Path

    return load_param_dict(Path(path).read_bytes())
