# SPDX-License-Identifier: Apache-2.0
"""Small models for tests: modules that emit into the current BlockBuilder, and checkpoints around parts of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ... import runtime, topi
from ...ir.expr import Expr, IntImm, Var
from ...ir.module import IRModule
from .. import op
from ..block_builder import BlockBuilder
from ..expr import Function, ShapeExpr
from ..type import TensorType

_op: Any = op  # its functions are made from the table of operators
_topi: Any = topi


def _builder() -> BlockBuilder:
    builder = BlockBuilder.current()
    if builder is None:
        raise RuntimeError(
            "no function is being built: call this in `with BlockBuilder().function(...):`"
        )
    return builder


def emit(expr: Any, name_hint: str = "") -> Var:
    """Binds `expr` in the function that is being built."""
    return _builder().emit(expr, name_hint)


def emit_te(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Var:
    """Binds a call of the tensor program that `func` describes."""
    return _builder().emit_te(func, *args, **kwargs)


# ---- checkpoints


def checkpoint(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """`func` of marked arguments, its result marked: what it computes is not kept for the gradient."""
    start = _op.grad.start_checkpoint
    result = func(
        *(start(a) if isinstance(a, Expr) else a for a in args),
        **{k: start(v) if isinstance(v, Expr) else v for k, v in kwargs.items()},
    )
    if isinstance(result, Expr):
        return _op.grad.end_checkpoint(result)
    return [_op.grad.end_checkpoint(r) for r in result]


def emit_checkpoint(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """`checkpoint` whose marks are bound: arguments as NAME_scp, results as NAME_ecp."""

    def start(value: Any) -> Any:
        if not isinstance(value, Expr):
            return value
        var = value if isinstance(value, Var) else emit(value)
        return emit(_op.grad.start_checkpoint(var), f"{var.name}_scp")

    def end(var: Var) -> Var:
        return emit(_op.grad.end_checkpoint(var), f"{var.name}_ecp")

    started = [start(a) for a in args]
    result = func(*started, **{k: start(v) for k, v in kwargs.items()})
    if isinstance(result, Expr):
        return end(emit(result))
    return [end(r if isinstance(r, Var) else emit(r)) for r in result]


def emit_checkpoint_sequential(
    functions: Sequence[Callable[..., Any]],
    segments: int | Sequence[int],
    input: Var,
    checkpoint_last: bool = False,
) -> Any:
    """One function after another, each segment of them in a checkpoint, the last one only when said.

    segments: how many of equal length (what is left over is one more), or where each begins, from 0 on.
    Raises ValueError for segments that the functions cannot be divided into."""
    count = len(functions)
    if isinstance(segments, int):
        if not 1 <= segments <= count:
            raise ValueError(f"{count} functions cannot be divided into {segments} segments")
        starts = list(range(0, count, count // segments))
    else:
        starts = list(segments)
        if starts[:1] != [0] or sorted(set(starts)) != starts or starts[-1] >= count:
            raise ValueError(
                f"segments must begin at 0 and then at growing positions below {count}, got {starts}"
            )
    value: Any = input
    for begin, end in zip(starts, [*starts[1:], count]):
        part = functions[begin:end]

        def run(x: Any, part: Sequence[Callable[..., Any]] = part) -> Any:
            for function in part:
                x = function(x)
            return x

        kept = end == count and not checkpoint_last
        value = run(value) if kept else emit_checkpoint(run, value)
    return value


# ---- modules


def _unique_name(name: str) -> str:
    builder = BlockBuilder.current()
    return name if builder is None else builder.get_unique_name(name)


class Placeholder(Var):
    """An input of a model."""

    def __init__(self, shape: Sequence[Any], dtype: str = "float32", name: str = "data") -> None:
        super().__init__(_unique_name(name), TensorType(list(shape), dtype))


class Parameter(Var):
    """A weight of a model."""

    def __init__(self, shape: Sequence[Any], dtype: str = "float32", name: str = "param") -> None:
        super().__init__(_unique_name(name), TensorType(list(shape), dtype))


def _parameters(value: Any) -> Iterator[Parameter]:
    if isinstance(value, Parameter):
        yield value
    elif isinstance(value, Module):
        yield from value.parameters()
    elif isinstance(value, dict):
        for item in value.values():
            yield from _parameters(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _parameters(item)


class Module:
    """A part of a model; `forward` says what it computes of what it is called with."""

    def parameters(self) -> list[Parameter]:
        """The parameters in its attributes, in the order in which they were set."""
        return list(_parameters(list(self.__dict__.values())))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.forward(*args, **kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no forward")


class Sequential(Module):
    """Modules one after another."""

    def __init__(self, *modules: Module) -> None:
        self.modules = modules

    def forward(self, input: Expr) -> Expr:
        for module in self.modules:
            input = module(input)
        return input


class ReLU(Module):
    """max(x, 0) as a tensor program."""

    def forward(self, input: Expr) -> Var:
        return emit_te(_topi.nn.relu, input)


class LogSoftmax(Module):
    """log(softmax(x)) along the last axis as a tensor program."""

    def forward(self, input: Expr) -> Var:
        return emit_te(_topi.nn.log_softmax, input)


class Linear(Module):
    """x @ weight + bias as tensor programs; weight: [in_features, out_features]."""

    def __init__(self, in_features: Any, out_features: Any, bias: bool = True) -> None:
        self.in_features, self.out_features = in_features, out_features
        self.weight = Parameter((in_features, out_features), name="linear_weight")
        self.bias = Parameter((out_features,), name="linear_bias") if bias else None

    def forward(self, input: Expr) -> Var:
        product = emit_te(_topi.matmul, input, self.weight)
        return product if self.bias is None else emit_te(_topi.add, product, self.bias)


def init_params(mod: IRModule) -> list[runtime.Tensor]:
    """Random numbers of numpy.random between -1 and 1 for the tensors that `main` takes besides its data.

    Parameters whose names begin with "data" are data. Raises ValueError for sizes that are not known."""
    main = mod["main"]
    assert isinstance(main, Function)
    values = []
    for param in main.params:
        if str(param.name).startswith("data") or not isinstance(param.ty, TensorType):
            continue
        shape = param.ty.shape
        if not isinstance(shape, ShapeExpr) or not all(isinstance(d, IntImm) for d in shape.values):
            raise ValueError(f"parameter {param.name} is {param.ty}: its shape is not known")
        dims = [int(d) for d in shape.values]
        values.append(
            runtime.empty(dims, str(param.ty.dtype)).copyfrom(np.random.uniform(-1, 1, dims))
        )
    return values
