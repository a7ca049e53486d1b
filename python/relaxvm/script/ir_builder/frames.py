# SPDX-License-Identifier: Apache-2.0
"""What an IRBuilder holds: a module or a function, and within a function at most one dataflow block at a time."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ... import _compiler
from ...ir.base import current_span, plain
from ...ir.expr import BaseFunc, Var

if TYPE_CHECKING:
    from ...relax.block_builder import BlockBuilder

_bind = _compiler.func("relax.Builder_Bind")
_substitute = _compiler.func("ir.Substitute")


class _Stack(threading.local):
    def __init__(self) -> None:
        self.builders: list[IRBuilder] = []


_stack = _Stack()


class IRBuilder:
    """`with IRBuilder() as builder:`; what was built within is `builder.get()`."""

    def __init__(self) -> None:
        self.module: ModuleFrame | None = None
        self.function: FunctionFrame | None = None
        self.result: Any = None

    def __enter__(self) -> IRBuilder:
        _stack.builders.append(self)
        return self

    def __exit__(self, kind: Any, error: Any, trace: TracebackType | None) -> None:
        _stack.builders.pop()

    @staticmethod
    def current() -> IRBuilder:
        """The innermost builder."""
        if not _stack.builders:
            raise RuntimeError("there is no builder; write `with IRBuilder() as builder:` around")
        return _stack.builders[-1]

    @staticmethod
    def is_in_scope() -> bool:
        return bool(_stack.builders)

    @staticmethod
    def name(name: str, value: Any) -> Any:
        """Calls the variable `value` of the function that is being built `name`."""
        function = current_function()
        if function is not None and isinstance(value, Var):
            function.names[value] = name
        return value

    def get(self) -> Any:
        """The function, or the module when an ir_module was opened."""
        if self.result is None:
            raise RuntimeError("nothing was built; open a function within the builder")
        return self.result

    def finish(self, result: Any) -> None:
        if self.result is not None:
            raise RuntimeError(
                "a builder builds one function or one module; open ir_module around several"
            )
        self.result = result


def current_function() -> FunctionFrame | None:
    """The function that is being built, where there is one."""
    return _stack.builders[-1].function if _stack.builders else None


class ModuleFrame:
    """Functions that are built within become one module."""

    def __enter__(self) -> ModuleFrame:
        from ...relax.block_builder import BlockBuilder

        self.owner = IRBuilder.current()
        if self.owner.module is not None or self.owner.function is not None:
            raise RuntimeError("ir_module is opened within a module or a function; end that first")
        self.builder = BlockBuilder()
        self.owner.module = self
        return self

    def __exit__(self, kind: Any, error: Any, trace: TracebackType | None) -> None:
        self.owner.module = None
        if kind is None:
            self.owner.finish(self.builder.get())


def _renamer(names: Mapping[Var, str]) -> Any:
    """A mutator that gives variables other names."""
    from ...relax.expr_functor import PyExprMutator

    class Renamer(PyExprMutator):
        def visit_var_def_(self, var: Any) -> Any:
            return type(var)(names[var], var.ty, var.span) if var in names else var

        visit_dataflow_var_def_ = visit_var_def_

    return Renamer()


class FunctionFrame:
    """One function: its name, parameters and bindings, in the order of the calls."""

    def __init__(self, is_pure: bool, is_private: bool) -> None:
        self.is_pure, self.is_private = is_pure, is_private
        self.params: list[Var] = []
        self.attrs: dict[str, Any] = {}
        self.names: dict[Var, str] = {}  # that IRBuilder.name gives to variables
        self.name: str | None = None
        self.ret_ty: Any = None
        self.result: Any = None
        self.block: DataflowFrame | None = None
        self.function: BaseFunc | None = None  # when the frame is left

    def __enter__(self) -> FunctionFrame:
        from ...relax.block_builder import BlockBuilder

        self.owner = IRBuilder.current()
        if self.owner.function is not None:
            raise RuntimeError("a function is opened within another one; end that first")
        module = self.owner.module
        self.builder: BlockBuilder = BlockBuilder() if module is None else module.builder
        self.scope = self.builder.function(
            "main", None, self.attrs, pure=self.is_pure, private=True
        )
        self.scope.__enter__()
        self.owner.function = self
        return self

    def __exit__(self, kind: Any, error: Any, trace: TracebackType | None) -> None:
        try:
            if kind is None:
                self._finish()
        finally:
            self.owner.function = None
            self.scope.__exit__(kind or (None if self.function else RuntimeError), error, trace)
        if kind is None and self.owner.module is None:
            self.owner.finish(self.function)

    def _finish(self) -> None:
        if self.result is None:
            raise RuntimeError("the function has no result: call R.func_ret_value in it")
        if self.owner.module is not None and self.name is None:
            raise RuntimeError("a function of a module has a name: call R.func_name in it")
        if self.name is not None:
            self.scope.name = self.name
            if self.name in {str(v.name_hint) for v in self.builder.get().get_global_vars()}:
                raise RuntimeError(f"the module has a function {self.name} already")
            if not self.is_private:
                self.attrs.setdefault("global_symbol", self.name)
        self.scope.attrs, self.scope.ret_ty = self.attrs, self.ret_ty
        name = self.builder.emit_func_output(self.result, self.params)
        func = self.builder.get()[name]
        if self.names:
            func = _renamer(self.names).visit_expr(func)
            self.builder.update_func(name, func)
        self.function = func

    def arg(self, name: str, ty: Any) -> Var:
        self.params.append(Var(name, plain(ty), current_span()))
        return self.params[-1]

    def set_name(self, name: str) -> None:
        if self.name is not None:
            raise RuntimeError(f"the function is named {self.name} already")
        self.name = name

    def add_attrs(self, attrs: Mapping[str, Any]) -> None:
        self.attrs.update(attrs)

    def emit(self, value: Any, ty: Any = None) -> Var:
        builder = self.builder
        if ty is None:
            return builder.emit(value)
        from ...relax.expr import to_expr

        name = builder.get_unique_name("lv" if self.block is not None else "gv")
        block = builder.current_block_is_dataflow()
        return _bind(builder, to_expr(value), name, block, plain(ty), current_span())

    def output(self, values: tuple[Any, ...]) -> None:
        if self.block is None:
            raise RuntimeError("R.output belongs into a block: with R.dataflow():")
        self.block.outputs.extend(values)


class DataflowFrame:
    """A dataflow block; `output_vars` are its outputs as what follows the block names them."""

    def __init__(self, function: FunctionFrame) -> None:
        self.function = function
        self.outputs: list[Var] = []
        self.output_vars: list[Var] = []

    def __enter__(self) -> DataflowFrame:
        if self.function.block is not None:
            raise RuntimeError("R.dataflow is opened within a dataflow block; end that first")
        self.function.block = self
        self.scope = self.function.builder.dataflow()
        self.scope.__enter__()
        return self

    def __exit__(self, kind: Any, error: Any, trace: TracebackType | None) -> None:
        self.function.block = None
        self.scope.__exit__(kind, error, trace)
        if kind is None:
            self._name_outputs()

    def _name_outputs(self) -> None:
        """What leaves the block was bound before it was known to leave."""
        from ...relax.expr import Binding, DataflowBlock, MatchCast, VarBinding

        blocks = self.function.builder._blocks()
        bound = {b.var for b in blocks[-1].bindings} if blocks else set()
        outside = {}
        for v in self.outputs:
            if v not in bound:
                raise RuntimeError(f"R.output names {v}, which the block does not bind")
            outside[v] = Var(v.name_hint, v.ty, v.span)
        self.output_vars = [outside[v] for v in self.outputs]
        bindings: list[Binding] = []
        for b in blocks[-1].bindings if blocks else ():
            var, value = outside.get(b.var, b.var), _substitute(b.value, outside)
            if isinstance(b, MatchCast):
                bindings.append(MatchCast(var, value, b.ty, b.span))
            else:
                bindings.append(VarBinding(var, value, b.span))
        if blocks:
            blocks[-1] = DataflowBlock(bindings, blocks[-1].span)
