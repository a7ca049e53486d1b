# SPDX-License-Identifier: Apache-2.0
"""BlockBuilder: builds functions in normal form, with types inferred."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any

import tvm_ffi
from tvm_ffi import Object

from .. import _compiler
from ..ir.base import current_span, plain
from ..ir.expr import BaseFunc, Call, Expr, GlobalVar, Var
from ..ir.module import IRModule
from .expr import BindingBlock, DataflowBlock, DataflowVar, Function, SeqExpr, Tuple, to_expr

_new = _compiler.func("relax.BlockBuilder")
_begin = _compiler.func("relax.Builder_Begin")
_end = _compiler.func("relax.Builder_End")
_in_dataflow = _compiler.func("relax.Builder_InDataflow")
_emit = _compiler.func("relax.Builder_Emit")
_emit_output = _compiler.func("relax.Builder_EmitOutput")
_match_cast = _compiler.func("relax.Builder_MatchCast")
_bind_match_cast = _compiler.func("relax.Builder_BindMatchCast")
_emit_binding = _compiler.func("relax.Builder_EmitBinding")
_normalize = _compiler.func("relax.Builder_Normalize")
_normalize_argument = _compiler.func("relax.Builder_NormalizeArgument")
_lookup = _compiler.func("relax.Builder_Lookup")
_unique_name = _compiler.func("relax.Builder_UniqueName")
_add_function = _compiler.func("relax.Builder_AddFunction")
_update_function = _compiler.func("relax.Builder_UpdateFunction")
_module = _compiler.func("relax.Builder_Module")


class _Stack(threading.local):
    def __init__(self) -> None:
        self.builders: list[BlockBuilder] = []


_stack = _Stack()


class FunctionScope:
    """`with bb.function("main", [x]):`"""

    def __init__(
        self,
        builder: BlockBuilder,
        name: str,
        params: Sequence[Var] | Var | None,
        attrs: Mapping[str, Any] | None,
        is_pure: bool,
        private: bool,
    ) -> None:
        self.builder, self.name, self.is_pure, self.private = builder, name, is_pure, private
        self.attrs = dict(attrs or {})
        self.params = _as_params(params)
        self.blocks: list[BindingBlock] = []
        self.output: Any = None
        self.ret_ty: Any = None  # as stated; None: as inferred
        self.was_refused = False  # has emit_func_output raised?
        self.was_split = False  # has a dataflow block been ended by what was emitted into it?

    def __enter__(self) -> FunctionScope:
        if self.builder._scope is not None:
            raise RuntimeError(
                f"function {self.name} is begun inside of function {self.builder._scope.name}; end that one first"
            )
        self.builder._scope = self
        _stack.builders.append(self.builder)
        _begin(self.builder, False)
        return self

    def __exit__(self, kind: Any, error: Any, trace: TracebackType | None) -> None:
        _stack.builders.pop()
        builder = self.builder
        try:
            if kind is None and self.output is None and not self.was_refused:
                raise RuntimeError(
                    f"function {self.name} has no result: call emit_func_output in it"
                )
        finally:
            builder._scope = None
            if self.output is None:
                _end(builder)


def _as_params(params: Any) -> list[Var] | None:
    if params is None:
        return None
    return [params] if isinstance(params, Var) else list(params)


class DataflowScope:
    """`with bb.dataflow():`"""

    def __init__(self, builder: BlockBuilder) -> None:
        self.builder = builder

    def __enter__(self) -> DataflowScope:
        self.builder._close_block()
        _begin(self.builder, True)
        return self

    def __exit__(self, kind: Any, error: Any, trace: TracebackType | None) -> None:
        block = _end(self.builder)
        if kind is None and len(block.bindings):
            self.builder._blocks().append(block)
        _begin(self.builder, False)


class TestingScope:
    """A function's scope without a function, for trying things; `def_vars` are visible in it."""

    def __init__(self, builder: BlockBuilder, def_vars: Sequence[Var] = ()) -> None:
        self.builder, self.def_vars = builder, def_vars

    def __enter__(self) -> TestingScope:
        _stack.builders.append(self.builder)
        _begin(self.builder, False)
        return self

    def __exit__(self, kind: Any, error: Any, trace: TracebackType | None) -> None:
        _end(self.builder)
        _stack.builders.pop()


@tvm_ffi.register_object("relaxvm.relax.BlockBuilder")
class BlockBuilder(Object):
    """Builds functions in normal form: each value is bound, its type inferred, arguments are leaves."""

    __slots__ = ("__dict__",)

    def __init__(self, mod: IRModule | None = None) -> None:
        self.__init_handle_by_constructor__(_new, mod)
        self._scope: FunctionScope | None = None
        self._loose_blocks: list[BindingBlock] = []

    @staticmethod
    def current() -> BlockBuilder | None:
        """The builder whose function is being built, or None."""
        return _stack.builders[-1] if _stack.builders else None

    # ---- scopes

    def function(
        self,
        name: str,
        params: Sequence[Var] | Var | None = None,
        attrs: Mapping[str, Any] | None = None,
        pure: bool = True,
        private: bool = False,
    ) -> FunctionScope:
        """A function of the module; its global symbol is `name` unless it is private."""
        values = dict(attrs or {})
        if not private:
            values.setdefault("global_symbol", name)
        return FunctionScope(self, name, params, values, pure, private)

    def dataflow(self) -> DataflowScope:
        return DataflowScope(self)

    def testing_scope(self, def_vars: Sequence[Var] = ()) -> TestingScope:
        return TestingScope(self, def_vars)

    def _blocks(self) -> list[BindingBlock]:
        return self._scope.blocks if self._scope is not None else self._loose_blocks

    def _close_block(self) -> None:
        block = _end(self)
        if len(block.bindings):
            self._blocks().append(block)

    def _begin_binding_block(self) -> None:
        _begin(self, False)

    def _begin_dataflow_block(self) -> None:
        _begin(self, True)

    def _end_block(self) -> BindingBlock:
        return _end(self)

    def begin_scope(self, params: Sequence[Var] | None = None) -> None:
        """Scopes of symbolic variables need no bookkeeping here; kept for programs that mark them."""

    def end_scope(self) -> None:
        """See begin_scope."""

    # ---- bindings

    def emit(self, expr: Any, name_hint: str = "") -> Var:
        """Binds `expr` to a fresh variable.

        In a dataflow block, the blocks of a SeqExpr that are no dataflow end it and another one goes on behind them.
        """
        return _emit(self, self._out_of_dataflow(_as_value(expr)), name_hint)

    def emit_output(self, output: Any, name_hint: str = "") -> Var:
        """Binds `output` to a variable that is visible outside of the dataflow block.  RuntimeError where there is
        none."""
        if not _in_dataflow(self):
            raise RuntimeError(
                "emit_output outside of a dataflow block; use `with bb.dataflow()`, or emit"
            )
        return _emit_output(self, self._out_of_dataflow(_as_value(output)), name_hint)

    def _out_of_dataflow(self, expr: Expr) -> Expr:
        """`expr`; of a SeqExpr with blocks that may not stand in the dataflow block its value, behind them."""
        if not isinstance(expr, SeqExpr) or not _in_dataflow(self):
            return expr
        blocks = [block for block in expr.blocks if len(block.bindings)]
        if all(isinstance(block, DataflowBlock) for block in blocks):
            return expr
        if self._scope is not None:
            self._scope.was_split = True
        for block in blocks:
            self._close_block()
            _begin(self, isinstance(block, DataflowBlock))
            _normalize(self, SeqExpr([block], block.bindings[-1].var))
        self._close_block()
        _begin(self, True)
        return expr.body

    def match_cast(self, value: Any, ty: Any, name_hint: str = "") -> Var:
        """Checks at run time that `value` has type `ty`; binds the symbolic variables of `ty`."""
        span = current_span()
        if span is None:
            return _match_cast(self, to_expr(value), plain(ty), name_hint)
        value, name = (
            _normalize_argument(self, to_expr(value)),
            _unique_name(self, name_hint or "lv"),
        )
        return _bind_match_cast(self, value, plain(ty), name, _in_dataflow(self), span)

    def emit_normalized(self, binding: Any) -> None:
        _emit_binding(self, binding)

    def normalize(self, expr: Any) -> Expr:
        return _normalize(self, to_expr(expr))

    def lookup_binding(self, var: Var) -> Expr | None:
        return _lookup(self, var)

    def current_block_is_dataflow(self) -> bool:
        return _in_dataflow(self)

    def emit_func_output(self, output: Any, params: Sequence[Var] | Var | None = None) -> GlobalVar:
        """Ends the function with its result.

        RuntimeError outside of a function, where it has a result already, and where blocks that split a dataflow
        block (see emit) use its variables.
        """
        scope = self._scope
        if scope is None:
            raise RuntimeError(
                "emit_func_output outside of a function; use `with bb.function(...)`"
            )
        if scope.output is not None:
            raise RuntimeError(
                f"function {scope.name} has its result already; emit_func_output is called twice"
            )
        if params is not None:
            if scope.params is not None:
                raise RuntimeError(
                    f"the parameters of {scope.name} are given twice, at function() and at emit_func_output()"
                )
            scope.params = _as_params(params)
        if scope.params is None:
            raise RuntimeError(f"the parameters of {scope.name} are not given")
        if scope.was_split:
            scope.was_refused = True
            _check_dataflow_vars(scope.name, scope.blocks)
            scope.was_refused = False
        body = _normalize_argument(self, to_expr(output))
        self._close_block()
        scope.output = body
        seq = SeqExpr(scope.blocks, body)
        func = Function(scope.params, seq, None, scope.is_pure, scope.attrs)
        func = _finish(self, func, scope.ret_ty)
        return _compiler.func("relax.Builder_DefineFunction")(self, scope.name, func)

    # ---- tensor expressions

    def call_te(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Call:
        """A call_tir of the tensor program that `func` describes on tensor expressions."""
        from ..te.graph import call_te

        return call_te(self, func, args, kwargs)

    def emit_te(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Var:
        name_hint = kwargs.pop("name_hint", "")
        return self.emit(self.call_te(func, *args, **kwargs), name_hint)

    def call_te_with_grad(
        self,
        func: Callable[..., Any],
        *args: Any,
        te_grad_name: str,
        te_grad_kwargs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> Call:
        """As call_te, for a tensor program whose gradient is registered under a name (register_te_gradient)."""
        from ..te.graph import call_te
        from .op.calls import call_tir_with_grad

        def make_call(var: Any, values: Any, out_ty: Any, tir_vars: Any) -> Call:
            return call_tir_with_grad(var, values, out_ty, te_grad_name, te_grad_kwargs, tir_vars)

        return call_te(self, func, args, kwargs, make_call)

    def emit_te_with_grad(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Var:
        """Binds what call_te_with_grad gives."""
        name_hint = kwargs.pop("name_hint", "")
        return self.emit(self.call_te_with_grad(func, *args, **kwargs), name_hint)

    # ---- module

    def add_func(self, func: BaseFunc, func_name: str) -> GlobalVar:
        """Adds a function; an equal one that is there already is used instead."""
        return _add_function(self, func, func_name)

    def update_func(self, gv: GlobalVar, updated_func: BaseFunc) -> None:
        _update_function(self, gv, updated_func)

    def get_unique_name(self, name_prefix: str) -> str:
        return _unique_name(self, name_prefix)

    def get(self) -> IRModule:
        """The module so far."""
        return _module(self)

    def finalize(self) -> IRModule:
        """The module; exported functions have their exported names, private ones make way."""
        return _compiler.func("transform.Run")("NormalizeGlobalVar", _module(self), {}, {}, "llvm")


def _as_value(expr: Any) -> Expr:
    if isinstance(expr, (tuple, list)):
        return Tuple(expr)
    return to_expr(expr)


def _check_dataflow_vars(name: str, blocks: list[BindingBlock]) -> None:
    """RuntimeError where an ordinary block names a DataflowVar of a block in front of it."""
    from .analysis import free_vars

    inside: set[Var] = set()
    for block in blocks:
        if isinstance(block, DataflowBlock):
            inside.update(b.var for b in block.bindings if isinstance(b.var, DataflowVar))
            continue
        for var in free_vars(SeqExpr([block], Tuple([]))):
            if var in inside:
                raise RuntimeError(
                    f"Malformed AST: in function {name}, {var.name_hint} of a dataflow block is used by an ordinary "
                    "block of a sequence that was emitted into it and ended it; bind it in front of the dataflow block"
                )


def _finish(builder: BlockBuilder, func: Function, ret_ty: Any) -> Function:
    """The type of the result as callers may see it."""
    return _compiler.func("relax.Builder_FinishFunction")(builder, func, ret_ty)
