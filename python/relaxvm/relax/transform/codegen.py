# SPDX-License-Identifier: Apache-2.0
"""RunCodegen: functions that an external code generator takes become calls of what it made of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..._registry import get_global_func
from ...ir.expr import Call, GlobalVar
from ...ir.module import IRModule
from ...transform import Pass, module_pass
from ..analysis import post_order_visit
from ..expr import Constant, ExternFunc, Function
from ..expr_functor import PyExprMutator, mutator
from ..op import call_dps_packed
from .extern import EXTERNAL_MODULES

CONSTANTS = "const_name_to_constant"


def _codegen(function: Any) -> str | None:
    name = function.attrs.get("Codegen") if isinstance(function, Function) else None
    return None if name is None else str(name)


def _constants(function: Function) -> list[Constant]:
    found: list[Constant] = []

    def visit(expr: Any) -> None:
        if isinstance(expr, Constant) and not any(expr.same_as(c) for c in found):
            found.append(expr)

    post_order_visit(function, visit)
    return found


@mutator
class _Caller(PyExprMutator):  # type: ignore[misc]
    """Calls of generated code in place of calls of functions."""

    def __init__(self, mod: IRModule, symbols: Mapping[str, str]) -> None:
        super().__init__(mod)
        self.symbols = symbols

    def visit_call_(self, call: Call) -> Any:
        visited: Any = self.visit_expr_post_order(call)
        callee = visited.op
        symbol = self.symbols.get(str(callee.name_hint)) if isinstance(callee, GlobalVar) else None
        if symbol is None:
            return visited
        return call_dps_packed(ExternFunc(symbol), list(visited.args), out_ty=visited.ty)


def _reached(mod: IRModule, entries: Sequence[str]) -> set[str]:
    todo, seen = list(entries), set(entries)

    def visit(expr: Any) -> None:
        if isinstance(expr, GlobalVar) and str(expr.name_hint) not in seen:
            seen.add(str(expr.name_hint))
            todo.append(str(expr.name_hint))

    while todo:
        function = mod[todo.pop()]
        if isinstance(function, Function):
            post_order_visit(function, visit)
    return seen


def RunCodegen(
    target_options: Mapping[str, Any] | None = None, entry_functions: Sequence[str] | None = None
) -> Pass:
    """Hands the functions with attribute "Codegen", all or those that `entry_functions` reach, to the function
    relax.ext.<code generator>(functions, options, names of constants), which gives runtime modules; calls of them
    become call_dps_packed of the functions' names.  The modules are kept as attribute `external_mods`, the constants as
    `const_name_to_constant`.  ValueError when the code generator is not registered."""
    options = dict(target_options or {})

    @module_pass(opt_level=0, name="RunCodegen")
    def run(mod: IRModule, context: Any) -> IRModule:
        reached = None if entry_functions is None else _reached(mod, entry_functions)
        groups: dict[str, list[Function]] = {}
        symbols: dict[str, str] = {}
        for var, function in mod.functions.items():
            name, codegen = str(var.name_hint), _codegen(function)
            if codegen is None or (reached is not None and name not in reached):
                continue
            groups.setdefault(codegen, []).append(function)
            symbols[name] = str(function.attrs.get("global_symbol", name))
        if not groups:
            return mod
        made = list(mod.get_attr(EXTERNAL_MODULES) or [])
        constants = dict(mod.get_attr(CONSTANTS) or {})
        for codegen, functions in groups.items():
            names = {}
            for function in functions:
                symbol = str(function.attrs.get("global_symbol", "function"))
                for i, constant in enumerate(_constants(function)):
                    names[constant] = f"{symbol}_const_{i}"
                    constants[names[constant]] = constant.data
            made += list(_generator(codegen)(functions, options.get(codegen, {}), names))
        caller = _Caller(mod, symbols)
        kept = {
            var: caller.visit_expr(function) if isinstance(function, Function) else function
            for var, function in mod.functions.items()
            if str(var.name_hint) not in symbols
        }
        result = IRModule(kept, attrs=mod.attrs, global_infos=mod.global_infos)
        result = result.with_attr(EXTERNAL_MODULES, made)
        return result.with_attr(CONSTANTS, constants) if constants else result

    return run


def _generator(codegen: str) -> Any:
    generate = get_global_func(f"relax.ext.{codegen}", allow_missing=True)
    if generate is None:
        raise ValueError(
            f"RunCodegen: the code generator {codegen!r} is not registered; register its function as "
            f"relax.ext.{codegen}"
        )
    return generate
