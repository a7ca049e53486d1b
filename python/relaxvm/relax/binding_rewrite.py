# SPDX-License-Identifier: Apache-2.0
"""Edits of one dataflow block: bindings are added, removed and replaced, the function around it follows."""

from __future__ import annotations

from .. import _compiler
from ..ir.expr import Expr, Var
from ..ir.module import IRModule
from .analysis import used_vars
from .block_builder import BlockBuilder
from .expr import (
    Binding,
    BindingBlock,
    DataflowBlock,
    DataflowVar,
    Function,
    MatchCast,
    SeqExpr,
    VarBinding,
)
from .expr_functor import PyExprMutator

_substitute = _compiler.func("ir.Substitute")


class DataflowBlockRewrite:
    """The dataflow block `dfb` of `root_fn` and the edits made to it; block and function stay as they are."""

    def __init__(self, dfb: DataflowBlock, root_fn: Function) -> None:
        self.dfb, self.root_fn = dfb, root_fn
        self._original, self._original_fn = dfb, root_fn
        self._bindings = list(dfb.bindings)

    # ---- edits

    def replace_all_uses(self, old_var: Var, new_var: Var) -> None:
        """Whatever read `old_var`, in the block and behind it, reads `new_var`; its binding stays."""
        bindings = []
        for binding in self._bindings:
            keep = binding.var.same_as(new_var)
            bindings.append(binding if keep else _reading(binding, old_var, new_var))
        self._update(bindings, (old_var, new_var))

    def add_binding(self, binding: Binding) -> None:
        """Adds a binding of a variable that has none, right behind the last one that it reads."""
        if any(b.var.same_as(binding.var) for b in self._bindings):
            raise RuntimeError(f"{binding.var} is bound already")
        read = _reads(binding)
        last = 0
        for i, other in enumerate(self._bindings):
            if any(v.same_as(other.var) for v in read):
                last = i
        self._update([*self._bindings[: last + 1], binding, *self._bindings[last + 1 :]])

    def add(self, expr: Expr, name: str | None = None, is_dfvar: bool = False) -> None:
        """Adds a binding of a new variable to `expr`."""
        taken = {b.var.name for b in self._bindings} | {p.name for p in self.root_fn.params}
        if name is None:
            number = 0
            while f"tmp{number}" in taken:
                number += 1
            name = f"tmp{number}"
        if expr.ty is None:
            expr = BlockBuilder().normalize(expr)
        self.add_binding(VarBinding((DataflowVar if is_dfvar else Var)(name, expr.ty), expr))

    def remove_unused(self, var: Var, allow_undef: bool = False) -> None:
        """Removes the binding of `var`, which nobody may read."""
        if not any(b.var.same_as(var) for b in self._bindings):
            if allow_undef:
                return
            raise RuntimeError(f"the block does not bind {var}")
        if not isinstance(var, DataflowVar) and any(v.same_as(var) for v in self._used_behind()):
            raise RuntimeError(f"{var} is read behind the block")
        for binding in self._bindings:
            if any(v.same_as(var) for v in _reads(binding)):
                raise RuntimeError(f"{var} is read by the binding of {binding.var}")
        self._update([b for b in self._bindings if not b.var.same_as(var)])

    def remove_all_unused(self) -> None:
        """Removes bindings that nobody reads, and those that only they read."""
        alive = list(self._used_behind())
        kept = []
        for binding in reversed(self._bindings):
            used = any(v.same_as(binding.var) for v in alive)
            if used or isinstance(binding, MatchCast):
                kept.append(binding)
                alive.extend(_reads(binding))
        self._update(kept[::-1])

    # ---- results

    def mutated_dfb(self) -> DataflowBlock:
        """The block with all edits."""
        return self.dfb

    def mutated_root_fn(self) -> Function:
        """The function with the edited block."""
        return self.root_fn

    def mutate_irmodule(self, irmodule: IRModule) -> IRModule:
        """A module in which the edited function stands for the one that was given."""
        result = irmodule.clone()
        for var, func in irmodule.functions_items():
            if func.same_as(self._original_fn):
                result.update_func(var, self.root_fn)
        return result

    # ---- how

    def _used_behind(self) -> list[Var]:
        """Variables that blocks behind this one, and the result, read."""
        body = self.root_fn.body
        found = list(used_vars(body.body))
        for block in body.blocks:
            if not block.same_as(self.dfb):
                for binding in block.bindings:
                    found.extend(_reads(binding))
        return found

    def _update(self, bindings: list[Binding], renamed: tuple[Var, Var] | None = None) -> None:
        block = DataflowBlock(bindings, self.dfb.span)
        self.root_fn = _Exchange(self.dfb, block, renamed).visit_expr(self.root_fn)
        self.dfb, self._bindings = block, bindings


def _reads(binding: Binding) -> list[Var]:
    return list(used_vars(binding.value))


def _reading(binding: Binding, old: Var, new: Var) -> Binding:
    """The binding with `new` read in place of `old`."""
    value = _substitute(binding.value, {old: new})
    if value.same_as(binding.value):
        return binding
    if isinstance(binding, MatchCast):
        return MatchCast(binding.var, value, binding.ty)
    return VarBinding(binding.var, value)


class _Exchange(PyExprMutator):
    """Puts a block in the place of another one, which may stand anywhere in a function."""

    def __init__(
        self, old: BindingBlock, new: BindingBlock, renamed: tuple[Var, Var] | None
    ) -> None:
        super().__init__()
        self._old, self._new, self._renamed = old, new, renamed

    def visit_function_(self, op: Function) -> Function:
        body = self.visit_expr(op.body)
        return Function(op.params, body, op.ret_ty, op.is_pure, op.attrs, op.span)

    def visit_seq_expr_(self, op: SeqExpr) -> SeqExpr:
        blocks = []
        behind = False
        for block in op.blocks:
            if block.same_as(self._old):
                behind = True
                if self._new.bindings:
                    blocks.append(self._new)
                continue
            bindings = [self._binding(b, behind) for b in block.bindings]
            kind = DataflowBlock if isinstance(block, DataflowBlock) else BindingBlock
            blocks.append(kind(bindings, block.span))
        return SeqExpr(blocks, self._read(op.body))

    def _read(self, value: Expr) -> Expr:
        return value if self._renamed is None else _substitute(value, dict([self._renamed]))

    def _binding(self, binding: Binding, behind: bool) -> Binding:
        value = self.visit_expr(binding.value)
        if behind:
            value = self._read(value)
        if value.same_as(binding.value):
            return binding
        if isinstance(binding, MatchCast):
            return MatchCast(binding.var, value, binding.ty)
        return VarBinding(binding.var, value)


__all__ = ["DataflowBlockRewrite"]
