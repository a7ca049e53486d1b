# SPDX-License-Identifier: Apache-2.0
"""Walks over and rewrites of the graph language in Python: override the method of what is of interest.

For programs that a pass of the compiler does not fit; chains of bindings are walked in a loop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..ir.expr import Call, Expr, GlobalVar, Op, Var, is_prim_expr
from ..ir.module import IRModule
from .block_builder import BlockBuilder, _begin, _end
from .data_type import Constructor, Match, MatchCase
from .expr import (
    Binding,
    BindingBlock,
    Constant,
    DataflowBlock,
    DataflowVar,
    DataTypeImm,
    ExternFunc,
    Function,
    If,
    MatchCast,
    SeqExpr,
    ShapeExpr,
    StringImm,
    Tuple,
    TupleGetItem,
    VarBinding,
)

# Class -> method, the most special classes first.
_METHODS: tuple[tuple[type, str], ...] = (
    (Constant, "visit_constant_"),
    (DataflowVar, "visit_dataflow_var_"),
    (Tuple, "visit_tuple_"),
    (ShapeExpr, "visit_shape_expr_"),
    (ExternFunc, "visit_extern_func_"),
    (GlobalVar, "visit_global_var_"),
    (Function, "visit_function_"),
    (Call, "visit_call_"),
    (SeqExpr, "visit_seq_expr_"),
    (If, "visit_if_"),
    (Match, "visit_match_"),
    (Constructor, "visit_constructor_"),
    (Op, "visit_op_"),
    (TupleGetItem, "visit_tuple_getitem_"),
    (StringImm, "visit_string_imm_"),
    (DataTypeImm, "visit_data_type_imm_"),
)


def _method_of(expr: Expr) -> str:
    if isinstance(expr, Var) and not isinstance(expr, DataflowVar):
        return "visit_var_"
    for cls, name in _METHODS:
        if isinstance(expr, cls):
            return name
    if is_prim_expr(expr):
        return "visit_prim_value_"
    raise TypeError(f"the graph language has no {type(expr).__name__}")


def visitor(cls: type) -> type:
    """Marks a PyExprVisitor; kept so that programs which decorate theirs run unchanged."""
    return cls


mutator = visitor


class ExprFunctor:
    """Calls the method that belongs to an expression's class."""

    def visit_expr(self, expr: Expr) -> Any:
        return getattr(self, _method_of(expr))(expr)

    def visit_binding(self, binding: Binding) -> Any:
        if isinstance(binding, MatchCast):
            return self.visit_match_cast_(binding)
        return self.visit_var_binding_(binding)

    def visit_binding_block(self, block: BindingBlock) -> Any:
        if isinstance(block, DataflowBlock):
            return self.visit_dataflow_block_(block)
        return self.visit_binding_block_(block)

    def visit_var_def(self, var: Var) -> Any:
        if isinstance(var, DataflowVar):
            return self.visit_dataflow_var_def_(var)
        return self.visit_var_def_(var)

    def visit_match_cast_(self, binding: Any) -> Any:
        raise NotImplementedError

    def visit_var_binding_(self, binding: Any) -> Any:
        raise NotImplementedError

    def visit_dataflow_block_(self, block: Any) -> Any:
        raise NotImplementedError

    def visit_binding_block_(self, block: Any) -> Any:
        raise NotImplementedError

    def visit_var_def_(self, var: Any) -> Any:
        raise NotImplementedError

    def visit_dataflow_var_def_(self, var: Any) -> Any:
        raise NotImplementedError


class PyExprVisitor(ExprFunctor):
    """Visits all parts of an expression."""

    def _leaf(self, op: Expr) -> None:
        """Has no parts."""

    visit_constant_ = visit_global_var_ = visit_extern_func_ = visit_op_ = _leaf
    visit_var_ = visit_dataflow_var_ = visit_prim_value_ = _leaf
    visit_string_imm_ = visit_data_type_imm_ = visit_constructor_ = _leaf

    def visit_tuple_(self, op: Any) -> None:
        for field in op.fields:
            self.visit_expr(field)

    def visit_call_(self, op: Any) -> None:
        self.visit_expr(op.op)
        for arg in op.args:
            self.visit_expr(arg)

    def visit_shape_expr_(self, op: Any) -> None:
        for value in op.values:
            self.visit_expr(value)

    def visit_tuple_getitem_(self, op: Any) -> None:
        self.visit_expr(op.tuple_value)

    def visit_if_(self, op: Any) -> None:
        self.visit_expr(op.cond)
        self.visit_expr(op.true_branch)
        self.visit_expr(op.false_branch)

    def visit_match_(self, op: Any) -> None:
        self.visit_expr(op.value)
        for case in op.cases:
            for var in case.vars:
                self.visit_var_def(var)
            self.visit_expr(case.body)

    def visit_function_(self, op: Any) -> None:
        for param in op.params:
            self.visit_var_def(param)
        self.visit_expr(op.body)

    def visit_seq_expr_(self, op: Any) -> None:
        for block in op.blocks:
            self.visit_binding_block(block)
        self.visit_expr(op.body)

    def visit_binding_block_(self, block: Any) -> None:
        for binding in block.bindings:
            self.visit_binding(binding)

    visit_dataflow_block_ = visit_binding_block_

    def visit_var_binding_(self, binding: Any) -> None:
        self.visit_expr(binding.value)
        self.visit_var_def(binding.var)

    visit_match_cast_ = visit_var_binding_

    def visit_var_def_(self, var: Any) -> None:
        """A definition has no parts."""

    visit_dataflow_var_def_ = visit_var_def_

    def visit_span(self, span: Any) -> None:
        """Places have no parts."""


class PyExprMutator(ExprFunctor):
    """Rewrites expressions; `builder_` binds what a method emits, in front of the binding at hand."""

    def __init__(self, mod: IRModule | None = None) -> None:
        self.builder_ = BlockBuilder(mod)
        self._remap: dict[Any, Expr] = {}

    # ---- leaves

    def _leaf(self, op: Expr) -> Expr:
        return op

    visit_constant_ = visit_global_var_ = visit_extern_func_ = visit_op_ = _leaf
    visit_string_imm_ = visit_data_type_imm_ = visit_prim_value_ = visit_constructor_ = _leaf

    def visit_var_(self, op: Any) -> Expr:
        return self._remap.get(op, op)

    visit_dataflow_var_ = visit_var_

    # ---- inner nodes; unchanged parts give the same object

    def visit_expr_post_order(self, expr: Expr) -> Expr:
        """The expression with its parts visited, itself as it was."""
        return getattr(PyExprMutator, _method_of(expr))(self, expr)

    def _all(self, values: Any) -> tuple[list[Expr], bool]:
        new = [self.visit_expr(v) for v in values]
        return new, all(a.same_as(b) for a, b in zip(new, values))

    def visit_tuple_(self, op: Any) -> Expr:
        fields, same = self._all(op.fields)
        return op if same else Tuple(fields)

    def visit_call_(self, op: Any) -> Expr:
        callee = self.visit_expr(op.op)
        args, same = self._all(op.args)
        if same and callee.same_as(op.op):
            return op
        return Call(callee, args, op.attrs, op.ty_args, op.span)

    def visit_shape_expr_(self, op: Any) -> Expr:
        values, same = self._all(op.values)
        return op if same else ShapeExpr(values)

    def visit_tuple_getitem_(self, op: Any) -> Expr:
        value = self.visit_expr(op.tuple_value)
        return op if value.same_as(op.tuple_value) else TupleGetItem(value, op.index)

    def visit_if_(self, op: Any) -> Expr:
        cond = self.visit_expr(op.cond)
        then = self.visit_with_new_scope(op.true_branch)
        otherwise = self.visit_with_new_scope(op.false_branch)
        if cond.same_as(op.cond) and then is op.true_branch and otherwise is op.false_branch:
            return op
        return If(cond, then, otherwise)

    def visit_match_(self, op: Any) -> Expr:
        value = self.visit_expr(op.value)
        cases = []
        for case in op.cases:
            names = [self.visit_var_def(v) for v in case.vars]
            body = self.visit_with_new_scope(case.body)
            cases.append(MatchCase(case.constructor, names, body, case.span))
        return Match(value, cases, op.span)

    def visit_function_(self, op: Any) -> Expr:
        params = [self.visit_var_def(p) for p in op.params]
        for param, new in zip(op.params, params):
            if not new.same_as(param):
                self.set_var_remap(param, new)
        body = self.visit_with_new_scope(op.body)
        return Function(params, body, op.ret_ty, op.is_pure, op.attrs, op.span)

    def visit_with_new_scope(self, expr: Any, params: Any = None) -> Expr:
        """An expression whose bindings go to blocks of its own."""
        if not isinstance(expr, SeqExpr):
            expr = SeqExpr([], expr)
        return self.visit_seq_expr_(expr)

    def visit_seq_expr_(self, op: Any) -> Expr:
        blocks = []
        for block in op.blocks:
            new = self.visit_binding_block(block)
            if len(new.bindings):
                blocks.append(new)
        _begin(self.builder_, False)
        body = self.builder_.normalize(self.visit_expr(op.body))
        rest = _end(self.builder_)
        if len(rest.bindings):
            blocks.append(rest)
        return SeqExpr(blocks, body)

    def visit_binding_block_(self, block: Any) -> BindingBlock:
        _begin(self.builder_, False)
        for binding in block.bindings:
            self.visit_binding(binding)
        return _end(self.builder_)

    def visit_dataflow_block_(self, block: Any) -> BindingBlock:
        _begin(self.builder_, True)
        for binding in block.bindings:
            self.visit_binding(binding)
        return _end(self.builder_)

    # ---- bindings

    def visit_var_binding_(self, binding: Any) -> None:
        value = self.builder_.normalize(self.visit_expr(binding.value))
        var = self.visit_var_def(binding.var)
        if var.same_as(binding.var) and value.same_as(binding.value):
            self.builder_.emit_normalized(binding)
            return
        self.builder_.emit_normalized(VarBinding(self._typed(binding.var, var, value), value))

    def visit_match_cast_(self, binding: Any) -> None:
        value = self.builder_.normalize(self.visit_expr(binding.value))
        var = self.visit_var_def(binding.var)
        if not var.same_as(binding.var):
            self.set_var_remap(binding.var, var)
        self.builder_.emit_normalized(MatchCast(var, value, binding.ty))

    def _typed(self, old: Var, var: Var, value: Expr) -> Var:
        """`var`, or one of the value's type, in the place of `old`."""
        from ..ir.base import structural_equal

        if value.ty is not None and not structural_equal(var.ty, value.ty):
            var = type(var)(var.name, value.ty)
        return var if var.same_as(old) else self.set_var_remap(old, var)

    def visit_var_def_(self, var: Any) -> Var:
        return var

    visit_dataflow_var_def_ = visit_var_def_

    # ---- what rewrites ask for

    def set_var_remap(self, var: Var, new: Var) -> Var:
        """Uses of `var` become `new`."""
        self._remap[getattr(var, "vid", var)] = new
        return new

    def get_var_remap(self, var: Var) -> Expr | None:
        return self._remap.get(getattr(var, "vid", var))

    def lookup_binding(self, var: Var) -> Expr | None:
        """The value that `var` is bound to."""
        return self.builder_.lookup_binding(var)

    def with_ty(self, var: Var, ty: Any) -> Var:
        """The variable with another type."""
        return type(var)(var.name, ty)

    with_type = with_ty  # its newer name


def rename_global_vars(mod: IRModule, replacements: Mapping[Any, Any]) -> IRModule:
    """The module with functions renamed, calls included."""
    names = {
        (k if isinstance(k, str) else str(k.name_hint)): (
            v if isinstance(v, str) else str(v.name_hint)
        )
        for k, v in replacements.items()
    }
    fresh = {
        var: GlobalVar(names.get(str(var.name_hint), str(var.name_hint))) for var in mod.functions
    }

    class Renamer(PyExprMutator):
        def visit_global_var_(self, op: Any) -> Expr:
            return fresh.get(op, op)

    functions = {}
    for var, func in mod.functions.items():
        new = Renamer().visit_expr(func) if isinstance(func, Function) else func
        if "global_symbol" in func.attrs and str(var.name_hint) in names:
            new = new.with_attr("global_symbol", names[str(var.name_hint)])
        functions[fresh[var]] = new
    return IRModule(functions, mod.attrs, mod.global_infos)
