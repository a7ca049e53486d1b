# SPDX-License-Identifier: Apache-2.0
"""A pass over some functions of a module."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ..ir.base import structural_equal
from ..ir.expr import BaseFunc, GlobalVar
from ..ir.module import IRModule
from .passes import Pass, PassContext, PassInfo

_SYMBOL = "global_symbol"


class ApplyPassToFunction(Pass):
    """Runs a pass on the functions whose names begin with what `func_name_regex` matches; the others stay as they are.

    While the pass runs every function is exported, so that none is removed, inlined or given another signature.
    Functions that it adds for the matched ones are added to the module.  ValueError when no name matches and
    `error_if_no_function_matches_regex` is set.
    """

    def __init__(
        self,
        transform: Pass,
        func_name_regex: str,
        error_if_no_function_matches_regex: bool = False,
    ) -> None:
        self.transform, self.pattern = transform, re.compile(func_name_regex)
        self.must_match = error_if_no_function_matches_regex
        self.info = PassInfo(0, f"ApplyPassTo[{func_name_regex}]")

    def run(self, mod: IRModule, context: PassContext) -> IRModule:
        names = {v.name_hint for v in mod.functions if self.pattern.match(v.name_hint)}
        if not names:
            if self.must_match:
                known = ", ".join(v.name_hint for v in mod.functions)
                raise ValueError(
                    f"no function of the module matches {self.pattern.pattern!r}; there are {known}"
                )
            return mod
        after = self.transform(_exported(mod))
        functions = _by_name(after)
        before = _by_name(mod)
        kept = {name: functions[name][1] for name in names if name in functions}
        added = {name: f for name, (_, f) in functions.items() if name not in before}
        result = dict(mod.functions.items())
        for name, function in kept.items():
            result[before[name][0]] = _as_before(function, before[name][1])
        for name in sorted(_reachable(kept, added)):
            result[functions[name][0]] = functions[name][1]
        infos = {**mod.global_infos, **after.global_infos}
        return IRModule(result, attrs=mod.attrs, global_infos=infos)


def _by_name(mod: IRModule) -> dict[str, tuple[GlobalVar, BaseFunc]]:
    return {var.name_hint: (var, function) for var, function in mod.functions.items()}


def _exported(mod: IRModule) -> IRModule:
    functions = {
        var: f if _SYMBOL in f.attrs else f.with_attr(_SYMBOL, var.name_hint)
        for var, f in mod.functions.items()
    }
    return IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)


def _as_before(function: BaseFunc, original: BaseFunc) -> BaseFunc:
    """Private again if it was; the very same when nothing else changed."""
    if _SYMBOL not in original.attrs:
        function = function.without_attr(_SYMBOL)
    return original if structural_equal(function, original) else function


def _reachable(start: Mapping[str, BaseFunc], added: Mapping[str, BaseFunc]) -> set[str]:
    """Names of those among `added` that the functions of `start` name, directly or through others of them."""
    found: set[str] = set()
    todo = list(start.values())
    while todo:
        for name in (_named_in(todo.pop()) & added.keys()) - found:
            found.add(name)
            todo.append(added[name])
    return found


def _named_in(function: BaseFunc) -> set[str]:
    from ..relax.analysis import post_order_visit
    from ..relax.expr import Function
    from ..tirx.function import PrimFunc
    from ..tirx.stmt_functor import post_order_visit as visit_program

    names: set[str] = set()

    def note(part: Any) -> None:
        if isinstance(part, GlobalVar):
            names.add(part.name_hint)

    if isinstance(function, Function):
        post_order_visit(function, note)
    elif isinstance(function, PrimFunc):
        visit_program(function, note)
    return names
