# SPDX-License-Identifier: Apache-2.0
"""Elementwise operators: arithmetic, comparison, logic, bits, conversion, selection."""

from __future__ import annotations

import functools

import numpy as np

from relaxvm.relax import op
from relaxvm.relax.op import call_operator

from ..element_types import carrier, converted
from ..errors import UnsupportedModel
from ..graph import Graph
from ..registry import Expr, onnx_op
from ..values import Known, Value

# ONNX name -> the operator of the same meaning
_UNARY = {
    "Abs": "abs",
    "Acos": "acos",
    "Acosh": "acosh",
    "Asin": "asin",
    "Asinh": "asinh",
    "Atan": "atan",
    "Atanh": "atanh",
    "BitwiseNot": "bitwise_not",
    "Ceil": "ceil",
    "Cos": "cos",
    "Cosh": "cosh",
    "Erf": "erf",
    "Exp": "exp",
    "Floor": "floor",
    "IsNaN": "isnan",
    "Log": "log",
    "Neg": "negative",
    "Not": "logical_not",
    "Round": "round",
    "Sigmoid": "sigmoid",
    "Sign": "sign",
    "Sin": "sin",
    "Sinh": "sinh",
    "Sqrt": "sqrt",
    "Tan": "tan",
    "Tanh": "tanh",
}
_BINARY = {
    "Add": "add",
    "And": "logical_and",
    "BitwiseAnd": "bitwise_and",
    "BitwiseOr": "bitwise_or",
    "BitwiseXor": "bitwise_xor",
    "Div": "divide",
    "Equal": "equal",
    "Greater": "greater",
    "GreaterOrEqual": "greater_equal",
    "Less": "less",
    "LessOrEqual": "less_equal",
    "Mul": "multiply",
    "Or": "logical_or",
    "Sub": "subtract",
    "Xor": "logical_xor",
}
_VARIADIC = {"Max": "maximum", "Min": "minimum", "Sum": "add"}


def _unary(name, ours):
    @onnx_op(name, since=1)
    def rule(x: Expr) -> Expr:
        return call_operator(ours, [x])


def _binary(name, ours):
    @onnx_op(name, since=7)
    def rule(g: Graph, a: Expr, b: Expr) -> Expr:
        return call_operator(ours, g.agree(a, b))


def _variadic(name, ours):
    @onnx_op(name, since=6)
    def rule(g: Graph, x: Expr, *rest: Expr) -> Expr:
        step = lambda a, b: call_operator(ours, [a, b])
        return functools.reduce(step, g.agree(x, *rest))


for _name, _ours in _UNARY.items():
    _unary(_name, _ours)
for _name, _ours in _BINARY.items():
    _binary(_name, _ours)
for _name, _ours in _VARIADIC.items():
    _variadic(_name, _ours)


@onnx_op("Mean", since=6)
def mean(g: Graph, x: Expr, *rest: Expr) -> Expr:
    total = functools.reduce(op.add, g.agree(x, *rest))
    return op.divide(total, g.scalar(len(rest) + 1, x))


@onnx_op("Reciprocal", since=6)
def reciprocal(g: Graph, x: Expr) -> Expr:
    return op.divide(g.scalar(1, x), x)


@onnx_op("IsInf", since=10)
def is_inf(g: Graph, x: Expr, *, detect_negative: int = 1, detect_positive: int = 1) -> Expr:
    found = op.isinf(x)
    if detect_negative and detect_positive:
        return found
    if not detect_negative and not detect_positive:
        return op.logical_and(found, g.constant(False))
    side = op.greater if detect_positive else op.less
    return op.logical_and(found, side(x, g.scalar(0, x)))


@onnx_op("Mod", since=10)
def mod(g: Graph, a: Expr, b: Expr, *, fmod: int = 0) -> Expr:
    """`fmod=1`: the remainder has the sign of the dividend, else of the divisor."""
    a, b = g.agree(a, b)
    return op.mod(a, b) if fmod else op.floor_mod(a, b)


@onnx_op("Pow", since=7)
def power(g: Graph, base: Expr, exponent: Value) -> Expr:
    """The exponent may have another element type; the result has that of the base."""
    dtype = g.dtype(base)
    if isinstance(exponent, Known) and exponent.is_constant and exponent.array.size == 1:
        value = exponent.array.reshape(()).item()
        if value in (2, 3) and exponent.array.ndim <= g.rank(base):
            square = op.multiply(base, base)
            return square if value == 2 else op.multiply(square, base)
        if value == 0.5 and dtype.startswith("float") and exponent.array.ndim <= g.rank(base):
            return op.sqrt(base)
    base, other = g.agree(base, g.as_expr(exponent, "exponent"))
    if g.dtype(other) == dtype:
        return op.power(base, other)
    if np.dtype(g.dtype(other)).kind in "iu" or dtype.startswith("float"):
        return op.power(base, op.astype(other, dtype))
    wide = op.power(op.astype(base, g.dtype(other)), other)
    return op.astype(wide, dtype)


@onnx_op("BitShift", since=11)
def bit_shift(g: Graph, a: Expr, b: Expr, *, direction: str) -> Expr:
    shift = {"LEFT": op.left_shift, "RIGHT": op.right_shift}[direction]
    return shift(*g.agree(a, b))


@onnx_op("Where", since=9)
def where(g: Graph, condition: Expr, a: Expr, b: Expr) -> Expr:
    return op.where(*g.agree(condition, a, b))


@onnx_op("Cast", since=6)
def cast(g: Graph, x: Expr, *, to: int, saturate: int = 1, round_mode: str = "up") -> Expr:
    g.set_output_type(0, to)
    return converted(g, x, to, bool(saturate), round_mode)


@onnx_op("CastLike", since=15)
def cast_like(g: Graph, x: Expr, like: Value, *, saturate: int = 1, round_mode: str = "up") -> Expr:
    elem_type = g.input_type(1)
    g.set_output_type(0, elem_type)
    return converted(g, x, elem_type, bool(saturate), round_mode)


@onnx_op("BitCast", since=26)
def bit_cast(g: Graph, x: Expr, *, to: int) -> Expr:
    """The same bits as elements of another type of that size."""
    dtype = carrier(to)
    if np.dtype(dtype).itemsize != np.dtype(g.dtype(x)).itemsize:
        raise UnsupportedModel(f"elements of type {g.dtype(x)} have another size than {dtype}")
    return op.memory.view(g.emit(x), g.shape(x), dtype)


@onnx_op("Clip", since=6)
def clip_6(
    g: Graph,
    x: Expr,
    *,
    max: float = float(np.finfo("f4").max),
    min: float = -float(np.finfo("f4").max),
) -> Expr:
    return op.clip(x, min, max)


@onnx_op("Clip", since=11)
def clip(g: Graph, x: Expr, low: Value | None = None, high: Value | None = None) -> Expr:
    low, high = (None if b is None else _number(b) for b in (low, high))
    numbers = [b for b in (low, high) if b is None or isinstance(b, (int, float))]
    if len(numbers) == 2 and low is not None and high is not None:
        return op.clip(x, low, high)
    if low is not None:
        x = g.emit(op.maximum(x, _bound(g, low, x)))
    if high is not None:
        x = op.minimum(x, _bound(g, high, x))
    return x


def _number(bound):
    constant = isinstance(bound, Known) and bound.is_constant and bound.array.size == 1
    return bound.array.reshape(()).item() if constant else bound


def _bound(g, bound, x):
    if isinstance(bound, (int, float)):
        return g.scalar(bound, x)
    expr = g.as_expr(bound, "bound")
    return expr if g.rank(expr) == 0 else op.reshape(expr, [])
