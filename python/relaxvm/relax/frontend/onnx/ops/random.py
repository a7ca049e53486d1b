# SPDX-License-Identifier: Apache-2.0
"""Random numbers, and what depends on them: with a seed the numbers are the same in every run."""

from __future__ import annotations

from typing import Any

import onnx

from relaxvm.relax import op

from ... import random
from ..element_types import carrier
from ..errors import InvalidModel
from ..graph import Graph
from ..registry import Expr, onnx_op
from ..values import Value

_FLOATS = ("float16", "bfloat16", "float32", "float64")


def _words(g: Graph, seed: int | float | None) -> random.Words:
    """The seed; without one others in every run."""
    if seed is not None:
        return random.known_words(seed)
    return random.words_of(g.emit, g.emit_effect(random.SEED, ty=random.SEED_TYPE))


def uniform(g: Graph, shape: list, seed: int | float | None, dtype: str = "float32") -> Any:
    """Numbers in [0, 1) of type float32 or float64."""
    return random.uniform(g.emit, shape, _words(g, seed), dtype)


def normal(g: Graph, shape: list, seed: int | float | None, dtype: str = "float32") -> Any:
    """Numbers of mean 0 and variance 1."""
    return random.normal(g.emit, shape, _words(g, seed), dtype)


def _wide(dtype: str) -> str:
    return "float64" if dtype == "float64" else "float32"


def _float_type(elem_type: int) -> str:
    dtype = carrier(elem_type)
    if dtype not in _FLOATS:
        raise InvalidModel(f"makes floats, not {dtype}")
    return dtype


def _spread(g: Graph, x: Any, dtype: str, offset: float, factor: float) -> Any:
    wide = g.dtype(x)
    x = op.add(op.multiply(x, g.constant(factor, wide)), g.constant(offset, wide))
    return x if dtype == wide else op.astype(x, dtype)


@onnx_op("RandomUniform", since=1)
def random_uniform(
    g: Graph,
    *,
    shape: list[int],
    dtype: int = onnx.TensorProto.FLOAT,
    high: float = 1.0,
    low: float = 0.0,
    seed: float | None = None,
) -> Expr:
    name = _float_type(dtype)
    return _spread(g, uniform(g, shape, seed, _wide(name)), name, low, high - low)


@onnx_op("RandomUniformLike", since=1)
def random_uniform_like(
    g: Graph,
    x: Expr,
    *,
    dtype: int | None = None,
    high: float = 1.0,
    low: float = 0.0,
    seed: float | None = None,
) -> Expr:
    name = _float_type(g.elem_type_of(g.dtype(x)) if dtype is None else dtype)
    return _spread(g, uniform(g, g.shape(x), seed, _wide(name)), name, low, high - low)


@onnx_op("RandomNormal", since=1)
def random_normal(
    g: Graph,
    *,
    shape: list[int],
    dtype: int = onnx.TensorProto.FLOAT,
    mean: float = 0.0,
    scale: float = 1.0,
    seed: float | None = None,
) -> Expr:
    name = _float_type(dtype)
    return _spread(g, normal(g, shape, seed, _wide(name)), name, mean, scale)


@onnx_op("RandomNormalLike", since=1)
def random_normal_like(
    g: Graph,
    x: Expr,
    *,
    dtype: int | None = None,
    mean: float = 0.0,
    scale: float = 1.0,
    seed: float | None = None,
) -> Expr:
    name = _float_type(g.elem_type_of(g.dtype(x)) if dtype is None else dtype)
    return _spread(g, normal(g, g.shape(x), seed, _wide(name)), name, mean, scale)


@onnx_op("Bernoulli", since=15)
def bernoulli(g: Graph, x: Expr, *, dtype: int | None = None, seed: float | None = None) -> Expr:
    """1 with the probability that each element says."""
    wide = _wide(g.dtype(x))
    chance = x if g.dtype(x) == wide else g.emit(op.astype(x, wide))
    hit = op.less(uniform(g, g.shape(x), seed, wide), chance)
    return op.astype(hit, g.dtype(x) if dtype is None else carrier(dtype))


@onnx_op("Multinomial", since=7)
def multinomial(
    g: Graph,
    x: Expr,
    *,
    dtype: int = onnx.TensorProto.INT32,
    sample_size: int = 1,
    seed: float | None = None,
) -> Expr:
    """Classes drawn for each row of logarithms of probabilities: how many sums of them stay below a number."""
    batch, classes = g.shape(x)
    wide = _wide(g.dtype(x))
    x = x if g.dtype(x) == wide else g.emit(op.astype(x, wide))
    sums = g.emit(op.cumsum(g.emit(op.nn.softmax(x, axis=-1)), axis=1))
    sums = g.emit(op.reshape(sums, [batch, 1, classes]))
    drawn = op.reshape(uniform(g, [batch, sample_size], seed, wide), [batch, sample_size, 1])
    below = op.astype(op.less_equal(sums, g.emit(drawn)), "int64")
    place = op.sum(g.emit(below), axis=[2])
    # The last sum may be a little less than 1.
    last = g.as_expr(g.dims_value([g.scalars.sub(classes, 1)], ()), "classes")
    return op.astype(op.minimum(place, last), carrier(dtype))


@onnx_op("Dropout", since=7)
def dropout_7(g: Graph, x: Expr, *, ratio: float = 0.5) -> tuple:
    """The mask is not filled in inference; at first it had the type of x."""
    dtype = "bool" if g.version >= 10 else g.dtype(x)
    return x, op.zeros(g.shape(x), dtype)


@onnx_op("Dropout", since=12)
def dropout(
    g: Graph,
    x: Expr,
    ratio: Expr | None = None,
    training_mode: Value | None = None,
    *,
    seed: int | None = None,
) -> tuple:
    """Drops elements only where `training_mode` holds, and makes the others larger."""
    if training_mode is None or (g.is_constant(training_mode) and not training_mode.array.any()):
        return x, _all_kept(g, x)
    wide = _wide(g.dtype(x))
    share = 0.5 if ratio is None else op.astype(op.reshape(ratio, []), wide)
    share = g.constant(share, wide) if ratio is None else g.emit(share)
    kept = op.greater_equal(uniform(g, g.shape(x), seed, wide), share)
    training = g.emit(op.reshape(g.as_expr(training_mode, "training_mode"), []))
    kept = g.emit(op.logical_or(kept, op.logical_not(training)))
    one = g.constant(1, wide)
    factor = g.emit(op.where(training, op.divide(one, op.subtract(one, share)), one))
    scaled = op.multiply(x if g.dtype(x) == wide else op.astype(x, wide), factor)
    scaled = scaled if g.dtype(x) == wide else op.astype(scaled, g.dtype(x))
    return op.where(kept, scaled, g.scalar(0, x)), kept


def _all_kept(g: Graph, x: Any) -> Any:
    return op.full(g.shape(x), g.constant(True), dtype="bool") if g.wants(1) else None
