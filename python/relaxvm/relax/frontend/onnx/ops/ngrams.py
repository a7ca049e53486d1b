# SPDX-License-Identifier: Apache-2.0
"""TfIdfVectorizer: how often sequences of numbers stand in rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from relaxvm.relax import op

from ..errors import InvalidModel, UnsupportedModel
from ..graph import Graph
from ..registry import Expr, onnx_op
from ..scalars import is_symbolic
from ..slicing import Range, take_ranges


@onnx_op("TfIdfVectorizer", since=9)
def tfidf_vectorizer(
    g: Graph,
    x: Expr,
    *,
    max_gram_length: int,
    max_skip_count: int,
    min_gram_length: int,
    mode: str,
    ngram_counts: list[int],
    ngram_indexes: list[int],
    pool_int64s: list[int] | None = None,
    pool_strings: list[str] | None = None,
    weights: list[float] | None = None,
) -> Expr:
    """Of integers [n] or [rows, n]; the words of a gram stand side by side, or as far apart as may be skipped."""
    if pool_strings:
        raise UnsupportedModel("strings are not supported")
    if mode not in ("TF", "IDF", "TFIDF"):
        raise InvalidModel(f"mode is 'TF', 'IDF' or 'TFIDF', not '{mode}'")
    grams = _grams(pool_int64s or [], ngram_counts)
    if sum(map(len, grams)) != len(ngram_indexes) or not ngram_indexes:
        raise InvalidModel(f"{len(ngram_indexes)} indexes for {sum(map(len, grams))} grams")
    shape = g.shape(x)
    if len(shape) not in (1, 2):
        raise InvalidModel(f"takes 1 or 2 dimensions, not {len(shape)}")
    x = g.emit(op.astype(x, "int64")) if g.dtype(x) != "int64" else x
    rows = x if len(shape) == 2 else g.emit(op.expand_dims(x, axis=[0]))
    counts = []
    for length, pool in enumerate(grams, 1):
        wanted = min_gram_length <= length <= max_gram_length and len(pool)
        skips = range(max_skip_count + 1) if length > 1 else range(1)
        found = [_count(g, rows, pool, skip + 1) for skip in skips] if wanted else []
        zeros = op.zeros([g.shape(rows)[0], len(pool)], "float32")
        total = g.emit(zeros) if len(pool) else None
        for each in filter(lambda f: f is not None, found):
            total = g.emit(op.add(total, each))
        counts += [] if total is None else [total]
    counted = counts[0] if len(counts) == 1 else g.emit(op.concat(counts, axis=1))
    y = _placed(g, counted, ngram_indexes)
    if mode != "TF":
        if weights is not None and len(weights) != len(ngram_indexes):
            raise InvalidModel(f"{len(weights)} weights for {len(ngram_indexes)} grams")
        factor = np.ones(max(ngram_indexes) + 1, np.float32)
        factor[ngram_indexes] = 1 if weights is None else weights
        if mode == "IDF":
            y = op.astype(op.greater(y, g.constant(0, "float32")), "float32")
        y = op.multiply(y, g.constant(factor))
    return y if len(shape) == 2 else op.squeeze(g.emit(y), axis=[0])


def _grams(pool: list[int], starts: list[int]) -> list[np.ndarray]:
    """The grams of each length, one a row; `starts` says where the pool of a length begins."""
    ends = [*starts[1:], len(pool)]
    grams = []
    for length, (start, end) in enumerate(zip(starts, ends), 1):
        if not 0 <= start <= end <= len(pool) or (end - start) % length:
            raise InvalidModel(f"ngram_counts {starts} do not fit a pool of {len(pool)}")
        grams.append(np.asarray(pool[start:end], np.int64).reshape(-1, length))
    return grams


def _count(g: Graph, rows: Any, pool: np.ndarray, step: int) -> Any:
    """How often each gram stands in each row, its words `step` apart; None: rows are too short."""
    s, (batch, size) = g.scalars, g.shape(rows)
    length = pool.shape[1]
    places = s.maximum(s.sub(size, (length - 1) * step), 0)
    if not is_symbolic(places) and places == 0:
        return None
    alike = None
    for k in range(length):
        begin = k * step
        words = g.emit(take_ranges(g, rows, {1: Range(begin, s.add(places, begin), 1)}))
        words = g.emit(op.reshape(g.checked(words, [batch, places]), [batch, places, 1]))
        here = op.equal(words, g.constant(pool[:, k].reshape(1, 1, -1)))
        alike = here if alike is None else op.logical_and(alike, here)
    return g.emit(op.sum(g.emit(op.astype(alike, "float32")), axis=[1]))


def _placed(g: Graph, counts: Any, indexes: list[int]) -> Any:
    """Columns at their indexes; columns that no gram has are 0."""
    if min(indexes) < 0 or len(set(indexes)) != len(indexes):
        raise InvalidModel("ngram_indexes must be different and not negative")
    order = np.full(max(indexes) + 1, len(indexes), np.int64)
    order[indexes] = np.arange(len(indexes))
    if len(indexes) < len(order):
        empty = op.zeros([g.shape(counts)[0], 1], "float32")
        counts = op.concat([counts, g.emit(empty)], axis=1)
    return g.emit(op.take(g.emit(counts), g.constant(order), axis=1))
