# SPDX-License-Identifier: Apache-2.0
"""Relations between types."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any

from ... import _compiler
from ...ir.base import plain, structural_equal
from ...ir.expr import Call, Expr, IntImm, Var
from ...ir.type import FuncType, TupleType, Type
from ..expr import ShapeExpr, prim_value
from ..type import ShapeType, TensorType

_fit = _compiler.func("analysis.type_fit")
_lca = _compiler.func("analysis.type_lca")
_erase = _compiler.func("analysis.erase_to_visible")
_result = _compiler.func("analysis.call_result_type")
_vars = _compiler.func("analysis.tir_vars_in_type")
_definable = _compiler.func("analysis.definable_tir_vars_in_type")
_substitute = _compiler.func("ir.Substitute")
_NEVER, _CHECK, _ALWAYS = range(3)


class BaseCheckResult(IntEnum):
    """How a type relates to one that a value is expected to have."""

    FAIL_L0 = 0  # never fits
    FAIL_L1 = 1  # what is known without shapes does not show that it fits
    FAIL_L2 = 2  # only its shapes do not show that it fits
    PASS = 3


def get_static_type(ty: Any) -> Type:
    """The type without sizes: ranks and dtypes stay."""
    ty = plain(ty)
    if isinstance(ty, TensorType):
        return TensorType(None, ty.dtype, ty.vdevice, ty.ndim)
    if isinstance(ty, ShapeType):
        return ShapeType(ndim=ty.ndim)
    if isinstance(ty, TupleType):
        return TupleType([get_static_type(f) for f in ty.fields])
    if isinstance(ty, FuncType):
        params = None if ty.params is None else [get_static_type(p) for p in ty.params]
        return FuncType(params, get_static_type(ty.ret), ty.purity)
    return ty


def type_base_check(base: Any, derived: Any) -> BaseCheckResult:
    """Does a value of type `derived` fit where `base` is expected?"""
    base, derived = plain(base), plain(derived)
    fit = _fit(base, derived)
    if fit == _ALWAYS:
        return BaseCheckResult.PASS
    if fit == _NEVER:
        return BaseCheckResult.FAIL_L0
    static = _fit(get_static_type(base), get_static_type(derived))
    return BaseCheckResult.FAIL_L2 if static == _ALWAYS else BaseCheckResult.FAIL_L1


def type_lca(lhs: Any, rhs: Any) -> Type:
    """The least type that both are."""
    return _lca(plain(lhs), plain(rhs))


def tir_vars_in_type(ty: Any) -> list[Var]:
    """Symbolic variables in a type, in order of appearance."""
    return _through_functions(plain(ty), _vars)


def definable_tir_vars_in_type(ty: Any) -> list[Var]:
    """Symbolic variables that stand alone in a dimension."""
    return _through_functions(plain(ty), _definable)


def _through_functions(ty: Type, collect: Any) -> list[Var]:
    """Also what a function's own type binds."""
    if not isinstance(ty, FuncType):
        return list(collect(ty))
    found: dict[Var, None] = {}
    for part in [*(ty.params or ()), ty.ret]:
        found.update(dict.fromkeys(_through_functions(part, collect)))
    return list(found)


def erase_to_well_defined(
    ty: Any,
    shape_var_map: Mapping[Var, Expr] | None = None,
    var_map: Mapping[Var, Expr] | None = None,
) -> Type:
    """The type in terms of what the maps give; what they do not know is forgotten."""
    known = {
        var: prim_value(plain(value))
        for var, value in {**(shape_var_map or {}), **(var_map or {})}.items()
    }
    return _substitute(_erase(plain(ty), list(known)), known)


def derive_call_ret_type(func_ty: FuncType, call: Call, ctx: Any = None) -> Type:
    """What calling a function of type `func_ty` gives."""
    return _result(plain(func_ty), call)


def collect_non_negative_expressions(ty: Any) -> list[Expr]:
    """Dimensions in a type, each once: none of them is negative. Constants say nothing."""
    found: list[Expr] = []

    def take(values: Any) -> None:
        for v in values:
            if not isinstance(v, IntImm) and not any(structural_equal(v, f) for f in found):
                found.append(v)

    def visit(part: Any) -> None:
        if isinstance(part, TensorType) and isinstance(part.shape, ShapeExpr):
            take(part.shape.values)
        elif isinstance(part, ShapeType) and part.values is not None:
            take(part.values)
        elif isinstance(part, TupleType):
            for f in part.fields:
                visit(f)
        elif isinstance(part, FuncType):
            for p in part.params or ():
                visit(p)
            visit(part.ret)

    visit(plain(ty))
    return found
