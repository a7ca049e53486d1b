# SPDX-License-Identifier: Apache-2.0
"""Looking into a running model; needs export_tvm(..., debug=True)."""

from __future__ import annotations

import sys
from typing import Any

from relaxvm.ir.expr import Expr
from relaxvm.relax import op
from relaxvm.relax.expr import StringImm, prim_value
from relaxvm.relax.type import AnyType

from ..subroutine import in_subroutine
from ..tensor import Tensor, bind, expr_of


def debug_func(
    name: str, *args: Tensor | Expr | int | float | str, _line_info: str | None = None
) -> None:
    """Calls a packed function as `name(line, *args)` whenever the model comes here; `line` is "file:number"."""
    from ..exporter import Exporter

    effect = Exporter.current().io_effect
    if effect is None:
        raise RuntimeError(f"{name}: debug functions need export_tvm(..., debug=True)")
    if in_subroutine():
        raise RuntimeError(f"{name}: a module with define_subroutine cannot call debug functions")
    line = _line_info or _caller_line()
    call = op.call_pure_packed(
        "vm.builtin.invoke_debug_func",
        effect.current(),
        StringImm(name),
        StringImm(line),
        *(_argument(a) for a in args),
        ty_args=AnyType(),
    )
    effect.set_state([bind(call, effect.current().name)])


def print_(tensor: Tensor) -> None:
    """Prints the line, and shape, element type and values of a tensor."""
    debug_func("vm.builtin.debug_print", tensor, _line_info=_caller_line())


def _argument(value: Any) -> Expr:
    if isinstance(value, Tensor):
        return expr_of(value)
    if isinstance(value, str):
        return StringImm(value)
    return prim_value(value)


def _caller_line() -> str:
    frame = sys._getframe(2)
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
