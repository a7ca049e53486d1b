# SPDX-License-Identifier: Apache-2.0
"""Steps of optimizers: each takes tensors, gradients and states, and gives the next ones."""

from __future__ import annotations

from typing import Any

from relaxvm.relax import op

from ..errors import InvalidModel
from ..graph import Graph
from ..registry import Expr, onnx_op

DOMAIN = "ai.onnx.preview.training"


def _columns(values: tuple, kinds: int) -> list[tuple]:
    """Inputs come kind after kind: all tensors, all gradients, ..."""
    if not values or len(values) % kinds:
        raise InvalidModel(f"{len(values)} tensors are no {kinds} for each optimized one")
    count = len(values) // kinds
    return [tuple(values[k * count + i] for k in range(kinds)) for i in range(count)]


def _results(rows: list[list]) -> tuple:
    return tuple(value for kind in zip(*rows) for value in kind)


def _with_decay(g: Graph, x: Any, gradient: Any, coefficient: float) -> Any:
    if coefficient == 0.0:
        return gradient
    return g.emit(op.add(op.multiply(x, g.scalar(coefficient, x)), gradient))


@onnx_op("Adagrad", since=1, domain=DOMAIN)
def adagrad(
    g: Graph,
    rate: Expr,
    step: Expr,
    *values: Expr,
    decay_factor: float = 0.0,
    epsilon: float = 1e-6,
    norm_coefficient: float = 0.0,
) -> tuple:
    dtype, rows = g.dtype(rate), []
    slowed = op.add(
        g.scalar(1, rate), op.multiply(op.astype(step, dtype), g.scalar(decay_factor, rate))
    )
    rate = g.emit(op.reshape(op.divide(rate, slowed), []))
    for x, gradient, squares in _columns(values, 3):
        gradient = _with_decay(g, x, gradient, norm_coefficient)
        squares = g.emit(op.add(squares, op.multiply(gradient, gradient)))
        size = op.add(op.sqrt(squares), g.scalar(epsilon, x))
        moved = op.subtract(x, op.divide(op.multiply(gradient, rate), size))
        rows.append([g.emit(moved), squares])
    return _results(rows)


@onnx_op("Momentum", since=1, domain=DOMAIN)
def momentum(
    g: Graph,
    rate: Expr,
    step: Expr,
    *values: Expr,
    alpha: float,
    beta: float,
    mode: str,
    norm_coefficient: float,
) -> tuple:
    rate, rows = g.emit(op.reshape(rate, [])), []
    # The first step takes the gradient as it is.
    first = op.equal(op.reshape(step, []), g.scalar(0, step))
    share = g.emit(op.where(first, g.scalar(1, rate), g.scalar(beta, rate)))
    for x, gradient, speed in _columns(values, 3):
        gradient = _with_decay(g, x, gradient, norm_coefficient)
        speed = op.add(op.multiply(speed, g.scalar(alpha, x)), op.multiply(gradient, share))
        speed = g.emit(speed)
        if mode == "nesterov":
            change = op.add(gradient, op.multiply(speed, g.scalar(alpha, x)))
        elif mode == "standard":
            change = speed
        else:
            raise InvalidModel(f"mode is 'standard' or 'nesterov', not '{mode}'")
        rows.append([g.emit(op.subtract(x, op.multiply(change, rate))), speed])
    return _results(rows)


@onnx_op("Adam", since=1, domain=DOMAIN)
def adam(
    g: Graph,
    rate: Expr,
    step: Expr,
    *values: Expr,
    alpha: float = 0.9,
    beta: float = 0.999,
    epsilon: float = 1e-6,
    norm_coefficient: float = 0.0,
    norm_coefficient_post: float = 0.0,
) -> tuple:
    rate, rows = g.emit(op.reshape(rate, [])), []
    f = lambda v: g.scalar(v, rate)
    power = g.emit(op.reshape(op.astype(step, g.dtype(rate)), []))
    unbiased = lambda decay: op.subtract(f(1), op.power(f(decay), power))
    later = op.greater(power, f(0))
    corrected = op.divide(op.multiply(rate, op.sqrt(unbiased(beta))), unbiased(alpha))
    rate = g.emit(op.where(later, corrected, rate))
    for x, gradient, mean, squares in _columns(values, 4):
        gradient = _with_decay(g, x, gradient, norm_coefficient)
        mean = op.add(op.multiply(mean, f(alpha)), op.multiply(gradient, f(1 - alpha)))
        mean = g.emit(mean)
        square = op.multiply(op.multiply(gradient, gradient), f(1 - beta))
        squares = g.emit(op.add(op.multiply(squares, f(beta)), square))
        size = op.add(op.sqrt(squares), f(epsilon))
        moved = g.emit(op.subtract(x, op.divide(op.multiply(mean, rate), size)))
        if norm_coefficient_post:
            moved = g.emit(op.multiply(moved, f(1 - norm_coefficient_post)))
        rows.append([moved, mean, squares])
    return _results(rows)


@onnx_op("Binarizer", since=1, domain="ai.onnx.ml")
def binarizer(g: Graph, x: Expr, *, threshold: float = 0.0) -> Expr:
    return op.astype(op.greater(x, g.scalar(threshold, x)), g.dtype(x))


@onnx_op("ArrayFeatureExtractor", since=1, domain="ai.onnx.ml")
def array_feature_extractor(g: Graph, x: Expr, places: Expr) -> Expr:
    """The named elements of the last axis; those of a vector are one row."""
    if g.rank(x) == 1:
        x = g.emit(op.expand_dims(x, axis=[0]))
    count = g.product(g.shape(places))
    return op.take(x, g.emit(op.reshape(places, [count])), axis=-1)
