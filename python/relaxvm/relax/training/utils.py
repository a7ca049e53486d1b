# SPDX-License-Identifier: Apache-2.0
"""The pass that appends a loss, and gradients of tensor programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import relaxvm

from ...ir.expr import Expr
from ...te.graph import gen_call_tir_inputs
from ..transform import AppendLoss  # type: ignore[attr-defined]

__all__ = ["AppendLoss", "register_te_gradient"]

_PREFIX = "relaxvm.relax.te_gradient."


def register_te_gradient(te_grad_name: str, te_grad_func: Callable[..., Any] | None = None) -> Any:
    """Gives the gradient of tensor programs a name, for `call_tir_with_grad(..., te_grad_name=...)`.

    `te_grad_func(output_grad, *arguments, **te_grad_kwargs)` takes tensors of `relaxvm.te` and gives the
    gradients of all arguments: one tensor, or a list. `output_grad` is a list when the program has
    several results. Without a function it is a decorator. Raises RuntimeError when the name is taken."""

    def register(func: Callable[..., Any]) -> Callable[..., Any]:
        name = _PREFIX + te_grad_name
        if relaxvm.get_global_func(name, allow_missing=True) is not None:
            raise RuntimeError(f"there is a gradient called {te_grad_name!r} already")

        def gradient(grad: Expr, args: Any, options: Mapping[str, Any]) -> list[Any]:
            program, values, out_ty, sizes, _ = gen_call_tir_inputs(
                func, (grad, *args), dict(options)
            )
            out_ty = relaxvm.relax.TupleType(out_ty) if isinstance(out_ty, list) else out_ty
            return [program, values, out_ty, sizes]

        relaxvm.register_global_func(name, gradient)
        return func

    return register if te_grad_func is None else register(te_grad_func)
