# SPDX-License-Identifier: Apache-2.0
"""Buffers: variables of tensor programs that stand for memory with a shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm_ffi
from tvm_ffi import Object

from .. import _compiler
from ..ir.base import Scriptable, plain
from ..ir.expr import Expr, Range, Var
from ..ir.type import Type

_type = _compiler.func("tirx.BufferType")
_load = _compiler.func("tirx.BufferLoad")
_region = _compiler.func("tirx.BufferRegion")
_extent = _compiler.func("script.ExtentBetween")


@tvm_ffi.register_object("relaxvm.tirx.BufferType")
class BufferType(Type):
    def __init__(
        self,
        dtype: Any,
        shape: Sequence[Any],
        storage_scope: str = "global",
        strides: Sequence[Any] = (),
        elem_offset: Any = None,
        data_alignment: int = 64,
    ) -> None:
        dims = [shape] if isinstance(shape, (int, Expr)) else list(shape)
        self.__init_handle_by_constructor__(
            _type,
            tvm_ffi.dtype(str(plain(dtype))),
            [plain(d) for d in dims],
            storage_scope,
            [plain(s) for s in strides],
            plain(elem_offset),
            data_alignment,
        )


def is_buffer(value: Any) -> bool:
    return isinstance(value, Var) and isinstance(value.ty, BufferType)


is_buffer_var = is_buffer


class _BufferClass(type):
    """isinstance(v, Buffer) asks for the type of the variable."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return is_buffer(instance)


class Buffer(metaclass=_BufferClass):
    """A variable whose type is a BufferType; `decl_buffer` makes one."""


def decl_buffer(
    shape: Any,
    dtype: Any = "float32",
    name: str = "buffer",
    data: Any = None,
    strides: Any = None,
    elem_offset: Any = None,
    scope: str = "",
    data_alignment: int = -1,
    offset_factor: int = 0,
    **_other: Any,
) -> Var:
    """A buffer."""
    alignment = data_alignment if data_alignment and data_alignment > 0 else 64
    return Var(
        name, BufferType(dtype, shape, scope or "global", strides or (), elem_offset, alignment)
    )


@tvm_ffi.register_object("relaxvm.tirx.BufferLoad")
class BufferLoad(Expr):
    def __init__(
        self, buffer: Var, indices: Sequence[Any], predicate: Any = None, span: Any = None
    ) -> None:
        self.__init_handle_by_constructor__(
            _load, buffer, [plain(i) for i in indices], plain(predicate)
        )


@tvm_ffi.register_object("relaxvm.tirx.BufferRegion")
class BufferRegion(Scriptable, Object):
    """buffer[min : min + extent] in each dimension."""

    def __init__(self, buffer: Var, region: Sequence[Any]) -> None:
        ranges = [r if isinstance(r, Range) else Range(r, extent=1) for r in region]
        self.__init_handle_by_constructor__(
            _region, buffer, [plain(r.min) for r in ranges], [plain(r.extent) for r in ranges]
        )

    @property
    def region(self) -> list[Range]:
        return [Range(m, extent=e) for m, e in zip(self.mins, self.extents)]


def as_indices(index: Any) -> list[Any]:
    return list(index) if isinstance(index, (tuple, list)) else [index]


def region_of(buffer: Var, index: Any) -> BufferRegion:
    """buffer[a:b, i]: a slice is a range, a single index a range of one."""
    mins, extents = [], []
    for axis, item in enumerate(as_indices(index)):
        if isinstance(item, slice):
            start = 0 if item.start is None else plain(item.start)
            stop = buffer.ty.shape[axis] if item.stop is None else plain(item.stop)
            mins.append(start)
            extents.append(_extent(start, stop))
        else:
            item = plain(item)
            mins.append(item)
            one = 1 if isinstance(item, int) else _compiler.func("prim.Const")(item.ty.dtype, 1)
            extents.append(one)
    return _region(buffer, mins, extents)


def load(buffer: Var, index: Any) -> Any:
    """buffer[i, j] as a value, or as a region when an index is a slice."""
    indices = as_indices(index)
    if any(isinstance(i, slice) for i in indices):
        return region_of(buffer, indices)
    if len(indices) != len(buffer.ty.shape):
        raise IndexError(
            f"buffer {buffer.name} has {len(buffer.ty.shape)} dimensions and is indexed with {len(indices)}"
        )
    return _load(buffer, [plain(i) for i in indices], None)


def _vload(buffer: Var) -> Any:
    def vload(indices: Any, dtype: Any = None, predicate: Any = None) -> Expr:
        return _load(buffer, [plain(i) for i in as_indices(indices)], plain(predicate))

    return vload


def _vstore(buffer: Var) -> Any:
    def vstore(indices: Any, value: Any, predicate: Any = None) -> Any:
        from .stmt import BufferStore

        return BufferStore(buffer, value, as_indices(indices), predicate)

    return vstore


def _access_region(buffer: Var) -> Any:
    return lambda: _region(buffer, [0] * len(buffer.ty.shape), list(buffer.ty.shape))


_ATTRIBUTES = {
    "shape": lambda b: b.ty.shape,
    "strides": lambda b: b.ty.strides,
    "elem_offset": lambda b: b.ty.elem_offset,
    "data_alignment": lambda b: b.ty.data_alignment,
    "scope": lambda b: lambda: str(b.ty.storage_scope),
    "data": lambda b: b,
    "vload": _vload,
    "vstore": _vstore,
    "full_region": _access_region,
}


def buffer_attribute(var: Var, name: str) -> Any:
    """What a buffer variable answers for its type."""
    if name in _ATTRIBUTES and isinstance(var.ty, BufferType):
        return _ATTRIBUTES[name](var)
    raise AttributeError(f"a variable has no attribute {name}")
