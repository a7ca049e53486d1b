# SPDX-License-Identifier: Apache-2.0
"""Calls of functions by name, in formulas and statements of tensor programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm_ffi

from .. import _compiler
from ..ir.attrs import Attrs
from ..ir.base import plain
from ..ir.expr import Call, Expr
from ..ir.type import PrimType
from ..relax.expr import ExternFunc, StringImm
from .expr import Intrin


def _dtype_text(dtype: Any) -> str:
    """An element type given as text, as a type, or as what T.float32 is."""
    name = getattr(dtype, "name", None)
    return name if isinstance(name, str) else str(getattr(plain(dtype), "dtype", dtype))


def call_intrin(dtype: Any, name: Any, *args: Any) -> Expr:
    """A scalar function by name, with a stated dtype."""
    text = str(name).removeprefix("tirx.")
    return Intrin(text, args, _dtype_text(dtype))


def _call_args(args: Sequence[Any]) -> list[Expr]:
    to_scalar = _compiler.func("prim.ToScalar")
    values = [plain(a) for a in args]
    return [
        StringImm(v) if isinstance(v, str) else to_scalar(v, tvm_ffi.dtype("int32")) for v in values
    ]


def _typed_call(name: str, args: Sequence[Any], dtype: str, attrs: Any) -> Call:
    call = Call(ExternFunc(name), _call_args(args), attrs)
    call._update_type(PrimType(dtype))
    return call


def call_packed(name: str, *args: Any) -> Call:
    """Calls a packed function."""
    return _typed_call(name, args, "int32", None)


def call_extern(dtype: Any, name: str, *args: Any) -> Call:
    """Calls a C function that is linked in."""
    return _typed_call(name, args, _dtype_text(dtype), Attrs({"extern": True}))


call_pure_extern = call_extern
