# SPDX-License-Identifier: Apache-2.0
"""Tensor programs and packed functions of one's own in a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from relaxvm import tirx
from relaxvm.ir.expr import Expr
from relaxvm.relax import op
from relaxvm.relax.expr import ShapeExpr, StringImm, prim_value
from relaxvm.tirx import PrimFunc

from ..subroutine import module_builder
from ..tensor import Object, Tensor, bind, expr_of, wrap_nested

Out = TypeVar("Out")


def tensor_expr_op(
    tensor_expr_func: Callable[..., Any],
    name_hint: str,
    args: list[Tensor | Expr | int],
    *,
    attrs: dict[str, Any] | None = None,
) -> Any:
    """What a function of tensor expressions (te.compute) describes; `attrs` go to the tensor program."""
    values = [a._expr if isinstance(a, Tensor) else a for a in args]
    call = module_builder().call_te(
        tensor_expr_func, *values, primfunc_name_hint=name_hint, primfunc_attrs=attrs
    )
    return wrap_nested(bind(call), name_hint)


def tensor_ir_op(
    func: PrimFunc,
    name_hint: str,
    args: Tensor | Sequence[Tensor | ShapeExpr | Expr | int],
    out: Out,
) -> Out:
    """Calls a tensor program on fresh results with the types of `out` (a tensor, or a list of them)."""
    gvar = module_builder().add_func(func, _symbol(func, name_hint))
    values, sizes = _program_arguments(args)
    call = op.call_tir(gvar, values, out_ty=_types(out), tir_vars=sizes)
    return wrap_nested(bind(call), name_hint)


def tensor_ir_inplace_op(
    func: PrimFunc,
    name_hint: str,
    args: Tensor | Sequence[Tensor | ShapeExpr | Expr | int],
    inplace_indices: int | list[int],
    out: Out,
) -> Out:
    """Like tensor_ir_op; results overwrite the arguments at `inplace_indices` (-1: a fresh result)."""
    gvar = module_builder().add_func(func, _symbol(func, name_hint))
    values, sizes = _program_arguments(args)
    call = op.call_tir_inplace(
        gvar, values, inplace_indices=inplace_indices, out_ty=_types(out), tir_vars=sizes
    )
    return wrap_nested(bind(call), name_hint)


def extern(name: str, args: Sequence[Tensor | Object | Expr | int | float | str], out: Out) -> Out:
    """Calls a packed function by name; it fills results with the types of `out`."""
    values = [_packed_argument(a) for a in args]
    return wrap_nested(op.call_dps_packed(name, values, out_ty=_types(out)), name)


def _symbol(func: PrimFunc, name_hint: str) -> str:
    """A program that has a name of its own keeps it."""
    return str((func.attrs or {}).get("global_symbol", name_hint))


def _types(out: Any) -> Any:
    if isinstance(out, Tensor):
        return expr_of(out).ty
    if isinstance(out, (list, tuple)):
        return [_types(o) for o in out]
    raise TypeError(f"out is an nn.Tensor or a list of them, not {type(out).__name__}")


def _program_arguments(args: Any) -> tuple[list[Expr], ShapeExpr | None]:
    given = [args] if isinstance(args, (Tensor, Expr)) else list(args)
    sizes = None
    if given and isinstance(given[-1], ShapeExpr):
        sizes = given.pop()
    values = []
    for arg in given:
        if isinstance(arg, Tensor):
            values.append(arg._expr)
        elif isinstance(arg, (int, Expr)) and not isinstance(arg, ShapeExpr):
            values.append(prim_value(arg))
        else:
            raise TypeError(
                "a tensor program takes tensors and scalars, and sizes as a ShapeExpr at the end, not"
                f" {type(arg).__name__}"
            )
    return values, sizes


def _packed_argument(value: Any) -> Expr:
    if isinstance(value, (Tensor, Object)):
        return value._expr
    if isinstance(value, str):
        return StringImm(value)
    if isinstance(value, float):
        return tirx.const(value, "float64")
    if isinstance(value, (list, tuple)):
        return ShapeExpr(list(value))
    if isinstance(value, (int, Expr)):
        return value if isinstance(value, Expr) else prim_value(value)
    raise TypeError(f"a packed function cannot take {type(value).__name__} in a model")
