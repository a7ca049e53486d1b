# SPDX-License-Identifier: Apache-2.0
"""Modules whose `forward` becomes a function of its own, called wherever the module is."""

from __future__ import annotations

import functools
import inspect
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from relaxvm.ir.expr import Expr, GlobalVar, Var
from relaxvm.relax.analysis import definable_tir_vars_in_type
from relaxvm.relax.block_builder import BlockBuilder
from relaxvm.relax.expr import ShapeExpr, Tuple
from relaxvm.relax.type import ShapeType, TensorType, TupleType

from .sizes import InnerSizes
from .tensor import (
    Effect,
    Object,
    Parameter,
    Tensor,
    bind,
    current_builder,
    unwrap_nested,
    wrap_nested,
)

if TYPE_CHECKING:
    from .module import Module


class _Roots(threading.local):
    def __init__(self) -> None:
        self.builders: list[BlockBuilder] = []


_roots = _Roots()


def module_builder() -> BlockBuilder:
    """The builder of the module; while a subroutine is traced, the current one builds only that function."""
    return _roots.builders[-1] if _roots.builders else current_builder()


def in_subroutine() -> bool:
    """Is the `forward` of a module with define_subroutine being traced?"""
    return bool(_roots.builders)


class SubroutineMixin:
    """With `define_subroutine = True` in its class, each distinct use of a module is one private function.

    Arguments are tensors, objects and nestings of them; what else `forward` takes must have a default.
    """

    define_subroutine: bool = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "forward" in vars(cls):
            cls.forward = _dispatch(vars(cls)["forward"])  # type: ignore[attr-defined]


def _dispatch(forward: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(forward)
    def call(self: Module, *args: Any, **kwargs: Any) -> Any:
        if not self.define_subroutine or BlockBuilder.current() is None:
            return forward(self, *args, **kwargs)
        bound = inspect.signature(forward).bind(self, *args, **kwargs)
        given = dict(list(bound.arguments.items())[1:])
        return _Subroutine(self, forward, given).call()

    return call


def snake_case(name: str) -> str:
    """my_block of MyBlock."""
    words = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", words).lower()


class _Subroutine:
    """One use of a module: its function's parameters are the arguments, then the parameters that it holds."""

    def __init__(
        self, module: Module, forward: Callable[..., Any], arguments: dict[str, Any]
    ) -> None:
        self.module, self.forward, self.arguments = module, forward, arguments
        self.name = snake_case(type(module).__name__)
        self.sizes = InnerSizes()
        self.params: list[Var] = []
        self.values: list[Any] = []

    def call(self) -> Any:
        root = module_builder()
        inner = {name: self._argument(value, name) for name, value in self.arguments.items()}
        weights = list(self.module.parameters())
        own = [self._param(w._expr, w._expr.name) for w in weights]
        self._pass_sizes()
        function, is_tensor = self._trace(inner, list(zip(weights, own)), root)
        result = bind(function(*self.values), f"{function.name_hint}_output")
        return wrap_nested(result, result.name) if is_tensor else Object(_expr=result, _name="")

    def _argument(self, value: Any, name: str) -> Any:
        """The argument as the function sees it."""
        if value is None:
            return None
        if isinstance(value, (list, tuple)):
            return tuple(self._argument(v, f"{name}_{i}") for i, v in enumerate(value))
        if isinstance(value, Tensor):
            return Tensor(_expr=self._param(value._expr, name))
        if isinstance(value, Object):
            inner = object.__new__(type(value))
            inner.__dict__.update(value.__dict__)
            inner._expr = self._param(value._expr, name)
            return inner
        if isinstance(value, Expr) and isinstance(value.ty, (TensorType, TupleType, ShapeType)):
            return self._param(value, name)
        raise TypeError(
            f"{type(self.module).__name__} has define_subroutine: its argument {name} must be a tensor, an object or"
            f" a tuple of these, not {type(value).__name__}; keep other values as attributes of the module"
        )

    def _param(self, value: Expr, name: str) -> Var:
        var = Var(name, self._own_type(value.ty))
        self.params.append(var)
        self.values.append(value)
        return var

    def _own_type(self, ty: Any) -> Any:
        if isinstance(ty, TensorType) and ty.shape is not None:
            sizes = [self.sizes.own(s) for s in ty.shape.values]
            return TensorType(sizes, ty.dtype, ty.vdevice)
        if isinstance(ty, ShapeType) and ty.values is not None:
            return ShapeType([self.sizes.own(s) for s in ty.values])
        if isinstance(ty, TupleType):
            return TupleType([self._own_type(f) for f in ty.fields])
        return ty

    def _pass_sizes(self) -> None:
        """Hands over the sizes that no parameter has as a dimension, only within an expression."""
        known = set(definable_tir_vars_in_type(TupleType([p.ty for p in self.params])))
        for outer, inner in self.sizes.of_outer.items():
            if inner not in known:
                self.params.append(Var(inner.name, ShapeType([inner])))
                self.values.append(ShapeExpr([outer]))

    def _trace(
        self, arguments: dict[str, Any], weights: list[tuple[Parameter, Var]], root: BlockBuilder
    ) -> tuple[GlobalVar, bool]:
        inner = BlockBuilder()
        outer = [w._expr for w, _ in weights]
        effects = [effect for _, effect in self.module._find(Effect, "")]
        if effects:
            raise RuntimeError(
                f"{type(self.module).__name__} holds state ({type(effects[0]).__name__}); a module with"
                " define_subroutine cannot: leave define_subroutine out"
            )
        try:
            for weight, var in weights:
                weight._expr = var
            with _root(root), inner.function(self.name, self.params, private=True):
                with inner.dataflow():
                    result = self.forward(self.module, **arguments)
                    is_tensor = not isinstance(result, Object)
                    body = inner.emit_output(_as_expr(unwrap_nested(result)))
                inner.emit_func_output(body)
        finally:
            for (weight, _), expr in zip(weights, outer):
                weight._expr = expr
        return root.add_func(inner.get()[self.name], self.name), is_tensor


def _as_expr(value: Any) -> Expr:
    return Tuple([_as_expr(v) for v in value]) if isinstance(value, tuple) else value


@contextmanager
def _root(builder: BlockBuilder) -> Iterator[None]:
    _roots.builders.append(builder)
    try:
        yield
    finally:
        _roots.builders.pop()
