# SPDX-License-Identifier: Apache-2.0
"""Variables, bindings and form of programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ... import _compiler
from ...ir.expr import Expr, GlobalVar, Var
from ...ir.module import IRModule
from ..expr import Binding, BindingBlock, DataflowBlock, Function, If, SeqExpr

if TYPE_CHECKING:
    from ...tirx import IndexMap, PrimFunc

_all_vars = _compiler.func("analysis.all_vars")
_bound_vars = _compiler.func("analysis.bound_vars")
_free_vars = _compiler.func("analysis.free_vars")
_all_global_vars = _compiler.func("analysis.all_global_vars")
_defined_symbolic = _compiler.func("analysis.defined_symbolic_vars")
_free_symbolic = _compiler.func("analysis.free_symbolic_vars")
_post_order = _compiler.func("ir.PostOrderVisit")


def all_vars(expr: Expr) -> list[Var]:
    """Variables of the graph language, used or defined, in order."""
    return list(_all_vars(expr))


def bound_vars(expr: Expr) -> list[Var]:
    """Variables that the expression defines."""
    return list(_bound_vars(expr))


def free_vars(expr: Expr) -> list[Var]:
    """Variables that it uses and does not define."""
    return list(_free_vars(expr))


def all_global_vars(expr: Expr) -> list[GlobalVar]:
    """Functions of the module that it refers to."""
    return list(_all_global_vars(expr))


def defined_symbolic_vars(func: Function) -> list[Var]:
    """Symbolic variables that parameters and match_casts define."""
    return list(_defined_symbolic(func))


def free_symbolic_vars(func: Function) -> list[Var]:
    """Symbolic variables that nothing in the function defines."""
    return list(_free_symbolic(func))


def post_order_visit(expr: Expr, fvisit: Callable[[Expr], None]) -> None:
    """Calls `fvisit` for every expression, children before parents."""
    _post_order(expr, fvisit)


def _sequences(expr: Any) -> Iterator[SeqExpr]:
    stack = [expr]
    while stack:
        item = stack.pop()
        if isinstance(item, Function):
            stack.append(item.body)
        elif isinstance(item, If):
            stack += [item.false_branch, item.true_branch]
        elif isinstance(item, SeqExpr):
            yield item
            for block in item.blocks:
                stack.extend(b.value for b in block.bindings if isinstance(b.value, (Function, If)))


def _bindings(expr: Any) -> Iterator[Binding]:
    if isinstance(expr, BindingBlock):
        yield from expr.bindings
        return
    for seq in _sequences(expr):
        for block in seq.blocks:
            yield from block.bindings


def get_var2val(func: Function) -> dict[Var, Expr]:
    """Bound variables and their values."""
    return {b.var: b.value for b in _bindings(func)}


def name_to_binding(func: Function) -> dict[str, list[Binding]]:
    """Bindings by the name of their variable."""
    found: dict[str, list[Binding]] = {}
    for b in _bindings(func):
        found.setdefault(str(b.var.name), []).append(b)
    return found


def udchain(dfb: DataflowBlock) -> dict[Var, list[Var]]:
    """For each variable of a dataflow block the variables whose values use it."""
    users: dict[Var, list[Var]] = {}
    for b in dfb.bindings:
        users.setdefault(b.var, [])
        for used in free_vars(b.value):
            users.setdefault(used, []).append(b.var)
    return users


def used_vars(expr: Any) -> list[Var]:
    """Variables that are used."""
    if isinstance(expr, BindingBlock):
        found: dict[Var, None] = {}
        for b in expr.bindings:
            found.update(dict.fromkeys(free_vars(b.value)))
        return list(found)
    return free_vars(expr)


def remove_all_unused(func: Function) -> Function:
    """The function without bindings that nobody uses."""
    name = "main"
    mod = IRModule({name: func})
    result = _compiler.func("transform.Run")(
        "DeadCodeElimination", mod, {"entry_functions": [name]}, {}, "llvm"
    )
    return result[name]


def contains_impure_call(expr: Expr, own_name: Any = None) -> bool:
    """Is there a call with effects? Functions in functions count only where they are called."""
    return _compiler.func("analysis.contains_impure_call")(expr, own_name)


def detect_recursion(mod: IRModule) -> list[list[GlobalVar]]:
    """Groups of functions that call each other, or themselves."""
    return [list(group) for group in _compiler.func("analysis.detect_recursion")(mod)]


def computable_at_compile_time(func: Function) -> list[Var]:
    """Variables that depend on nothing but the parameters after attribute `num_input`."""
    return list(_compiler.func("analysis.computable_at_compile_time")(func))


def estimate_memory_usage(mod: IRModule | Function) -> str:
    """What explicit allocations take, with and without the plan, as a text."""
    if isinstance(mod, Function):
        mod = IRModule.from_expr(mod)
    return str(_compiler.func("analysis.estimate_memory_usage")(mod))


def has_reshape_pattern(func: PrimFunc) -> bool:
    """Does a tensor program copy its argument in row-major order?"""
    return bool(_compiler.func("analysis.has_reshape_pattern")(func))


def violation(obj: Any) -> str | None:
    """The rule of the language that a module or function breaks, and where; None when it keeps them all."""
    mod = obj if isinstance(obj, IRModule) else IRModule.from_expr(obj)
    found = _compiler.func("pipeline.FindViolation")(mod, "graph")
    return None if found is None else f"{found[0]}: {found[1]}"


def check_well_formed(obj: Any, check_ty: bool = True) -> bool:
    """Does a module or function keep the rules of the language?"""
    return violation(obj) is None


def well_formed(obj: Any, check_ty: bool = True) -> bool:
    """As check_well_formed, but an error says which rule is broken, and where."""
    found = violation(obj)
    if found is not None:
        raise ValueError(f"the program is not well formed: {found}")
    return True


def suggest_layout_transforms(
    func: PrimFunc, write_buffer_transforms: Sequence[IndexMap | Callable[..., Any]]
) -> dict[Any, dict[Any, IndexMap]]:
    """What layouts of a tensor program's results suggest for its blocks: for each block the layout of its axes (under
    the block itself), of what it writes and of what it reads in the same order.  Raises ValueError for a layout of
    another rank, or for more layouts than buffers."""
    from ...tirx import IndexMap

    maps = [
        m if isinstance(m, IndexMap) else IndexMap.from_func(m) for m in write_buffer_transforms
    ]
    rows = _compiler.func("analysis.suggest_layouts")(func, maps)
    return {block: dict(list(parts)) for block, parts in rows}
