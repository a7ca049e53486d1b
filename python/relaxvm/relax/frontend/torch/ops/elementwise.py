# SPDX-License-Identifier: Apache-2.0
"""Elementwise operators: functions, activations, arithmetic, comparison, logic, bits, conversion, selection."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from relaxvm.relax import op
from relaxvm.relax.op import call_operator

from ..errors import refuse_training
from ..graph import Graph, dtype_name
from ..registry import aten_op

# PyTorch's name -> the operator of the same meaning
_FUNCTIONS = {
    "abs": "abs",
    "acos": "acos",
    "acosh": "acosh",
    "asin": "asin",
    "asinh": "asinh",
    "atan": "atan",
    "atanh": "atanh",
    "bitwise_not": "bitwise_not",
    "ceil": "ceil",
    "cos": "cos",
    "cosh": "cosh",
    "digamma": "rvm.digamma",
    "erf": "erf",
    "erfc": "rvm.erfc",
    "erfinv": "rvm.erfinv",
    "exp": "exp",
    "exp2": "rvm.exp2",
    "expm1": "rvm.expm1",
    "floor": "floor",
    "lgamma": "rvm.lgamma",
    "log": "log",
    "log10": "rvm.log10",
    "log1p": "rvm.log1p",
    "log2": "rvm.log2",
    "neg": "negative",
    "relu": "nn.relu",
    "round": "round",
    "rsqrt": "rsqrt",
    "sigmoid": "sigmoid",
    "sign": "sign",
    "silu": "nn.silu",
    "sin": "sin",
    "sinh": "sinh",
    "sqrt": "sqrt",
    "square": "square",
    "tan": "tan",
    "tanh": "tanh",
    "trunc": "trunc",
}
_WHOLE = {"ceil", "floor", "round", "trunc"}  # of integers: themselves
_TESTS = {"isfinite": "isfinite", "isinf": "isinf", "isnan": "isnan"}
_COMPARISONS = {
    "eq": "equal",
    "ge": "greater_equal",
    "gt": "greater",
    "le": "less_equal",
    "lt": "less",
    "ne": "not_equal",
}
_ARITHMETIC = {
    "atan2": "atan2",
    "bitwise_and": "bitwise_and",
    "bitwise_left_shift": "left_shift",
    "bitwise_or": "bitwise_or",
    "bitwise_right_shift": "right_shift",
    "bitwise_xor": "bitwise_xor",
    "fmod": "mod",
    "maximum": "maximum",
    "minimum": "minimum",
    "mul": "multiply",
    "pow": "power",
    "remainder": "floor_mod",
}
_OF_BOOLS = {
    "add": "logical_or",
    "maximum": "logical_or",
    "minimum": "logical_and",
    "multiply": "logical_and",
}
_OF_TWO = {"default", "Tensor", "Scalar", "Scalar_Tensor", "Tensor_Scalar", "Tensor_Tensor"}
_LOGICAL = ("logical_and", "logical_or", "logical_xor")


def _register_functions() -> None:
    for name, ours in _FUNCTIONS.items():

        @aten_op(f"{name}.default")
        def function(g: Graph, x: Any, name: str = name, ours: str = ours) -> Any:
            x = g.cast(x, g.result_dtype())
            return x if name in _WHOLE and not g.is_float(x) else call_operator(ours, [x])

    for name, ours in _TESTS.items():

        @aten_op(f"{name}.default")
        def test(g: Graph, x: Any, ours: str = ours) -> Any:
            return call_operator(ours, [x if g.is_float(x) else g.cast(x, "float32")])

    for name, ours in _COMPARISONS.items():

        @aten_op(f"{name}.Tensor", f"{name}.Scalar")
        def comparison(g: Graph, a: Any, b: Any, ours: str = ours) -> Any:
            return call_operator(ours, g.agree(a, b))

    for name, ours in _ARITHMETIC.items():
        overloads = set(getattr(torch.ops.aten, name).overloads()) & _OF_TWO

        @aten_op(*(f"{name}.{o}" for o in sorted(overloads)))
        def arithmetic(g: Graph, a: Any, b: Any, ours: str = ours) -> Any:
            return _binary(g, ours, a, b)

    for name in _LOGICAL:

        @aten_op(f"{name}.default")
        def logical(g: Graph, a: Any, b: Any, name: str = name) -> Any:
            return call_operator(name, g.agree(a, b, dtype="bool"))

    for sign, ours in (
        ("and", "bitwise_and"),
        ("or", "bitwise_or"),
        ("xor", "bitwise_xor"),
        ("lshift", "left_shift"),
        ("rshift", "right_shift"),
    ):

        @aten_op(f"__{sign}__.Tensor", f"__{sign}__.Scalar")
        def bits(g: Graph, a: Any, b: Any, ours: str = ours) -> Any:
            return _binary(g, ours, a, b)


def _binary(g: Graph, ours: str, a: Any, b: Any) -> Any:
    dtype = g.result_dtype()
    if dtype == "bool":
        ours = _OF_BOOLS.get(ours, ours)
    return call_operator(ours, g.agree(a, b, dtype=dtype))


_register_functions()


# ---- arithmetic with options


def _scaled(g: Graph, x: Any, alpha: float) -> Any:
    dtype = g.result_dtype()
    x = g.cast(x, dtype)
    return x if alpha == 1 else g.emit(op.multiply(x, g.number(alpha, dtype)))


@aten_op("add.Tensor", "add.Scalar")
def add(g: Graph, a: Any, b: Any, alpha: float = 1) -> Any:
    if g.result_dtype() == "bool":
        return _binary(g, "add", a, b)
    return op.add(g.cast(a, g.result_dtype()), _scaled(g, b, alpha))


@aten_op("sub.Tensor", "sub.Scalar")
def sub(g: Graph, a: Any, b: Any, alpha: float = 1) -> Any:
    return op.subtract(g.cast(a, g.result_dtype()), _scaled(g, b, alpha))


@aten_op("rsub.Tensor", "rsub.Scalar")
def rsub(g: Graph, a: Any, b: Any, alpha: float = 1) -> Any:
    return op.subtract(g.cast(b, g.result_dtype()), _scaled(g, a, alpha))


@aten_op("div.Tensor", "div.Scalar")
def div(g: Graph, a: Any, b: Any) -> Any:
    return _binary(g, "divide", a, b)


@aten_op("div.Tensor_mode", "div.Scalar_mode")
def div_mode(g: Graph, a: Any, b: Any, rounding_mode: str | None = None) -> Any:
    if rounding_mode == "floor":
        return _binary(g, "floor_divide", a, b)
    quotient = _binary(g, "divide", a, b)  # of integers: towards 0
    exact = rounding_mode is None or not g.result_dtype().startswith(("float", "bfloat"))
    return quotient if exact else op.trunc(g.emit(quotient))


@aten_op("floor_divide.default", "floor_divide.Scalar")
def floor_divide(g: Graph, a: Any, b: Any) -> Any:
    return _binary(g, "floor_divide", a, b)


@aten_op("max.other", "fmax.default")
def fmax(g: Graph, a: Any, b: Any) -> Any:
    return _ignoring_nan(g, "maximum", a, b)


@aten_op("min.other", "fmin.default")
def fmin(g: Graph, a: Any, b: Any) -> Any:
    return _ignoring_nan(g, "minimum", a, b)


def _ignoring_nan(g: Graph, ours: str, a: Any, b: Any) -> Any:
    """A NaN gives way to the other number, but for the operators of NumPy's kind."""
    result = _binary(g, ours, a, b)
    if g.node.target.name().startswith("aten::m") or g.result_dtype().startswith(
        ("int", "uint", "bool")
    ):
        return result
    a, b = g.agree(a, b, dtype=g.result_dtype())
    kept = g.emit(op.where(g.emit(op.isnan(b)), a, g.emit(result)))
    return op.where(g.emit(op.isnan(a)), b, kept)


@aten_op("hypot.default")
def hypot(g: Graph, a: Any, b: Any) -> Any:
    squares = [g.emit(op.multiply(v, v)) for v in g.agree(a, b, dtype=g.result_dtype())]
    return op.sqrt(g.emit(op.add(*squares)))


@aten_op("gcd.default")
def gcd(g: Graph, a: Any, b: Any) -> Any:
    """Euclid's: numbers of so many bits need at most 1.45 steps a bit (Lame, 1844)."""
    dtype = g.common_dtype()
    a, b = (g.emit(op.abs(v)) for v in g.agree(a, b))
    zero, one = g.const(0, dtype), g.const(1, dtype)
    bits = np.iinfo(dtype).bits
    for _ in range(math.ceil(1.45 * bits)):
        is_found = g.emit(op.equal(b, zero))
        rest = g.emit(op.mod(a, g.emit(op.where(is_found, one, b))))
        a, b = g.emit(op.where(is_found, a, b)), g.emit(op.where(is_found, zero, rest))
    return a


@aten_op("lcm.default")
def lcm(g: Graph, a: Any, b: Any) -> Any:
    common = g.emit(gcd(g, a, b))
    a, b = g.agree(a, b)
    parts = g.emit(op.divide(a, g.emit(op.maximum(common, g.const(1, g.dtype(common))))))
    return op.abs(g.emit(op.multiply(parts, b)))


@aten_op("copysign.Tensor", "copysign.Scalar")
def copysign(g: Graph, a: Any, b: Any) -> Any:
    a, b = g.agree(a, b, dtype=g.result_dtype())
    size = g.emit(op.abs(a))
    return op.where(_has_sign(g, b), g.emit(op.negative(size)), size)


@aten_op("angle.default")
def angle(g: Graph, x: Any) -> Any:
    """Of real numbers: pi below 0."""
    x = g.cast(x, g.result_dtype())
    zero, half_turn = (g.const(v, g.dtype(x)) for v in (0.0, math.pi))
    angles = g.emit(op.where(g.emit(op.less(x, zero)), half_turn, zero))
    return op.where(g.emit(op.isnan(x)), x, angles)


@aten_op("signbit.default")
def signbit(g: Graph, x: Any) -> Any:
    return _has_sign(g, x)


def _has_sign(g: Graph, x: Any) -> Any:
    """Is the sign bit set?  -0 is told by its reciprocal."""
    dtype = g.dtype(x)
    below = g.emit(op.less(x, g.const(0, dtype)))
    if not g.is_float(x):
        return below
    inverse = g.emit(op.less(g.emit(op.divide(g.const(1, dtype), x)), g.const(0, dtype)))
    return g.emit(op.where(g.emit(op.equal(x, g.const(0, dtype))), inverse, below))


@aten_op("ldexp.Tensor")
def ldexp(g: Graph, a: Any, b: Any) -> Any:
    dtype = g.result_dtype()
    powers = g.emit(op.power(g.const(2, dtype), g.cast(b, dtype)))
    return op.multiply(g.cast(a, dtype), powers)


# ---- functions


@aten_op("reciprocal.default")
def reciprocal(g: Graph, x: Any) -> Any:
    dtype = g.result_dtype()
    return op.divide(g.const(1, dtype), g.cast(x, dtype))


@aten_op("logical_not.default")
def logical_not(g: Graph, x: Any) -> Any:
    return op.logical_not(g.cast(x, "bool"))


@aten_op("round.decimals")
def round_decimals(g: Graph, x: Any, decimals: int = 0) -> Any:
    factor = g.const(10.0**decimals, g.dtype(x))
    return op.divide(g.emit(op.round(g.emit(op.multiply(x, factor)))), factor)


# ---- activations


@aten_op("elu.default")
def elu(g: Graph, x: Any, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Any:
    dtype = g.dtype(x)
    inner = x if input_scale == 1 else g.emit(op.multiply(x, g.const(input_scale, dtype)))
    below = g.emit(op.nn.relu(g.emit(op.negative(g.emit(op.rvm.expm1(inner))))))
    below = g.emit(op.multiply(g.const(-alpha * scale, dtype), below))
    above = g.emit(op.nn.relu(x))
    if scale != 1:
        above = g.emit(op.multiply(g.const(scale, dtype), above))
    return op.add(below, above)


@aten_op("gelu.default")
def gelu(g: Graph, x: Any, approximate: str = "none") -> Any:
    return op.nn.gelu_tanh(x) if approximate == "tanh" else op.nn.gelu(x)


@aten_op("hardtanh.default")
def hardtanh(g: Graph, x: Any, min_val: float = -1, max_val: float = 1) -> Any:
    return op.clip(x, min_val, max_val)


@aten_op("leaky_relu.default")
def leaky_relu(g: Graph, x: Any, negative_slope: float = 0.01) -> Any:
    return op.nn.leakyrelu(x, negative_slope)


@aten_op("prelu.default", "_prelu_kernel.default")
def prelu(g: Graph, x: Any, weight: Any) -> Any:
    shape = g.shape(weight)
    if len(shape) == 1 and shape != [1] and g.rank(x) > 1:
        weight = g.emit(op.reshape(weight, [1, shape[0]] + [1] * (g.rank(x) - 2)))
    scaled = g.emit(op.multiply(weight, x))
    return op.where(g.emit(op.greater(x, g.const(0, g.dtype(x)))), x, scaled)


@aten_op("softplus.default")
def softplus(g: Graph, x: Any, beta: float = 1, threshold: float = 20) -> Any:
    return op.nn.softplus(x, beta, threshold)


@aten_op("clamp.default")
def clamp(g: Graph, x: Any, min: float | None = None, max: float | None = None) -> Any:
    x = g.cast(x, g.result_dtype())
    if g.is_float(x) and all(isinstance(v, (int, float)) or v is None for v in (min, max)):
        return op.clip(x, -math.inf if min is None else min, math.inf if max is None else max)
    return _between(g, x, min, max)


@aten_op("clamp.Tensor")
def clamp_tensor(g: Graph, x: Any, min: Any = None, max: Any = None) -> Any:
    return _between(g, g.cast(x, g.result_dtype()), min, max)


@aten_op("clamp_min.default", "clamp_min.Tensor")
def clamp_min(g: Graph, x: Any, min: Any) -> Any:
    return _between(g, g.cast(x, g.result_dtype()), min, None)


@aten_op("clamp_max.default", "clamp_max.Tensor")
def clamp_max(g: Graph, x: Any, max: Any) -> Any:
    return _between(g, g.cast(x, g.result_dtype()), None, max)


def _between(g: Graph, x: Any, low: Any, high: Any) -> Any:
    if low is not None:
        x = g.emit(op.maximum(x, g.cast(low, g.result_dtype())))
    return x if high is None else op.minimum(x, g.cast(high, g.result_dtype()))


# ---- selection, conversion


@aten_op("where.self", "where.ScalarSelf", "where.ScalarOther", "where.Scalar")
def where(g: Graph, condition: Any, a: Any, b: Any) -> Any:
    return op.where(g.cast(condition, "bool"), *g.agree(a, b, dtype=g.result_dtype()))


@aten_op("masked_fill.Scalar", "masked_fill.Tensor")
def masked_fill(g: Graph, x: Any, mask: Any, value: Any) -> Any:
    return op.where(mask, g.cast(value, g.dtype(x)), x)


@aten_op("_to_copy.default")
def to_copy(g: Graph, x: Any, *, dtype: torch.dtype | None = None, **_: Any) -> Any:
    return x if dtype is None else g.cast(x, dtype_name(dtype))


@aten_op(
    "alias.default",
    "clone.default",
    "contiguous.default",
    "detach.default",
    "lift_fresh_copy.default",
    "positive.default",
)
def same(g: Graph, x: Any, **_: Any) -> Any:
    return x


@aten_op("copy.default")
def copy(g: Graph, target: Any, source: Any, *_: Any) -> Any:
    return g.broadcast(g.cast(source, g.dtype(target)), g.shape(target))


@aten_op("dropout.default")
def dropout(g: Graph, x: Any, p: float, train: bool) -> Any:
    refuse_training(train)
    return x


@aten_op("native_dropout.default")
def native_dropout(g: Graph, x: Any, p: float, train: bool | None) -> Any:
    refuse_training(bool(train))
    return x, None


@aten_op("bucketize.Tensor")
def bucketize(g: Graph, x: Any, boundaries: Any, *, out_int32: bool = False, right: bool = False) -> Any:  # fmt: skip
    dtype = g.common_dtype()
    return op.bucketize(g.cast(x, dtype), g.cast(boundaries, dtype), out_int32, right)


@aten_op("searchsorted.Tensor")
def searchsorted(
    g: Graph,
    boundaries: Any,
    x: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Any = None,
) -> Any:
    if sorter is not None:
        boundaries = g.emit(op.gather_elements(boundaries, sorter, g.rank(boundaries) - 1))
    right = right or side == "right"
    x, boundaries = g.agree(x, boundaries)
    if g.rank(boundaries) == 1:
        return op.bucketize(x, boundaries, out_int32, right)
    # Of each row: how many of its boundaries lie below.
    below = op.less_equal if right else op.less
    rows, columns = g.emit(op.expand_dims(boundaries, [-2])), g.emit(op.expand_dims(x, [-1]))
    counted = g.cast(g.emit(below(rows, columns)), g.result_dtype())
    return op.sum(counted, [-1])
