# SPDX-License-Identifier: Apache-2.0
"""Random numbers.  PyTorch's generators are not those of a compiled program: each call draws others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from relaxvm.relax import op

from ... import random
from ..errors import UnsupportedProgram
from ..graph import Graph, Size
from ..registry import random_op


def _words(g: Graph) -> random.Words:
    return random.words_of(g.emit, g.emit_effect(random.SEED, random.SEED_TYPE))


def _wide(dtype: str) -> str:
    return "float64" if dtype == "float64" else "float32"


def _uniform(g: Graph, shape: Sequence[Size], dtype: str) -> Any:
    """In [0, 1), in float32 or float64."""
    return random.uniform(g.emit, shape, _words(g), _wide(dtype))


def _normal(g: Graph, shape: Sequence[Size], dtype: str) -> Any:
    """Of mean 0 and variance 1, in float32 or float64."""
    return random.normal(g.emit, shape, _words(g), _wide(dtype))


def _moved(g: Graph, x: Any, start: Any, factor: Any) -> Any:
    """start + factor x, in the result's element type."""
    start, factor = (g.cast(v, g.dtype(x)) for v in (start, factor))
    return g.cast(g.emit(op.add(g.emit(op.multiply(x, factor)), start)), g.result_dtype())


@random_op("rand.default")
def rand(g: Graph, shape: Sequence[Size], **_: Any) -> Any:
    return g.cast(_uniform(g, shape, g.result_dtype()), g.result_dtype())


@random_op("rand_like.default")
def rand_like(g: Graph, x: Any, **_: Any) -> Any:
    return rand(g, g.shape(x))


@random_op("randn.default")
def randn(g: Graph, shape: Sequence[Size], **_: Any) -> Any:
    return g.cast(_normal(g, shape, g.result_dtype()), g.result_dtype())


@random_op("randn_like.default")
def randn_like(g: Graph, x: Any, **_: Any) -> Any:
    return randn(g, g.shape(x))


@random_op("uniform.default")
def uniform(g: Graph, x: Any, low: float = 0, high: float = 1, **_: Any) -> Any:
    return _moved(g, _uniform(g, g.shape(x), g.dtype(x)), low, high - low)


@random_op("normal_functional.default")
def normal_functional(g: Graph, x: Any, mean: float = 0, std: float = 1, **_: Any) -> Any:
    return _moved(g, _normal(g, g.shape(x), g.dtype(x)), mean, std)


@random_op("normal.float_float")
def normal(g: Graph, mean: float, std: float, shape: Sequence[Size], **_: Any) -> Any:
    return _moved(g, _normal(g, shape, g.result_dtype()), mean, std)


@random_op("normal.Tensor_float", "normal.float_Tensor", "normal.Tensor_Tensor")
def normal_around(g: Graph, mean: Any, std: Any = 1, **_: Any) -> Any:
    return _moved(g, _normal(g, g.result_shape(), g.result_dtype()), mean, std)


@random_op("log_normal.default")
def log_normal(g: Graph, x: Any, mean: float = 1, std: float = 2, **_: Any) -> Any:
    return op.exp(g.emit(normal_functional(g, x, mean, std)))


@random_op("exponential.default")
def exponential(g: Graph, x: Any, rate: float = 1, **_: Any) -> Any:
    """-log(1 - u) / rate"""
    u = _uniform(g, g.shape(x), g.dtype(x))
    return _moved(g, g.emit(op.rvm.log1p(g.emit(op.negative(u)))), 0, -1 / rate)


@random_op("geometric.default")
def geometric(g: Graph, x: Any, p: float, **_: Any) -> Any:
    """How many trials until the first success, from 1 on."""
    u = _uniform(g, g.shape(x), g.dtype(x))
    log = math.log1p(-p) if p < 1 else -math.inf
    trials = op.divide(op.rvm.log1p(op.negative(u)), g.const(log, g.dtype(u)))
    return _moved(g, g.emit(op.floor(g.emit(trials))), 1, 1)


@random_op("cauchy.default")
def cauchy(g: Graph, x: Any, median: float = 0, sigma: float = 1, **_: Any) -> Any:
    u = _uniform(g, g.shape(x), g.dtype(x))
    angle = op.multiply(op.subtract(u, g.const(0.5, g.dtype(u))), g.const(math.pi, g.dtype(u)))
    return _moved(g, g.emit(op.tan(g.emit(angle))), median, sigma)


@random_op("bernoulli.default", "bernoulli.p", "bernoulli.Tensor")
def bernoulli(g: Graph, x: Any, chance: Any = None, **_: Any) -> Any:
    """1 with that chance, which is x where none is given."""
    chance = x if chance is None else chance
    u = _uniform(g, g.shape(x), g.dtype(chance if g.is_tensor(chance) else x))
    return g.cast(g.emit(op.less(u, g.cast(chance, g.dtype(u)))), g.result_dtype())


def _integers(g: Graph, shape: Sequence[Size], low: int, high: int) -> Any:
    u = random.uniform(g.emit, shape, _words(g), "float64")
    place = g.emit(op.floor(g.emit(op.multiply(u, g.cast(high - low, "float64")))))
    return _moved(g, place, low, 1)


@random_op("randint.default")
def randint(g: Graph, high: int, shape: Sequence[Size], **_: Any) -> Any:
    return _integers(g, shape, 0, high)


@random_op("randint.low")
def randint_from(g: Graph, low: int, high: int, shape: Sequence[Size], **_: Any) -> Any:
    return _integers(g, shape, low, high)


@random_op("randint_like.default")
def randint_like(g: Graph, x: Any, high: int, **_: Any) -> Any:
    return _integers(g, g.shape(x), 0, high)


@random_op("randint_like.low_dtype")
def randint_like_from(g: Graph, x: Any, low: int, high: int, **_: Any) -> Any:
    return _integers(g, g.shape(x), low, high)


@random_op("randperm.default")
def randperm(g: Graph, n: Size, **_: Any) -> Any:
    """The order of random keys."""
    keys = g.emit(op.astype(random.bits(g.emit, [n], _words(g)), "int64"))
    return g.cast(g.emit(op.argsort(keys, axis=0, dtype="int64")), g.result_dtype())


@random_op("multinomial.default")
def multinomial(g: Graph, weights: Any, count: int, replacement: bool = False, **_: Any) -> Any:
    """Places drawn by their weights.

    Without replacement: those of the greatest log(u) / weight (P. Efraimidis and P. Spirakis, "Weighted random
    sampling with a reservoir", 2006).  With replacement: how many sums of weights do not exceed u of the whole.
    """
    dtype = _wide(g.dtype(weights))
    weights = g.cast(weights, dtype)
    *batch, classes = g.shape(weights)
    axis = len(batch)
    if not replacement:
        u = random.uniform(g.emit, [*batch, classes], _words(g), dtype)
        # 1 - u is never 0, so that its logarithm is finite; a weight of 0 comes last.
        keys = op.divide(g.emit(op.rvm.log1p(g.emit(op.negative(u)))), weights)
        keys = g.emit(
            op.where(op.equal(weights, g.const(0, dtype)), g.const(-math.inf, dtype), keys)
        )
        return op.topk(keys, count, axis, "indices", True, "int64")
    if not isinstance(classes, int):
        raise UnsupportedProgram("a number of classes that is not known")
    sums = g.emit(op.cumsum(weights, axis))
    total = g.emit(op.strided_slice(sums, [axis], [classes - 1], [classes], [1]))
    u = random.uniform(g.emit, [*batch, count], _words(g), dtype)
    drawn = g.emit(op.expand_dims(g.emit(op.multiply(u, total)), [axis + 1]))
    sums = g.emit(op.expand_dims(sums, [axis]))
    # u of the whole may be rounded to the whole.
    total = g.emit(op.expand_dims(total, [axis + 1]))
    below = op.logical_and(op.less_equal(sums, drawn), op.less(sums, total))
    below = g.emit(op.astype(g.emit(below), "int64"))
    return op.sum(below, [axis + 1])
