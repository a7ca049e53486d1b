# SPDX-License-Identifier: Apache-2.0
"""Support vector machines (ai.onnx.ml): sums of kernels with the support vectors, which are one product."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from relaxvm.relax import op

from ..coupling import coupled
from ..errors import InvalidModel
from ..graph import Graph
from ..registry import Expr, onnx_op
from .classical import _classes, _finished, _floats, _labels, _matrix, _pair

_ML = "ai.onnx.ml"


def _kernels(g: Graph, x: Any, vectors: np.ndarray, kind: str, params: list[float] | None) -> Any:
    """[rows, vectors]: the kernel of each row with each vector."""
    gamma, coef0, degree = params or (0.0, 0.0, 0.0)
    number = lambda v: g.constant(v, "float32")
    if kind == "RBF":  # squares of differences: those of sums would cancel
        apart = g.emit(op.subtract(g.emit(op.expand_dims(x, axis=[1])), g.constant(vectors)))
        squares = g.emit(op.sum(g.emit(op.multiply(apart, apart)), axis=[2]))
        return g.emit(op.exp(g.emit(op.multiply(squares, number(-gamma)))))
    dots = g.emit(op.matmul(x, g.constant(np.ascontiguousarray(vectors.T))))
    if kind == "LINEAR":
        return dots
    moved = g.emit(op.add(g.emit(op.multiply(dots, number(gamma))), number(coef0)))
    if kind == "POLY":
        return g.emit(op.power(moved, number(degree)))
    if kind == "SIGMOID":
        return g.emit(op.tanh(moved))
    raise InvalidModel(f"kernel_type '{kind}' is unknown")


def _vectors(values: list[float] | None, count: int) -> np.ndarray:
    vectors = _floats(values or [])
    if count < 1 or not vectors.size or vectors.size % count:
        raise InvalidModel(f"{vectors.size} numbers are not {count} support vectors")
    return vectors.reshape(count, -1)


@onnx_op("SVMRegressor", since=1, domain=_ML)
def svm_regressor(
    g: Graph,
    x: Expr,
    *,
    coefficients: list[float],
    kernel_params: list[float] | None = None,
    kernel_type: str = "LINEAR",
    n_supports: int = 0,
    one_class: int = 0,
    post_transform: str = "NONE",
    rho: list[float],
    support_vectors: list[float] | None = None,
) -> Expr:
    weights = _floats(coefficients)
    if n_supports > 0:
        vectors = _vectors(support_vectors, n_supports)
        x = _kernels(g, _matrix(g, x, vectors.shape[1]), vectors, kernel_type, kernel_params)
        if weights.size != n_supports:
            raise InvalidModel(f"it has {weights.size} coefficients for {n_supports} vectors")
    else:
        x = _matrix(g, x, weights.size)
    y = g.emit(op.matmul(x, g.constant(weights.reshape(-1, 1))))
    y = g.emit(op.add(y, g.constant(_floats(rho)[:1])))
    if one_class:
        sign = op.where(op.greater(y, g.scalar(0.0, y)), g.scalar(1.0, y), g.scalar(-1.0, y))
        y = g.emit(sign)
    return _finished(g, y, post_transform if post_transform != "PROBIT" else "NONE")


@onnx_op("SVMClassifier", since=1, domain=_ML)
def svm_classifier(
    g: Graph,
    x: Expr,
    *,
    classlabels_ints: list[int] | None = None,
    classlabels_strings: list[str] | None = None,
    coefficients: list[float],
    kernel_params: list[float] | None = None,
    kernel_type: str = "LINEAR",
    post_transform: str = "NONE",
    prob_a: list[float] | None = None,
    prob_b: list[float] | None = None,
    rho: list[float],
    support_vectors: list[float] | None = None,
    vectors_per_class: list[int] | None = None,
) -> tuple:
    labels = _classes(g, classlabels_ints, classlabels_strings)
    if not vectors_per_class:
        return _linear(g, x, labels, _floats(coefficients), rho, post_transform)
    classes = len(labels)
    if len(vectors_per_class) != classes or classes < 2 or min(vectors_per_class) < 0:
        raise InvalidModel(f"it has vectors of {len(vectors_per_class)} classes for {classes}")
    count, pairs = sum(vectors_per_class), list(itertools.combinations(range(classes), 2))
    weights = _floats(coefficients)
    if weights.size != (classes - 1) * count or len(rho) != len(pairs):
        raise InvalidModel("its coefficients do not belong to its vectors and classes")
    vectors = _vectors(support_vectors, count)
    x = _matrix(g, x, vectors.shape[1])
    near = _kernels(g, x, vectors, kernel_type, kernel_params)
    table = _pair_weights(weights.reshape(classes - 1, count), vectors_per_class, pairs)
    scores = g.emit(op.add(op.matmul(near, g.constant(table)), g.constant(_floats(rho))))
    label = _labels(g, _most_votes(g, scores, pairs, classes), labels)
    if prob_a or prob_b:
        a, b = _floats(prob_a or []), _floats(prob_b or [])
        if a.size != len(pairs) or b.size != len(pairs):
            raise InvalidModel(f"prob_a and prob_b need {len(pairs)} numbers")
        return label, _finished(g, coupled(g, _of_pairs(g, scores, a, b), classes), post_transform)
    if classes == 2:
        return label, _pair(g, scores, post_transform != "NONE", post_transform)
    return label, _finished(g, scores, post_transform)


def _linear(g, x, labels, weights, rho, transform) -> tuple:
    """Without vectors each class has weights of its own."""
    if not rho or weights.size % len(labels) or not weights.size:
        raise InvalidModel(f"{weights.size} coefficients are not for {len(labels)} classes")
    table = np.ascontiguousarray(weights.reshape(len(labels), -1).T)
    x = _matrix(g, x, len(table))
    scores = g.emit(op.add(op.matmul(x, g.constant(table)), g.constant(rho[0], "float32")))
    best = g.emit(op.argmax(scores, axis=1, keepdims=False))
    if len(labels) == 2:  # what ONNX Runtime counts as surely the second class
        bound = g.constant(0.5, "float32") if min(weights) >= 0 else g.constant(0.0, "float32")
        sure = (op.greater_equal if min(weights) >= 0 else op.greater)(
            g.emit(op.max(scores, axis=[1])), bound
        )
        best = g.emit(op.where(g.emit(sure), g.constant(1, "int64"), best))
    return _labels(g, best, labels), _finished(g, scores, transform)


def _pair_weights(weights: np.ndarray, per_class: list[int], pairs: list) -> np.ndarray:
    """[vectors, pairs]: one decision for each pair of classes, by the vectors of both."""
    table = np.zeros((weights.shape[1], len(pairs)), np.float32)
    ends = np.cumsum(per_class)
    own = [slice(e - n, e) for e, n in zip(ends, per_class, strict=True)]
    for p, (i, j) in enumerate(pairs):
        table[own[i], p] = weights[j - 1, own[i]]
        table[own[j], p] = weights[i, own[j]]
    return table


def _most_votes(g: Graph, scores: Any, pairs: list, classes: int) -> Any:
    """The class that wins most of its pairs; the first one of several."""
    first = np.zeros((len(pairs), classes), np.float32)
    second = np.zeros_like(first)
    for p, (i, j) in enumerate(pairs):
        first[p, i] = second[p, j] = 1
    won = g.emit(op.astype(op.greater(scores, g.scalar(0.0, scores)), "float32"))
    # won first + (1 - won) second
    votes = g.emit(op.matmul(won, g.constant(first - second)))
    votes = g.emit(op.add(votes, g.constant(second.sum(0))))
    return g.emit(op.argmax(votes, axis=1, keepdims=False))


def _of_pairs(g: Graph, scores: Any, a: np.ndarray, b: np.ndarray) -> Any:
    """[rows, pairs]: the probability of each pair's first class, the sigmoid of -(a score + b)."""
    shifted = op.subtract(op.multiply(scores, g.constant(-a)), g.constant(b))
    return g.emit(op.clip(g.emit(op.sigmoid(g.emit(shifted))), 1e-7, 1 - 1e-7))
