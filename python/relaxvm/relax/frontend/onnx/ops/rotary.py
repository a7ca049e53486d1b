# SPDX-License-Identifier: Apache-2.0
"""Rotary embeddings: pairs of elements of a head are turned by angles that a token's position has.

J. Su and others, "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from relaxvm.relax import op

from ..errors import InvalidModel, UnsupportedModel
from ..graph import Graph
from ..registry import Expr, onnx_op
from .attention import join_heads

MICROSOFT = "com.microsoft"


def turned(g: Graph, x: Any, ids: Any, cos_cache: Any, sin_cache: Any, interleaved: bool) -> Any:
    """[B, heads, S, depth] with the first elements of depth turned in pairs by the angles of ids [B, S]."""
    cos, sin = (g.emit(op.take(cache, ids, axis=0)) for cache in (cos_cache, sin_cache))
    return turned_by(g, x, cos, sin, interleaved)


def turned_by(g: Graph, x: Any, cos: Any, sin: Any, interleaved: bool) -> Any:
    """The same, by cosines and sines [B, S, half]."""
    batch, _, length, depth = g.shape(x)
    half = g.shape(cos)[2]
    row = lambda a: g.emit(op.expand_dims(g.checked(a, [batch, length, half]), axis=[1]))
    cos, sin = row(cos), row(sin)
    width = 2 * half

    def cut(a: int, b: Any) -> Any:
        part = g.emit(op.strided_slice(x, axes=[3], begin=[a], end=[b], strides=[1]))
        return g.checked(part, [*g.shape(x)[:3], g.scalars.sub(b, a)])

    if interleaved:
        # Each element and its neighbour, times what both of a pair have: rows stay rows.
        pairs = cut(0, width)
        cos, sin = (g.emit(op.repeat(v, 2, axis=3)) for v in (cos, sin))
        apart = g.emit(op.reshape(pairs, [*g.shape(x)[:3], half, 2]))
        signed = op.multiply(g.emit(op.flip(apart, axis=4)), g.constant([-1, 1], g.dtype(x)))
        others = g.emit(op.reshape(g.emit(signed), [*g.shape(x)[:3], width]))
        y = g.emit(op.add(op.multiply(pairs, cos), op.multiply(others, sin)))
    else:
        first, second = cut(0, half), cut(half, width)
        a = g.emit(op.subtract(op.multiply(first, cos), op.multiply(second, sin)))
        b = g.emit(op.add(op.multiply(second, cos), op.multiply(first, sin)))
        y = g.emit(op.concat([a, b], axis=3))
    return y if g.scalars.same(depth, width) else g.emit(op.concat([y, cut(width, depth)], axis=3))


@onnx_op("RotaryEmbedding", since=1, domain=MICROSOFT)
def rotary_embedding(
    g: Graph,
    x: Expr,
    position_ids: Expr,
    cos_cache: Expr,
    sin_cache: Expr,
    *,
    interleaved: int = 0,
    is_packed_batching: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
    scale: float = 1.0,
) -> Expr:
    """[B, S, hidden] or [B, heads, S, depth]; pairs of elements are turned by the position's angle."""
    x, is_flat = _heads_apart(g, x, cos_cache, num_heads, rotary_embedding_dim)
    batch, _, length, _ = g.shape(x)
    if g.rank(position_ids) == 2:
        ids = position_ids
    else:
        steps = op.expand_dims(op.arange(0, length, 1, dtype="int64"), axis=[0])
        first = op.reshape(op.astype(position_ids, "int64"), [1, 1])
        ids = g.emit(op.broadcast_to(g.emit(op.add(steps, first)), [batch, length]))
    y = turned(g, x, ids, cos_cache, sin_cache, bool(interleaved))
    return join_heads(g, y) if is_flat else y


@onnx_op("MRotaryEmbedding", since=1, domain=MICROSOFT)
def rotary_embedding_of_three(
    g: Graph,
    x: Expr,
    position_ids: Expr,
    cos_cache: Expr,
    sin_cache: Expr,
    *,
    interleaved: int = 0,
    is_packed_batching: int = 0,
    mrope_layout: int = 0,
    mrope_section: list[int],
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
    scale: float = 1.0,
) -> Expr:
    """Three positions [3, B, S] a token (time, height, width), each for its section of the angles."""
    x, is_flat = _heads_apart(g, x, cos_cache, num_heads, rotary_embedding_dim)
    half = g.shape(cos_cache)[1]
    if len(mrope_section) != 3 or sum(mrope_section) != half or mrope_layout not in (0, 1):
        raise InvalidModel(f"mrope_section is 3 numbers that add up to {half}, mrope_layout 0 or 1")
    if mrope_layout == 0:
        owner = np.repeat([0, 1, 2], mrope_section)
    else:
        owner = np.zeros(half, int)
        for i in (1, 2):
            owner[i : 3 * mrope_section[i] : 3] = i
    position_ids = g.checked(position_ids, [3, *(g.shape(x)[i] for i in (0, 2))])

    def mixed(cache: Any) -> Any:
        rows = g.emit(op.take(cache, position_ids, axis=0))  # [3, B, S, half]
        first, *others = (
            g.emit(op.squeeze(g.emit(op.strided_slice(rows, [0], [i], [i + 1], [1])), [0]))
            for i in range(3)
        )
        for i, other in enumerate(others, 1):
            first = g.emit(op.where(g.constant(owner == i), other, first))
        return first

    y = turned_by(g, x, mixed(cos_cache), mixed(sin_cache), bool(interleaved))
    return join_heads(g, y) if is_flat else y


def _heads_apart(g: Graph, x: Any, cos_cache: Any, num_heads: int, turned_dim: int) -> tuple:
    """[B, S, hidden] or [B, heads, S, depth] as the latter, and whether it was the former."""
    is_flat = g.rank(x) == 3
    half = g.shape(cos_cache)[-1]
    if not isinstance(half, int):
        raise UnsupportedModel("its caches must have a known width")
    if is_flat:
        batch, length, width = g.shape(x)
        if turned_dim and not num_heads:
            raise InvalidModel("num_heads is needed with rotary_embedding_dim")
        depth = g.scalars.floordiv(width, num_heads) if num_heads else 2 * half
        heads = g.scalars.floordiv(width, depth)
        x = g.emit(op.reshape(x, [batch, length, heads, depth]))
        x = g.emit(op.permute_dims(x, [0, 2, 1, 3]))
    batch, heads, length, depth = g.shape(x)
    if not isinstance(depth, int) and not turned_dim:
        # Whole heads are turned.
        x = g.checked(x, [batch, heads, length, 2 * half])
    return x, is_flat


@onnx_op("RotaryEmbedding", since=23)
def rotary_embedding_23(
    g: Graph,
    x: Expr,
    cos_cache: Expr,
    sin_cache: Expr,
    position_ids: Expr | None = None,
    *,
    interleaved: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
) -> Expr:
    """Without positions the caches are [B, S, half], a row for each element."""
    if g.rank(x) == 3 and not num_heads:
        raise InvalidModel("num_heads is needed for 3 dimensions")
    x, is_flat = _heads_apart(g, x, cos_cache, num_heads, rotary_embedding_dim)
    if position_ids is None:
        y = turned_by(g, x, cos_cache, sin_cache, bool(interleaved))
    else:
        y = turned(g, x, position_ids, cos_cache, sin_cache, bool(interleaved))
    return join_heads(g, y) if is_flat else y
