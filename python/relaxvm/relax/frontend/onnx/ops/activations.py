# SPDX-License-Identifier: Apache-2.0
"""Activation functions."""

from __future__ import annotations

from relaxvm.relax import op

from ..errors import InvalidModel
from ..graph import Graph
from ..registry import Expr, onnx_op


@onnx_op("Relu", since=6)
def relu(x: Expr) -> Expr:
    return op.nn.relu(x)


@onnx_op("LeakyRelu", since=6)
def leaky_relu(x: Expr, *, alpha: float = 0.01) -> Expr:
    return op.nn.leakyrelu(x, alpha)


@onnx_op("PRelu", since=7)
def prelu(g: Graph, x: Expr, slope: Expr) -> Expr:
    """The slope broadcasts to `x` from the right, so nn.prelu (one slope per channel) is a special case."""
    x, slope = g.agree(x, slope)
    return op.where(op.less(x, g.scalar(0, x)), op.multiply(x, slope), x)


@onnx_op("ThresholdedRelu", since=10)
def thresholded_relu(g: Graph, x: Expr, *, alpha: float = 1.0) -> Expr:
    return op.where(op.greater(x, g.scalar(alpha, x)), x, g.scalar(0, x))


@onnx_op("Elu", since=6)
def elu(g: Graph, x: Expr, *, alpha: float = 1.0) -> Expr:
    return _exponential_below_zero(g, x, alpha, alpha)


@onnx_op("Celu", since=12)
def celu(g: Graph, x: Expr, *, alpha: float = 1.0) -> Expr:
    return _exponential_below_zero(g, x, alpha, 1.0)


@onnx_op("Selu", since=6)
def selu(
    g: Graph, x: Expr, *, alpha: float = 1.6732632423543772, gamma: float = 1.0507009873554805
) -> Expr:
    y = _exponential_below_zero(g, x, alpha, alpha)
    return op.multiply(y, g.scalar(gamma, x))


def _exponential_below_zero(g: Graph, x: Expr, alpha: float, inner: float) -> Expr:
    """max(x, 0) + alpha * (exp(min(x, 0) * alpha / inner ... ) - 1): Elu for inner = alpha, Celu for 1."""
    zero, one = g.scalar(0, x), g.scalar(1, x)
    low = op.minimum(x, zero)
    scaled = low if inner == alpha else op.divide(low, g.scalar(alpha, x))
    bent = op.multiply(g.scalar(alpha, x), op.subtract(op.exp(scaled), one))
    return op.add(op.maximum(x, zero), bent)


@onnx_op("Gelu", since=20)
def gelu(x: Expr, *, approximate: str = "none") -> Expr:
    if approximate not in ("none", "tanh"):
        raise InvalidModel(f"approximate is 'none' or 'tanh', not '{approximate}'")
    return op.nn.gelu_tanh(x) if approximate == "tanh" else op.nn.gelu(x)


@onnx_op("Gelu", since=1, domain="com.microsoft")
def gelu_microsoft(x: Expr) -> Expr:
    return op.nn.gelu(x)


@onnx_op("FastGelu", since=1, domain="com.microsoft")
def fast_gelu(g: Graph, x: Expr, bias: Expr | None = None) -> Expr:
    return op.nn.gelu_tanh(x if bias is None else op.add(*g.agree(x, bias)))


@onnx_op("BiasGelu", since=1, domain="com.microsoft")
def bias_gelu(g: Graph, x: Expr, bias: Expr) -> Expr:
    return op.nn.gelu(op.add(*g.agree(x, bias)))


@onnx_op("HardSigmoid", since=6)
def hard_sigmoid(g: Graph, x: Expr, *, alpha: float = 0.2, beta: float = 0.5) -> Expr:
    line = op.add(op.multiply(x, g.scalar(alpha, x)), g.scalar(beta, x))
    return op.clip(line, 0, 1)


@onnx_op("HardSwish", since=14)
def hard_swish(g: Graph, x: Expr) -> Expr:
    return op.multiply(x, hard_sigmoid(g, x, alpha=1 / 6, beta=0.5))


@onnx_op("Swish", since=24)
def swish(g: Graph, x: Expr, *, alpha: float = 1.0) -> Expr:
    return op.multiply(x, op.sigmoid(op.multiply(x, g.scalar(alpha, x))))


@onnx_op("Softplus", since=1)
def softplus(x: Expr) -> Expr:
    return op.nn.softplus(x, 1.0, 20.0)


@onnx_op("Softsign", since=1)
def softsign(g: Graph, x: Expr) -> Expr:
    return op.divide(x, op.add(op.abs(x), g.scalar(1, x)))


@onnx_op("Mish", since=18)
def mish(g: Graph, x: Expr) -> Expr:
    return op.multiply(x, op.tanh(op.nn.softplus(x, 1.0, 20.0)))


@onnx_op("Shrink", since=9)
def shrink(g: Graph, x: Expr, *, bias: float = 0.0, lambd: float = 0.5) -> Expr:
    zero, shift = g.scalar(0, x), g.scalar(bias, x)
    below = op.where(op.less(x, g.scalar(-lambd, x)), op.add(x, shift), zero)
    return op.where(op.greater(x, g.scalar(lambd, x)), op.subtract(x, shift), below)


@onnx_op("Softmax", since=13)
def softmax(x: Expr, *, axis: int = -1) -> Expr:
    """Normalises along one axis (older versions flatten first, see softmax_1)."""
    return op.nn.softmax(x, axis=axis)


@onnx_op("LogSoftmax", since=13)
def log_softmax(x: Expr, *, axis: int = -1) -> Expr:
    return op.nn.log_softmax(x, axis=axis)


@onnx_op("Softmax", since=1)
def softmax_1(g: Graph, x: Expr, *, axis: int = 1) -> Expr:
    return _flattened(g, x, axis, lambda flat: op.nn.softmax(flat, axis=1))


@onnx_op("LogSoftmax", since=1)
def log_softmax_1(g: Graph, x: Expr, *, axis: int = 1) -> Expr:
    return _flattened(g, x, axis, lambda flat: op.nn.log_softmax(flat, axis=1))


@onnx_op("Hardmax", since=13)
def hardmax(g: Graph, x: Expr, *, axis: int = -1) -> Expr:
    return _hardmax(g, x, axis)


@onnx_op("Hardmax", since=1)
def hardmax_1(g: Graph, x: Expr, *, axis: int = 1) -> Expr:
    return _flattened(g, x, axis, lambda flat: _hardmax(g, flat, 1))


def _flattened(g, x, axis, build):
    """Before opset 13 the input is seen as a matrix, with rows from the axes before `axis`."""
    shape = g.shape(x)
    axis = axis if axis == len(shape) else g.axis(axis, len(shape))
    rows, columns = g.product(shape[:axis]), g.product(shape[axis:])
    flat = g.emit(op.reshape(x, [rows, columns]))
    return op.reshape(build(flat), shape)


def _hardmax(g, x, axis):
    """1 at the first largest element of each row, 0 elsewhere."""
    shape = g.shape(x)
    axis = g.axis(axis, len(shape))
    best = op.argmax(x, axis=axis, keepdims=True)
    positions = op.arange(0, shape[axis], 1, dtype="int64")
    positions = op.reshape(positions, [shape[axis] if i == axis else 1 for i in range(len(shape))])
    return op.astype(op.equal(positions, best), g.dtype(x))
