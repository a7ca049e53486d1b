# SPDX-License-Identifier: Apache-2.0
"""Tensor expressions in the graph language: a function of tensors becomes a tensor program and a call of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import _compiler
from ..ir.base import plain
from ..ir.expr import Expr, FloatImm, IntImm, Var, is_prim_expr
from ..relax.expr import Constant, ShapeExpr, Tuple
from ..relax.op.calls import call_tir
from ..relax.type import ShapeType, TensorType
from ..tirx.function import PrimFunc
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
    """Graph values met among the arguments, in order, and what stands for them: placeholders and scalar variables."""

    def __init__(self) -> None:
        self.values: list[Expr] = []
        self.stand_ins: list[Any] = []

    @property
    def tensors(self) -> list[Tensor]:
        return [t for t in self.stand_ins if isinstance(t, Tensor)]

    def used(self) -> list[tuple[Expr, Any]]:
        """Without scalars that are dimensions of a tensor: its shape gives them."""
        dims = [d for t in self.tensors for d in t.shape]
        pairs = zip(self.values, self.stand_ins)
        return [(v, s) for v, s in pairs if not any(_same(s, d) for d in dims)]

    def _scalar(self, arg: Expr) -> Var:
        """A variable in place of a scalar that only the running program knows."""
        for value, stand_in in zip(self.values, self.stand_ins):
            if value.same_as(arg):
                return stand_in
        var = arg if isinstance(arg, Var) else Var(f"s{len(self.values)}", arg.ty)
        self.values.append(arg)
        self.stand_ins.append(var)
        return var

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
        if is_prim_expr(arg) and not isinstance(arg, (IntImm, FloatImm)):
            return self._scalar(arg)
        if not isinstance(arg, Expr) or not isinstance(arg.ty, (TensorType, ShapeType)):
            return arg
        assert isinstance(arg.ty, TensorType), (
            f"emit_te cannot take {arg}: give its dimensions instead"
        )
        for value, stand_in in zip(self.values, self.stand_ins):
            if value.same_as(arg):
                return stand_in
        tensor = placeholder_of(arg, self._name(len(self.tensors)))
        self.values.append(arg)
        self.stand_ins.append(tensor)
        return tensor

    @staticmethod
    def _name(index: int) -> str:
        return chr(ord("A") + index) if index < 26 else f"rxplaceholder_{index}"


def _same(a: Any, b: Any) -> bool:
    return isinstance(a, Expr) and isinstance(b, Expr) and a.same_as(b)


def _program(
    inputs: list[Any], outputs: list[Tensor], sizes: list[Var], attrs: dict[str, Any]
) -> PrimFunc:
    """The tensor program; its parameters are `inputs` (placeholders and scalars) in order, results, sizes."""
    tensors = [i for i in inputs if isinstance(i, Tensor)]
    scalars = [i for i in inputs if not isinstance(i, Tensor)]
    program = _create(tensors, outputs, sizes + scalars)
    if scalars:
        params = list(program.params)
        buffers, numbers = iter(params[: len(tensors)]), iter(params[-len(scalars) :])
        last = params[len(tensors) : -len(scalars)]
        ordered = [next(buffers if isinstance(i, Tensor) else numbers) for i in inputs]
        program = PrimFunc(ordered + last, program.body, program.ret_type, program.attrs)
    return program.with_attrs({"tirx.noalias": True, **attrs})


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
    used = inputs.used()
    sizes = list(_free_sizes(inputs.tensors, outputs))
    sizes = [s for s in sizes if not any(_same(s, stand_in) for _, stand_in in used)]
    program = _program([stand_in for _, stand_in in used], outputs, sizes, attrs)
    types = [TensorType(list(o.shape), o.dtype) for o in outputs]
    return program, [value for value, _ in used], types if many else types[0], sizes, {"hint": hint}


def call_te(
    builder: Any,
    func: Callable[..., Any],
    args: Any,
    kwargs: dict[str, Any],
    make_call: Callable[..., Any] = call_tir,
) -> Any:
    """A call of the tensor program that `func` describes, which is added to the builder's module; `make_call` takes
    what call_tir does."""
    program, values, out_ty, sizes, info = gen_call_tir_inputs(func, args, dict(kwargs))
    hint = info["hint"] if str(info["hint"]).isidentifier() else "te_func"
    var = builder.add_func(program, hint)
    plain_values = (Var, Constant)
    bound = [
        v if isinstance(v, plain_values) or is_prim_expr(v) else builder.normalize(v)
        for v in values
    ]
    return make_call(var, Tuple(bound), out_ty, tir_vars=sizes or None)
