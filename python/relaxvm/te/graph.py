# SPDX-License-Identifier: Apache-2.0
"""Tensor expressions in the graph language: a function of tensors becomes a tensor program and a call of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import _compiler
from ..ir.base import plain
from ..ir.expr import Expr, Var
from ..relax.expr import Constant, ShapeExpr, Tuple
from ..relax.op.calls import call_tir
from ..relax.type import ShapeType, TensorType
from .tensor import Tensor, placeholder

_create = _compiler.func("te.CreatePrimFunc")
_free_sizes = _compiler.func("te.FreeSizes")


def placeholder_of(value: Expr, name: str) -> Tensor:
    """A placeholder with the type of a graph value."""
    ty = value.ty
    if not isinstance(ty, TensorType) or not isinstance(ty.shape, ShapeExpr):
        raise ValueError(f"{value} is no tensor of known shape; emit_te cannot take it")
    return placeholder(list(ty.shape.values), ty.dtype, name)


class _Inputs:
    """Graph values met among the arguments, and their placeholders."""

    def __init__(self) -> None:
        self.values: list[Expr] = []
        self.tensors: list[Tensor] = []

    def convert(self, arg: Any) -> Any:
        arg = plain(arg)
        if isinstance(arg, (Tuple,)):
            return [self.convert(f) for f in arg]
        if isinstance(arg, (list, tuple)):
            return type(arg)(self.convert(a) for a in arg)
        if isinstance(arg, dict):
            return {k: self.convert(v) for k, v in arg.items()}
        if isinstance(arg, ShapeExpr):
            return list(arg.values)
        if not isinstance(arg, Expr) or not isinstance(arg.ty, (TensorType, ShapeType)):
            return arg
        assert isinstance(arg.ty, TensorType), (
            f"emit_te cannot take {arg}: give its dimensions instead"
        )
        for value, tensor in zip(self.values, self.tensors):
            if value.same_as(arg):
                return tensor
        tensor = placeholder_of(arg, self._name(len(self.values)))
        self.values.append(arg)
        self.tensors.append(tensor)
        return tensor

    @staticmethod
    def _name(index: int) -> str:
        return chr(ord("A") + index) if index < 26 else f"rxplaceholder_{index}"


def gen_call_tir_inputs(
    func: Callable[..., Any], args: Any, kwargs: dict[str, Any]
) -> tuple[Any, list[Expr], Any, list[Var], dict[str, Any]]:
    """The tensor program, its arguments, its result's type, the sizes that no argument's shape gives."""
    attrs = dict(kwargs.pop("primfunc_attrs", None) or {})
    hint = kwargs.pop("primfunc_name_hint", None) or getattr(func, "__name__", "te_func")
    inputs = _Inputs()
    results = func(
        *(inputs.convert(a) for a in args), **{k: inputs.convert(v) for k, v in kwargs.items()}
    )
    many = isinstance(results, (list, tuple))
    outputs = list(results) if many else [results]
    for out in outputs:
        if not isinstance(out, Tensor):
            raise TypeError(f"{hint} must give tensors, not {type(out).__name__}")
    sizes = list(_free_sizes(inputs.tensors, outputs))
    program = _create(inputs.tensors, outputs, sizes).with_attrs({"tirx.noalias": True, **attrs})
    types = [TensorType(list(o.shape), o.dtype) for o in outputs]
    return program, inputs.values, types if many else types[0], sizes, {"hint": hint}


def call_te(builder: Any, func: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    """A call_tir of the tensor program that `func` describes, which is added to the builder's module."""
    program, values, out_ty, sizes, info = gen_call_tir_inputs(func, args, dict(kwargs))
    hint = info["hint"] if str(info["hint"]).isidentifier() else "te_func"
    var = builder.add_func(program, hint)
    bound = [v if isinstance(v, (Var, Constant)) else builder.normalize(v) for v in values]
    return call_tir(var, Tuple(bound), out_ty, sizes or None)
