# SPDX-License-Identifier: Apache-2.0
"""Arithmetic, comparisons and activations, element by element; `name` is that of the variable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from relaxvm.ir.expr import Call
from relaxvm.relax import op

from ..tensor import Tensor, expr_of, wrap_nested

Unary = Callable[..., Tensor]


def _unary(record: Callable[[Any], Call], default: str, doc: str) -> Unary:
    def apply(x: Tensor, name: str = default) -> Tensor:
        return wrap_nested(record(expr_of(x)), name)

    apply.__name__ = apply.__qualname__ = default
    apply.__doc__ = doc
    return apply


def _record(operator: Callable[[Any, Any], Call], left: Any, right: Any, name: str) -> Tensor:
    return wrap_nested(operator(expr_of(left), expr_of(right, left)), name)


def _binary(record: Callable[[Any, Any], Call], default: str, doc: str) -> Callable[..., Tensor]:
    def apply(a: Tensor, b: Tensor, name: str = default) -> Tensor:
        return _record(record, a, b, name)

    apply.__name__ = apply.__qualname__ = default
    apply.__doc__ = doc
    return apply


add = _binary(op.add, "add", "a + b, broadcast.")
subtract = _binary(op.subtract, "subtract", "a - b, broadcast.")
multiply = _binary(op.multiply, "mul", "a * b, broadcast.")
divide = _binary(op.divide, "divide", "a / b, broadcast; integers are divided towards zero.")
less = _binary(op.less, "less", "a < b, broadcast.")
less_equal = _binary(op.less_equal, "less_equal", "a <= b, broadcast.")
greater = _binary(op.greater, "greater", "a > b, broadcast.")
greater_equal = _binary(op.greater_equal, "greater_equal", "a >= b, broadcast.")
equal = _binary(op.equal, "equal", "a == b, broadcast.")
not_equal = _binary(op.not_equal, "not_equal", "a != b, broadcast.")

relu = _unary(op.nn.relu, "relu", "max(x, 0).")
silu = _unary(op.nn.silu, "silu", "x * sigmoid(x).")
sigmoid = _unary(op.sigmoid, "sigmoid", "1 / (1 + exp(-x)).")
tanh = _unary(op.tanh, "tanh", "The hyperbolic tangent.")
exp = _unary(op.exp, "exp", "e to the power of x.")
log = _unary(op.log, "log", "The natural logarithm.")
floor = _unary(op.floor, "floor", "The largest integer not above x.")
sqrt = _unary(op.sqrt, "sqrt", "The square root.")
square = _unary(op.square, "square", "x * x.")
negative = _unary(op.negative, "neg", "-x.")
relu6 = _unary(op.nn.relu6, "relu6", "min(max(x, 0), 6).")


def maximum(x1: Tensor, x2: Tensor, name: str = "maximum") -> Tensor:
    """The larger of both, broadcast."""
    return _record(op.maximum, x1, x2, name)


def minimum(x1: Tensor, x2: Tensor, name: str = "minimum") -> Tensor:
    """The smaller of both, broadcast."""
    return _record(op.minimum, x1, x2, name)


def gelu(x: Tensor, approximate: str | None = None, name: str = "gelu") -> Tensor:
    """x times the normal distribution's cumulative function; "tanh" approximates it."""
    if approximate not in (None, "none", "tanh"):
        raise ValueError(f'gelu: approximate is None or "tanh", not {approximate!r}')
    record = op.nn.gelu_tanh if approximate == "tanh" else op.nn.gelu
    return wrap_nested(record(expr_of(x)), name)


def softplus(
    x: Tensor, beta: float = 1.0, threshold: float = 20.0, name: str = "softplus"
) -> Tensor:
    """log(1 + exp(beta * x)) / beta; x itself where beta * x is above the threshold."""
    return wrap_nested(op.nn.softplus(expr_of(x), beta=beta, threshold=threshold), name)


def prelu(x: Tensor, alpha: Tensor, name: str = "prelu") -> Tensor:
    """x where positive, else alpha * x; `alpha` has one value for each channel (dimension 1)."""
    return wrap_nested(op.nn.prelu(expr_of(x), expr_of(alpha)), name)


def astype(x: Tensor, dtype: str, name: str = "astype") -> Tensor:
    """x in another element type; x itself when it has that type."""
    if str(x.dtype) == str(dtype):
        return x
    return wrap_nested(op.astype(expr_of(x), dtype), name)


def where(condition: Tensor, x1: Tensor, x2: Tensor, name: str = "where") -> Tensor:
    """x1 where the condition holds, else x2; a condition that is not bool holds where it is not zero."""
    chosen = astype(condition, "bool")
    return wrap_nested(op.where(expr_of(chosen), expr_of(x1), expr_of(x2, x1)), name)
