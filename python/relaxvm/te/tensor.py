# SPDX-License-Identifier: Apache-2.0
"""Tensors of stages: placeholders, formulas, reductions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tvm_ffi
from tvm_ffi import Object

from .. import _compiler
from ..ir.base import plain
from ..ir.expr import Expr, Range, Var
from ..tirx.function import PrimFunc

_placeholder = _compiler.func("te.Placeholder")
_load = _compiler.func("te.Load")
_compute = _compiler.func("te.Compute")
_reduce = _compiler.func("te.Reduce")
_reduce_by = _compiler.func("te.ReduceBy")
_create = _compiler.func("te.CreatePrimFunc")


_SCALAR_NAMES = {"add": "add", "subtract": "subtract", "multiply": "multiply", "divide": "div"}


@tvm_ffi.register_object("relaxvm.te.Tensor")
class Tensor(Object):
    """A placeholder, or a result of a stage; `t[i, j]` or `t(i, j)` is an element."""

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def _with(self, other: Any, name: str, swap: bool = False) -> Tensor:
        """The operator with a tensor (broadcast), or with a number element by element."""
        if isinstance(other, Tensor):
            return _compiler.func("te.ApplyOperator")(name, [self, other], {})[0]
        from ..tirx import const, op

        number = const(other, self.dtype) if isinstance(other, (bool, int, float)) else plain(other)
        apply = getattr(op, _SCALAR_NAMES[name])

        def formula(*i: Any) -> Expr:
            return apply(number, self(*i)) if swap else apply(self(*i), number)

        return compute(self.shape, formula, name="compute")

    def __add__(self, other: Any) -> Tensor:
        return self._with(other, "add")

    def __radd__(self, other: Any) -> Tensor:
        return self._with(other, "add", True)

    def __sub__(self, other: Any) -> Tensor:
        return self._with(other, "subtract")

    def __rsub__(self, other: Any) -> Tensor:
        return self._with(other, "subtract", True)

    def __mul__(self, other: Any) -> Tensor:
        return self._with(other, "multiply")

    def __rmul__(self, other: Any) -> Tensor:
        return self._with(other, "multiply", True)

    def __truediv__(self, other: Any) -> Tensor:
        return self._with(other, "divide")

    def __rtruediv__(self, other: Any) -> Tensor:
        return self._with(other, "divide", True)

    def __neg__(self) -> Tensor:
        return _compiler.func("te.ApplyOperator")("negative", [self], {})[0]

    def __getitem__(self, index: Any) -> Expr:
        indices = list(index) if isinstance(index, (tuple, list)) else [index]
        return self(*indices)

    def __call__(self, *indices: Any) -> Expr:
        if len(indices) != len(self.shape):
            raise ValueError(
                f"tensor {self.name} has {len(self.shape)} dimensions and is indexed with {len(indices)}"
            )
        return _load(self, [plain(i) for i in indices])


def _shape(shape: Any) -> list[Any]:
    dims = [shape] if isinstance(shape, (int, Expr)) else list(shape)
    return [plain(d) for d in dims]


def var(name: str = "n", dtype: str = "int64") -> Var:
    """A symbolic size."""
    return Var(name, dtype)


def placeholder(shape: Any, dtype: Any = "float32", name: str = "placeholder") -> Tensor:
    """An input."""
    return _placeholder(name, _shape(shape), tvm_ffi.dtype(str(plain(dtype))))


class ReduceAxis:
    """An axis that a reduction runs over; stands for its variable in formulas."""

    def __init__(self, dom: Range, name: str) -> None:
        self.dom = dom
        self.var = Var(name, "int64")

    def as_object(self) -> Var:
        return self.var

    def __getattr__(self, name: str) -> Any:
        return getattr(self.var, name)


def _on_variable(name: str) -> Callable[..., Expr]:
    def function(self: ReduceAxis, *others: Any) -> Expr:
        return getattr(self.var, name)(*(plain(o) for o in others))

    function.__name__ = name
    return function


for _name in (
    "add radd sub rsub mul rmul floordiv rfloordiv mod rmod truediv rtruediv lt le gt ge neg lshift rshift and or xor"
).split():
    setattr(ReduceAxis, f"__{_name}__", _on_variable(f"__{_name}__"))


def reduce_axis(dom: Any, name: str = "rv", thread_tag: str = "", span: Any = None) -> ReduceAxis:
    """An axis over (begin, end)."""
    return ReduceAxis(dom if isinstance(dom, Range) else Range(*dom), name)


class _Reduction:
    """What te.sum and its kin give; only compute() takes it."""

    def __init__(self, kind: str, value: Any, axes: list[ReduceAxis]) -> None:
        self.kind, self.value, self.axes = kind, plain(value), axes


def _reduction(kind: str) -> Callable[..., _Reduction]:
    def reduce(expr: Any, axis: Any, where: Any = None, init: Any = None) -> _Reduction:
        axes = list(axis) if isinstance(axis, (list, tuple)) else [axis]
        return _Reduction(kind, expr, axes)

    reduce.__name__ = kind
    return reduce


class _OwnReduction:
    """What a reducer of comm_reducer gives; only compute() takes it."""

    def __init__(self, reducer: list[list[Any]], values: list[Expr], axes: list[Any]) -> None:
        self.reducer, self.values, self.axes = reducer, values, axes

    def stage(self, dims: list[Any], indices: list[Var], name: str) -> Any:
        count = len(self.values)
        names = [name] if count == 1 else [f"{name}.v{k}" for k in range(count)]
        axes = [a.var for a in self.axes]
        extents = [plain(a.dom.extent) for a in self.axes]
        made = _reduce_by(self.reducer, dims, indices, axes, extents, self.values, names)
        return made[0] if count == 1 else list(made)


def comm_reducer(
    fcombine: Callable[..., Any], fidentity: Callable[..., Any], name: str = "reduce"
) -> Callable[..., _OwnReduction]:
    """A reduction by a commutative function: `reducer(expr, axis=k)` in a formula of `compute`.

    `fcombine(x, y)` combines what has been accumulated with the next value, `fidentity(dtype)` is what it begins with.
    Several values at once (the greatest and its place) are tuples, `fidentity` gets each one's dtype.  Raises TypeError
    for values of other dtypes than those that are reduced.
    """

    def reduce(expr: Any, axis: Any, where: Any = None, init: Any = None) -> _OwnReduction:
        if where is not None or init is not None:
            raise NotImplementedError(f"{name}: where and init; use te.if_then_else in the value")
        several = isinstance(expr, (list, tuple))
        values = [_value(e) for e in (expr if several else [expr])]
        lhs, rhs = ([Var(f"{side}{i}", v.dtype) for i, v in enumerate(values)] for side in "xy")
        combined = fcombine(tuple(lhs), tuple(rhs)) if several else [fcombine(lhs[0], rhs[0])]
        identity = fidentity(*(str(v.dtype) for v in values))
        begin = identity if several else [identity]
        parts = [lhs, rhs, [plain(e) for e in combined], [plain(e) for e in begin]]
        return _OwnReduction(
            parts, values, list(axis) if isinstance(axis, (list, tuple)) else [axis]
        )

    reduce.__name__ = name
    return reduce


def _value(value: Any) -> Any:
    return value.var if isinstance(value, ReduceAxis) else plain(value)


sum, prod, max, min = map(_reduction, ("sum", "prod", "max", "min"))


def compute(
    shape: Any,
    fcompute: Callable[..., Any],
    name: str = "compute",
    tag: str = "",
    attrs: Any = None,
) -> Any:
    """out[i...] = fcompute(i...); several values give several tensors."""
    dims = _shape(shape)
    code = getattr(fcompute, "__code__", None)
    names = code.co_varnames[: code.co_argcount] if code else ()
    names = names if len(names) == len(dims) else tuple(f"i{k}" for k in range(len(dims)))
    indices = [Var(n, "int64") for n in names]
    value = fcompute(*indices)
    if isinstance(value, _OwnReduction):
        return value.stage(dims, indices, name)
    if isinstance(value, (tuple, list)):
        return [_stage(dims, indices, v, f"{name}.v{k}") for k, v in enumerate(value)]
    return _stage(dims, indices, value, name)


def _stage(dims: list[Any], indices: list[Var], value: Any, name: str) -> Tensor:
    if isinstance(value, _Reduction):
        axes = [a.var for a in value.axes]
        extents = [plain(a.dom.extent) for a in value.axes]
        return _reduce(value.kind, dims, indices, axes, extents, value.value, name)
    return _compute(dims, indices, plain(value), name)


def create_prim_func(ops: Sequence[Any], index_dtype_override: Any = None) -> PrimFunc:
    """The tensor program of a graph of tensors: its inputs, then its outputs (the last one given)."""
    tensors = list(ops)
    inputs = [t for t in tensors if t.stage is None]
    return _create(inputs, [t for t in tensors if t.stage is not None], [])
