# SPDX-License-Identifier: Apache-2.0
"""Attributes of operators, and operators defined by their attributes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import _compiler
from .expr import Call, Op

_set_rule = _compiler.func("ops.SetRule")
_has_gradient = _compiler.func("ops.HasGradient")
_gradients = _compiler.func("relax.Builder_Gradients")
# What the compiler itself asks for; all else is kept for who asks by name.
_RULES = ("FInferType", "FLegalize", "FNormalize", "FPrimalGradient", "FPurity")
_attributes: dict[tuple[str, str], Any] = {}


def _rule(key: str, value: Any) -> Any:
    """A rule as the compiler calls it: with the call alone, or FLegalize and FPrimalGradient with the module that
    may grow."""
    if value is None or key == "FPurity":
        return value
    if key == "FLegalize":
        return legalize_rule(value)
    if key == "FPrimalGradient":
        return _gradient(value)

    def rule(call: Call) -> Any:
        from ..relax.block_builder import BlockBuilder

        builder = BlockBuilder()
        return value(call, builder) if key == "FInferType" else value(builder, call)

    return rule


def legalize_rule(value: Any) -> Any:
    """FLegalize(builder, call) as the compiler calls it: with the call, the module that may grow, and whether bindings
    stand in a dataflow block."""

    def rule(call: Call, mod: Any, dataflow: bool) -> list[Any]:
        from ..relax.block_builder import BlockBuilder

        builder = BlockBuilder(mod)
        if dataflow:
            builder._begin_dataflow_block()
        else:
            builder._begin_binding_block()
        made = value(builder, call)
        if not made.same_as(call):
            made = builder.normalize(made)
        return [builder._end_block(), made, builder.get()]

    return rule


def _gradient(value: Any) -> Any:
    def rule(out: Any, call: Call, grad: Any, mod: Any) -> list[Any]:
        from ..relax.block_builder import BlockBuilder

        builder = BlockBuilder(mod)
        builder._begin_dataflow_block()
        made = [
            None if _is_no_grad(g) else builder.normalize(g)
            for g in value(out, call, grad, builder)
        ]
        return [builder._end_block(), made, builder.get()]

    return rule


def _is_no_grad(grad: Any) -> bool:
    op = grad.op if isinstance(grad, Call) else None
    return isinstance(op, Op) and str(op.name) == "relax.grad.no_grad"


def set_op_attr(name: str, key: str, value: Any) -> None:
    """Sets (with None: takes away) an attribute of an operator."""
    if key in _RULES:
        _set_rule(name, key, _rule(key, value))
    if value is None:
        _attributes.pop((name, key), None)
    else:
        _attributes[(name, key)] = value


def op_attr(name: str, key: str) -> Any:
    """An attribute that Python has set; None where it has not."""
    return _attributes.get((name, key))


def register_op_attr(
    op_name: str, attr_key: str, value: Any = None, level: int = 10
) -> Callable[[Any], Any] | Any:
    """Sets an attribute of an operator, which is made when it is named for the first time; a decorator without a value.

    FInferType(call, builder) gives the type of a call, FNormalize(builder, call) its normal form, FLegalize(builder,
    call) what LegalizeOps puts in its place, FPrimalGradient(result, call, gradient, builder) the gradients of the
    arguments (grad.no_grad for one that has none); FPurity says whether calls have no effect."""
    if value is not None:
        set_op_attr(op_name, attr_key, value)
        return value

    def register(value: Any) -> Any:
        set_op_attr(op_name, attr_key, value)
        return value

    return register


def _own_gradient(out: Any, call: Call, grad: Any, builder: Any) -> list[Any]:
    """The gradients of the call's arguments by the operator's own rule, whose steps are bound in the builder."""
    return list(_gradients(builder, out, call, grad))


def _get_attr(self: Op, name: str) -> Any:
    """The attribute that Python has set; FPrimalGradient also of an operator with a rule of its own; or None."""
    value = op_attr(str(self.name), name)
    if value is None and name == "FPrimalGradient" and _has_gradient(self.name):
        return _own_gradient
    return value


def _has_attr(self: Op, name: str) -> bool:
    """Whether get_attr gives something."""
    return _get_attr(self, name) is not None


def _set_attr(self: Op, name: str, value: Any, level: int = 10) -> None:
    """Sets an attribute."""
    set_op_attr(str(self.name), name, value)


def _reset_attr(self: Op, name: str) -> None:
    """Takes an attribute away."""
    set_op_attr(str(self.name), name, None)


for _method in (_has_attr, _get_attr, _set_attr, _reset_attr):
    setattr(Op, _method.__name__.lstrip("_"), _method)
