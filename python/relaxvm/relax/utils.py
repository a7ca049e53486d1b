# SPDX-License-Identifier: Apache-2.0
"""Conversions and copies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import _compiler
from ..ir.expr import Expr
from ..tirx.function import PrimFunc
from .expr import Function, ShapeExpr, Tuple, to_expr

convert_to_expr = to_expr


def copy_with_new_vars(func: Function) -> Function:
    """A copy with fresh variables throughout, symbolic sizes included."""
    return _compiler.func("relax.CopyWithFreshVars")(func)


def gen_call_tir_inputs(
    func: Callable[..., Any], *args: Any, **kwargs: Any
) -> tuple[PrimFunc, Tuple, Any, ShapeExpr | None]:
    """What call_tir takes for a function of tensors (see BlockBuilder.call_te): the tensor program, its arguments, the
    type of its result or a list of them, and the sizes that no argument's shape gives."""
    from ..te.graph import gen_call_tir_inputs as generate

    program, values, out_ty, sizes, _ = generate(func, args, dict(kwargs))
    fields: list[Expr] = list(values)
    return program, Tuple(fields), out_ty, ShapeExpr(sizes) if sizes else None


__all__ = ["convert_to_expr", "copy_with_new_vars", "gen_call_tir_inputs"]
