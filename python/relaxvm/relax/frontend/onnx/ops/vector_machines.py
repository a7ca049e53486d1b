# SPDX-License-Identifier: Apache-2.0
"""Support vector machines (ai.onnx.ml): sums of kernels with the support vectors, which are one product."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from relaxvm.relax import op

from ..errors import InvalidModel, UnsupportedModel
from ..graph import Graph
from ..registry import Expr, onnx_op
from .classical import _classes, _finished, _floats, _labels, _matrix, _two_columns

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


def _vectors(g: Graph, x: Any, values: list[float] | None, count: int) -> np.ndarray:
    vectors = _floats(values or [])
    if count < 1 or vectors.size % count:
        raise InvalidModel(f"{vectors.size} numbers are not {count} support vectors")
    vectors = vectors.reshape(count, -1)
    width = g.shape(x)[1]
    if isinstance(width, int) and width != vectors.shape[1]:
        raise InvalidModel(f"its vectors have {vectors.shape[1]} features, its input has {width}")
    return vectors


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
    x, weights = _matrix(g, x), _floats(coefficients)
    if n_supports > 0:
        x = _kernels(g, x, _vectors(g, x, support_vectors, n_supports), kernel_type, kernel_params)
        if weights.size != n_supports:
            raise InvalidModel(f"it has {weights.size} coefficients for {n_supports} vectors")
    y = g.emit(op.matmul(x, g.constant(weights.reshape(-1, 1))))
    y = g.emit(op.add(y, g.constant(_floats(rho)[:1])))
    if one_class:
        sign = op.where(op.greater(y, g.scalar(0.0, y)), g.scalar(1.0, y), g.scalar(-1.0, y))
        y = g.emit(sign)
    return _finished(g, y, post_transform)


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
    classes = len(labels)
    if not vectors_per_class:
        raise UnsupportedModel("a linear classifier without support vectors is not supported")
    if len(vectors_per_class) != classes or classes < 2:
        raise InvalidModel(f"it has vectors of {len(vectors_per_class)} classes for {classes}")
    count, pairs = sum(vectors_per_class), list(itertools.combinations(range(classes), 2))
    weights = _floats(coefficients)
    if weights.size != (classes - 1) * count or len(rho) != len(pairs):
        raise InvalidModel("its coefficients do not belong to its vectors and classes")
    # One decision for each pair of classes, by the vectors of both.
    table = np.zeros((count, len(pairs)), np.float32)
    ends = np.cumsum(vectors_per_class)
    own = [slice(e - n, e) for e, n in zip(ends, vectors_per_class, strict=True)]
    weights = weights.reshape(classes - 1, count)
    for p, (i, j) in enumerate(pairs):
        table[own[i], p] = weights[j - 1, own[i]]
        table[own[j], p] = weights[i, own[j]]
    x = _matrix(g, x)
    near = _kernels(g, x, _vectors(g, x, support_vectors, count), kernel_type, kernel_params)
    scores = g.emit(op.add(op.matmul(near, g.constant(table)), g.constant(_floats(rho))))
    if prob_a:
        return _with_probability(g, scores, labels, prob_a, prob_b or [], post_transform)
    if classes == 2:
        raise UnsupportedModel("two classes without probabilities are not supported")
    first = np.zeros((len(pairs), classes), np.float32)
    second = np.zeros_like(first)
    for p, (i, j) in enumerate(pairs):
        first[p, i] = second[p, j] = 1
    won = g.emit(op.astype(op.greater(scores, g.scalar(0.0, scores)), "float32"))
    # won first + (1 - won) second
    votes = g.emit(op.matmul(won, g.constant(first - second)))
    votes = g.emit(op.add(votes, g.constant(second.sum(0))))
    best = g.emit(op.argmax(votes, axis=1, keepdims=False))
    return _labels(g, best, labels), _finished(g, scores, post_transform)


def _with_probability(g, scores, labels, prob_a, prob_b, transform):
    """Of two classes: the first one's is the sigmoid of -(a score + b)."""
    if len(labels) != 2 or len(prob_a) != 1 or len(prob_b) != 1:
        raise UnsupportedModel("probabilities of more than two classes are not supported")
    score = op.multiply(scores, g.constant(-prob_a[0], "float32"))
    first = g.emit(op.sigmoid(g.emit(op.subtract(score, g.constant(prob_b[0], "float32")))))
    first = g.emit(op.clip(first, 1e-7, 1 - 1e-7))
    both = _two_columns(g, first, g.emit(op.subtract(g.constant(1.0, "float32"), first)))
    both = g.emit(both)
    best = g.emit(op.argmax(both, axis=1, keepdims=False))
    return _labels(g, best, labels), _finished(g, both, transform)
