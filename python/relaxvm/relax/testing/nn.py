# SPDX-License-Identifier: Apache-2.0
"""Small models for tests, written in the manner of torch.nn: calling a module emits its operators into the function
that the current BlockBuilder builds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ... import topi
from ...ir.expr import Expr, Var
from ...ir.module import IRModule
from ...runtime import Tensor, tensor
from .. import op
from ..block_builder import BlockBuilder
from ..expr import Function
from ..type import TensorType


def emit(expr: Expr, name_hint: str = "") -> Var:
    """Binds `expr` in the current function."""
    return BlockBuilder.current().emit(expr, name_hint)


def emit_te(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Var:
    """Binds a call of the tensor program that `func` describes in the current function."""
    return BlockBuilder.current().emit_te(func, *args, **kwargs)


def _marked(values: Any, mark: Callable[[Expr], Expr], suffix: str) -> Any:
    """Every expression among `values`, nested in lists and dictionaries, under the mark."""
    if isinstance(values, Expr):
        return emit(mark(values), str(getattr(values, "name", "")) + suffix)
    if isinstance(values, (list, tuple)):
        return type(values)(_marked(v, mark, suffix) for v in values)
    if isinstance(values, dict):
        return {k: _marked(v, mark, suffix) for k, v in values.items()}
    return values


def checkpoint(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """`func(*args, **kwargs)` between the marks start_checkpoint and end_checkpoint: a gradient computes it again."""
    start, end = op.grad.start_checkpoint, op.grad.end_checkpoint  # type: ignore[attr-defined]

    def under(values: Any, mark: Callable[[Expr], Expr]) -> Any:
        if isinstance(values, Expr):
            return mark(values)
        if isinstance(values, (list, tuple)):
            return type(values)(under(v, mark) for v in values)
        if isinstance(values, dict):
            return {k: under(v, mark) for k, v in values.items()}
        return values

    return under(func(*under(args, start), **under(kwargs, start)), end)


def emit_checkpoint(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The same, with a variable for each mark: NAME_scp before, NAME_ecp behind."""
    start, end = op.grad.start_checkpoint, op.grad.end_checkpoint  # type: ignore[attr-defined]
    result = func(*_marked(args, start, "_scp"), **_marked(kwargs, start, "_scp"))
    return _marked(result, end, "_ecp")


def emit_checkpoint_sequential(
    functions: Sequence[Callable[..., Any]],
    segments: int | Sequence[int],
    input: Var,
    checkpoint_last: bool = False,
) -> Any:
    """Functions one after another, marked in segments: so many of about one length, or by where each begins.  The last
    segment is marked when `checkpoint_last`.  Raises ValueError for segments that do not begin within the functions."""
    count = len(functions)
    if isinstance(segments, int):
        if not 1 <= segments <= count:
            raise ValueError(f"{count} functions do not make {segments} segments")
        starts = [count // segments * k for k in range(segments)]
    else:
        starts = list(segments)
        if starts[:1] != [0]:
            starts = [0, *starts]
        if sorted(set(starts)) != starts or starts[-1] >= count:
            raise ValueError(f"segments {list(segments)} do not begin within {count} functions")

    def run(begin: int, end: int) -> Callable[[Any], Any]:
        def chain(value: Any) -> Any:
            for function in functions[begin:end]:
                value = function(value)
            return value

        return chain

    value: Any = input
    for begin, end in zip(starts, [*starts[1:], count]):
        if end == count and not checkpoint_last:
            value = run(begin, end)(value)
        else:
            value = emit_checkpoint(run(begin, end), value)
    return value


class Placeholder(Var):
    """A parameter of the function that stands for an input."""

    def __init__(self, shape: Sequence[Any], dtype: str = "float32", name: str = "data") -> None:
        super().__init__(name, TensorType(list(shape), dtype))


class Parameter(Var):
    """A parameter of the function that stands for a weight; `Module.parameters` finds it."""

    def __init__(self, shape: Sequence[Any], dtype: str = "float32", name: str = "param") -> None:
        super().__init__(name, TensorType(list(shape), dtype))


class Module:
    """Base of models: `forward` emits what the model computes, attributes hold weights and other modules."""

    def parameters(self) -> list[Var]:
        """All weights, in order of the attributes that hold them, each once."""
        found: list[Var] = []
        for value in self.__dict__.values():
            for weight in _weights(value):
                if not any(weight.same_as(known) for known in found):
                    found.append(weight)
        return found

    def forward(self, input: Any) -> Any:
        raise NotImplementedError

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.forward(*args, **kwargs)


def _weights(value: Any) -> list[Var]:
    if isinstance(value, Parameter):
        return [value]
    if isinstance(value, Module):
        return value.parameters()
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [weight for item in value for weight in _weights(item)]
    return []


class Sequential(Module):
    """Modules one after another."""

    def __init__(self, *modules: Module) -> None:
        self.modules = list(modules)

    def __iter__(self) -> Any:
        return iter(self.modules)

    def __getitem__(self, index: int) -> Module:
        return self.modules[index]

    def __len__(self) -> int:
        return len(self.modules)

    def forward(self, input: Any) -> Any:
        for module in self.modules:
            input = module(input)
        return input


class ReLU(Module):
    """max(x, 0)."""

    def forward(self, input: Any) -> Var:
        return emit_te(topi.nn.relu, input)


class LogSoftmax(Module):
    """log(softmax(x)) along the last axis."""

    def forward(self, input: Any) -> Var:
        return emit_te(topi.nn.log_softmax, input)


class Linear(Module):
    """x weight + bias; weight is (in_features, out_features)."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        self.in_features, self.out_features = in_features, out_features
        self.weight = Parameter((in_features, out_features), name="linear_weight")
        self.bias = Parameter((out_features,), name="linear_bias") if bias else None

    def forward(self, input: Any) -> Var:
        y = emit_te(topi.matmul, input, self.weight)
        return y if self.bias is None else emit_te(topi.add, y, self.bias)


def init_params(mod: IRModule) -> list[Tensor]:
    """Values for the parameters of `main`, by the variance of Xavier's rule; 1-dimensional ones are zero.

    Raises ValueError for a parameter of unknown or symbolic shape.
    """
    rng = np.random.default_rng(0)
    values = []
    main = mod["main"]
    assert isinstance(main, Function)
    for param in main.params:
        dims = getattr(getattr(param.ty, "shape", None), "values", None)
        if dims is None or not all(hasattr(d, "value") for d in dims):
            raise ValueError(f"parameter {param.name} of type {param.ty} has no constant shape")
        shape = tuple(int(d.value) for d in dims)
        fan = sum(shape[:2]) * int(np.prod(shape[2:])) if len(shape) > 1 else 0
        bound = (6.0 / fan) ** 0.5 if fan else 0.0
        values.append(tensor(rng.uniform(-bound, bound, shape).astype(str(param.ty.dtype))))
    return values
