# SPDX-License-Identifier: Apache-2.0
"""Types that both languages have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm_ffi
from tvm_ffi import Object

from .. import _compiler
from .base import Scriptable, plain, structural_equal

_prim = _compiler.func("ir.PrimType")
_tuple = _compiler.func("ir.TupleType")
_func = _compiler.func("ir.FuncType")
_pointer = _compiler.func("ir.PointerType")


@tvm_ffi.register_object("relaxvm.ir.Type")
class Type(Scriptable, Object):
    """Base of all types; equal types compare equal with `==`."""

    def __eq__(self, other: object) -> bool:
        other = plain(other)
        return isinstance(other, Type) and structural_equal(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return Object.__hash__(self)

    def is_base_of(self, derived: Type) -> bool:
        """Is every value of type `derived` also of this type?"""
        return _compiler.func("analysis.type_fit")(self, plain(derived)) == 2

    @staticmethod
    def missing() -> None:
        """The type of what is not inferred yet."""
        return None


@tvm_ffi.register_object("relaxvm.ir.PrimType")
class PrimType(Type):
    """A scalar.  Calling it gives a variable, or an immediate: `T.int64()`, `T.int64(3)`."""

    def __init__(self, dtype: Any) -> None:
        self.__init_handle_by_constructor__(_prim, tvm_ffi.dtype(str(dtype)))


@tvm_ffi.register_object("relaxvm.ir.TupleType")
class TupleType(Type):
    def __init__(self, fields: Sequence[Any], span: Any = None) -> None:
        self.__init_handle_by_constructor__(_tuple, [plain(f) for f in fields])


@tvm_ffi.register_object("relaxvm.ir.PointerType")
class PointerType(Type):
    def __init__(self, element_type: Any, storage_scope: str = "global") -> None:
        self.__init_handle_by_constructor__(_pointer, plain(element_type), storage_scope)


@tvm_ffi.register_object("relaxvm.relax.FuncType")
class FuncType(Type):
    """R.Callable; `params` None is a function that takes anything."""

    def __init__(
        self, params: Sequence[Any] | None, ret: Any = None, purity: bool = True, span: Any = None
    ) -> None:
        types = None if params is None else [plain(p) for p in params]
        ret = TupleType([]) if ret is None else plain(ret)
        self.__init_handle_by_constructor__(_func, types, ret, purity)

    @staticmethod
    def opaque_func(
        *, ret: Any = None, derive_func: Any = None, purity: bool = False, span: Any = None
    ) -> FuncType:
        """A function of unknown parameters."""
        from ..relax.type import AnyType

        if derive_func is not None:
            raise NotImplementedError(
                "derive_func is not supported; state the result's type at the call"
            )
        return FuncType(None, AnyType() if ret is None else ret, purity)
