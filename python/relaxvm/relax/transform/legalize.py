# SPDX-License-Identifier: Apache-2.0
"""LegalizeOps with rules of the caller's own."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ...ir.expr import Call, Op
from ...ir.module import IRModule
from ...ir.op import legalize_rule
from ...transform.passes import BuiltinPass, PassContext
from ..analysis import post_order_visit
from ..expr import Function

logger = logging.getLogger("relaxvm.legalize")


class _Legalize(BuiltinPass):
    """LegalizeOps that names the operators which it has no rule for."""

    def run(self, mod: IRModule, context: PassContext) -> IRModule:
        mod = super().run(mod, context)
        for name in sorted(_operators(mod)):
            logger.warning("LegalizeOps: %s has no rule and stays as it is", name)
        return mod


def _operators(mod: IRModule) -> set[str]:
    found: set[str] = set()

    def visit(expr: Any) -> None:
        if isinstance(expr, Call) and isinstance(expr.op, Op):
            found.add(str(expr.op.name))

    for function in mod.functions.values():
        if isinstance(function, Function):
            post_order_visit(function, visit)
    calls = ("relax.call_", "relax.memory.", "relax.vm.", "relax.builtin.", "relax.invoke_")
    return {name for name in found if not name.startswith(calls)}


def legalize_ops(make: Callable[..., BuiltinPass]) -> Callable[..., BuiltinPass]:
    """The factory of the pass, for rules given as functions of a builder and a call."""

    def LegalizeOps(
        customize_legalize_map: Mapping[str, Callable[[Any, Call], Any]] | None = None,
        skip_ops: Iterable[str | Op] | None = None,
        enable_warning: bool = False,
    ) -> BuiltinPass:
        rules = {
            name: legalize_rule(rule) for name, rule in dict(customize_legalize_map or {}).items()
        }
        names = [op if isinstance(op, str) else str(op.name) for op in skip_ops or ()]
        made = make(rules, names, enable_warning)
        return _Legalize(made.info.name, made.options) if enable_warning else made

    LegalizeOps.__doc__ = make.__doc__
    LegalizeOps.__module__ = "relaxvm.relax.transform"
    LegalizeOps.__qualname__ = "LegalizeOps"
    return LegalizeOps
