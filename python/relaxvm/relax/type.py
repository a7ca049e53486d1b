# SPDX-License-Identifier: Apache-2.0
"""Types of the graph language."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm_ffi

from .. import _compiler
from ..ir.base import plain
from ..ir.expr import Expr
from ..ir.type import FuncType, PrimType, TupleType, Type

_any = _compiler.func("ir.AnyType")
_nothing = _compiler.func("ir.NothingType")
_type_param = _compiler.func("ir.TypeParam")
_adt = _compiler.func("ir.AdtType")
_shape = _compiler.func("ir.ShapeType")
_tensor = _compiler.func("ir.TensorType")
_func_type = _compiler.func("ir.FuncType")
_shape_expr = _compiler.func("ir.ShapeExpr")


@tvm_ffi.register_object("relaxvm.relax.AnyType")
class AnyType(Type):
    """R.Any: any value at all."""

    def __init__(self, span: Any = None) -> None:
        self.__init_handle_by_constructor__(_any)


ObjectType = AnyType


@tvm_ffi.register_object("relaxvm.relax.ShapeType")
class ShapeType(Type):
    """R.Shape: a tuple of integers; `values` None when they are unknown."""

    def __init__(
        self, values: Sequence[Any] | None = None, ndim: int = -1, span: Any = None
    ) -> None:
        dims = None if values is None else [plain(v) for v in values]
        self.__init_handle_by_constructor__(_shape, dims, ndim)


def dtype_of(dtype: Any) -> Any:
    """A dtype for C++ from a name, a scalar type or None (unknown)."""
    dtype = plain(dtype)
    if isinstance(dtype, PrimType):
        return dtype.dtype
    if dtype is None or dtype in ("", "void"):
        return tvm_ffi.dtype("void")
    return tvm_ffi.dtype(str(dtype))


@tvm_ffi.register_object("relaxvm.relax.TensorType")
class TensorType(Type):
    """R.Tensor: shape (an expression, dimensions or None), dtype (None: unknown), device, rank (-1: unknown)."""

    def __init__(
        self,
        shape: Any = None,
        dtype: Any = "float32",
        vdevice: Any = None,
        ndim: int = -1,
        span: Any = None,
    ) -> None:
        shape = plain(shape)
        if shape is not None and not isinstance(shape, Expr):
            shape = _shape_expr([plain(d) for d in shape], None)
        if isinstance(vdevice, str):
            from ..ir.devices import lookup_vdevice_text

            vdevice = lookup_vdevice_text(vdevice)
        self.__init_handle_by_constructor__(_tensor, shape, dtype_of(dtype), vdevice, ndim)

    @property
    def dtype(self) -> Any:
        """The element type; None when it is unknown."""
        dtype = self._dtype
        return None if dtype.bits == 0 else dtype


@tvm_ffi.register_object("relaxvm.relax.NothingType")
class NothingType(Type):
    """R.Nothing: the type of what gives no value; it fits every type."""

    def __init__(self) -> None:
        self.__init_handle_by_constructor__(_nothing)


@tvm_ffi.register_object("relaxvm.relax.TypeParam")
class TypeParam(Type):
    """A parameter of a data type, inside of its definition."""

    def __init__(self, name: str) -> None:
        self.__init_handle_by_constructor__(_type_param, name)


@tvm_ffi.register_object("relaxvm.relax.AdtType")
class AdtType(Type):
    """A data type by name, with a type for each of its parameters."""

    def __init__(self, name: str, args: Sequence[Any] = ()) -> None:
        self.__init_handle_by_constructor__(_adt, name, [plain(a) for a in args])


class PackedFuncType(FuncType):
    """The type of a packed function of which nothing more is known: it takes and gives anything."""

    def __init__(self, span: Any = None) -> None:
        self.__init_handle_by_constructor__(_func_type, None, AnyType(), False)


__all__ = [
    "AdtType",
    "AnyType",
    "FuncType",
    "NothingType",
    "ObjectType",
    "PackedFuncType",
    "ShapeType",
    "TensorType",
    "TupleType",
    "TypeParam",
]
