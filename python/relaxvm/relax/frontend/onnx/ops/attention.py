# SPDX-License-Identifier: Apache-2.0
"""Attention in its forms: products, masks and softmax are written out; the compiler finds the pattern."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from relaxvm.relax import op

from ..broadcasting import fitted
from ..element_types import carrier
from ..errors import InvalidModel, UnsupportedModel
from ..graph import Graph
from ..registry import Expr, onnx_op
from .linear import inner_agree


def split_heads(g: Graph, x: Any, heads: int) -> Any:
    """[B, S, heads * D] -> [B, heads, S, D]"""
    batch, length, width = g.shape(x)
    x = op.reshape(x, [batch, length, heads, g.scalars.floordiv(width, heads)])
    return g.emit(op.permute_dims(x, [0, 2, 1, 3]))


def join_heads(g: Graph, x: Any) -> Any:
    batch, heads, length, depth = g.shape(x)
    x = op.permute_dims(x, [0, 2, 1, 3])
    return g.emit(op.reshape(x, [batch, length, g.scalars.mul(heads, depth)]))


def _repeated(g: Graph, x: Any, heads: int) -> Any:
    """Each head of keys or values serves several heads of queries."""
    batch, have, length, depth = g.shape(x)
    if have == heads:
        return x
    times = heads // have
    x = op.broadcast_to(op.expand_dims(x, axis=[2]), [batch, have, times, length, depth])
    return g.emit(op.reshape(x, [batch, heads, length, depth]))


def _positions(g: Graph, queries: Any, keys: Any, offset: Any) -> Any:
    """How far key j lies behind query i, whose position is offset + i: [queries, keys] or per batch."""
    row = op.reshape(op.arange(0, queries, 1, dtype="int64"), [queries, 1])
    column = op.reshape(op.arange(0, keys, 1, dtype="int64"), [1, keys])
    distance = op.subtract(row, column)
    return g.emit(distance if offset is None else op.add(distance, offset))


def fitting(g: Graph, q: Any, k: Any, v: Any) -> tuple[Any, Any, Any]:
    """Queries, keys and values whose batches, lengths and depths agree."""
    batch, _, _, depth = g.shape(q)
    _, heads, keys, other = g.shape(k)
    depth = other if isinstance(other, int) else depth
    q = g.checked(q, [*g.shape(q)[:3], depth])
    return (
        q,
        g.checked(k, [batch, heads, keys, depth]),
        g.checked(v, [batch, heads, keys, g.shape(v)[3]]),
    )


def after_past(g: Graph, past_key: Any, past_value: Any, k: Any, v: Any) -> tuple[Any, Any]:
    """Keys and values behind those of the cache, of which only the length is its own."""
    past = g.shape(past_key)[2]
    behind = lambda old, new: g.emit(op.concat([_cache(g, old, past, g.shape(new)), new], axis=2))
    return behind(past_key, k), behind(past_value, v)


def _cache(g: Graph, old: Any, past: Any, like: list) -> Any:
    return g.checked(old, [like[0], like[1], past, like[3]])


@dataclasses.dataclass
class Scores:
    """What happens between the two products."""

    scale: float
    masks: list  # added, or of bool: True takes part; they broadcast to [B, heads, queries, keys]
    softcap: float = 0.0
    precision: str | None = None
    guard: bool = False  # a row that sees no key gives zeros
    sink: Any = None  # [heads]: a score beside those of the keys, with nothing behind it


def attend(g: Graph, q: Any, k: Any, v: Any, how: Scores) -> tuple[Any, list]:
    """The result [B, heads, S, D] and the scores after product, softcap, mask and softmax."""
    heads = g.shape(q)[1]
    k, v = _repeated(g, k, heads), _repeated(g, v, heads)
    dtype = g.dtype(q)
    keys = g.emit(op.permute_dims(k, [0, 1, 3, 2]))
    # Both sides are scaled, as ONNX says: products of small floats do not overflow.
    root = g.scalar(math.sqrt(how.scale), q)
    scores = g.emit(op.matmul(op.multiply(q, root), op.multiply(keys, root)))
    stages = [scores]
    if how.softcap:
        cap = g.scalar(how.softcap, q)
        scores = g.emit(op.multiply(op.tanh(op.divide(scores, cap)), cap))
    stages.append(scores)
    mask, scores = _masked(g, scores, how.masks)
    stages.append(scores)
    if how.precision and how.precision != dtype:
        scores = g.emit(op.astype(scores, how.precision))
    if how.sink is None:
        weights = g.emit(op.nn.softmax(scores, axis=-1))
    else:
        weights = _beside(g, scores, how.sink)
    if g.dtype(weights) != dtype:
        weights = g.emit(op.astype(weights, dtype))
    y = g.emit(op.matmul(weights, v))
    if how.guard and mask is not None:
        chosen = g.dtype(mask) == "bool"
        marks = op.astype(mask, "int8") if chosen else mask
        best = g.emit(op.max(marks, axis=[-1], keepdims=True))
        hidden = g.emit(op.equal(best, g.scalar(0 if chosen else -math.inf, best)))
        zero = g.scalar(0, y)
        blank = lambda x: (lambda at, kept: g.emit(op.where(at, zero, kept)))(*g.agree(hidden, x))
        y = blank(y)
        weights = blank(weights) if g.wants(3) else weights
    stages.append(weights)
    return y, stages


def _masked(g: Graph, scores: Any, masks: list) -> tuple:
    """All masks become one: what is chosen by, or what is added; None when there is none."""
    dtype = g.dtype(scores)
    seen = added = None
    for mask in masks:
        if g.dtype(mask) == "bool":
            seen = mask if seen is None else g.emit(op.logical_and(*g.agree(seen, mask)))
        else:
            mask = g.emit(op.astype(mask, dtype)) if g.dtype(mask) != dtype else mask
            added = mask if added is None else g.emit(op.add(*g.agree(added, mask)))
    hidden = g.scalar(-math.inf, scores)
    shape = g.shape(scores)
    if added is None:
        if seen is None:
            return None, scores
        return seen, g.emit(op.where(fitted(g, seen, shape), scores, hidden))
    added = added if seen is None else g.emit(op.where(*g.agree(seen, added), hidden))
    return added, g.emit(op.add(scores, fitted(g, added, shape)))


def _beside(g: Graph, scores: Any, sink: Any) -> Any:
    """Softmax over the scores and one more of each head, whose weight is left out."""
    sink = g.emit(op.astype(op.reshape(sink, [1, g.shape(sink)[0], 1, 1]), g.dtype(scores)))
    top = g.emit(op.maximum(op.max(scores, axis=[-1], keepdims=True), sink))
    parts = g.emit(op.exp(op.subtract(scores, top)))
    total = op.add(op.sum(parts, axis=[-1], keepdims=True), op.exp(op.subtract(sink, top)))
    return g.emit(op.divide(parts, g.emit(total)))


@onnx_op("Attention", since=23)
def attention(
    g: Graph,
    q: Expr,
    k: Expr,
    v: Expr,
    mask: Expr | None = None,
    past_key: Expr | None = None,
    past_value: Expr | None = None,
    nonpad_kv_seqlen: Expr | None = None,
    *,
    is_causal: int = 0,
    kv_num_heads: int = 0,
    left_window_size: int = -1,
    q_num_heads: int = 0,
    qk_matmul_output_mode: int = 0,
    right_window_size: int = -1,
    scale: float | None = None,
    softcap: float = 0.0,
    softmax_precision: int = 0,
) -> tuple:
    flat = g.rank(q) == 3
    if flat:
        if not q_num_heads or not kv_num_heads:
            raise InvalidModel("q_num_heads and kv_num_heads are needed for 3 dimensions")
        q, k, v = split_heads(g, q, q_num_heads), *(split_heads(g, x, kv_num_heads) for x in (k, v))
    offset: Any = None
    if past_key is not None:
        past = g.shape(past_key)[2]
        offset = g.as_expr(g.dims_value([past], ()), "past")
        k, v = after_past(g, past_key, past_value, k, v)
    q, k, v = fitting(g, q, k, v)
    queries, keys = g.shape(q)[2], g.shape(k)[2]
    masks: list = []
    if mask is not None:
        masks.append(_full_width(g, mask, keys))
    lengths = None
    if nonpad_kv_seqlen is not None:
        lengths = g.emit(op.reshape(op.astype(nonpad_kv_seqlen, "int64"), [-1, 1, 1, 1]))
        column = op.reshape(op.arange(0, keys, 1, dtype="int64"), [1, 1, 1, keys])
        masks.append(g.emit(op.less(column, lengths)))
        total = g.as_expr(g.dims_value([queries], ()), "queries")
        offset = g.emit(op.subtract(lengths, total))
    if is_causal or left_window_size >= 0 or right_window_size >= 0:
        distance = _positions(g, queries, keys, offset)
        bounds = [(op.less_equal, left_window_size)] if left_window_size >= 0 else []
        least = [0] if is_causal else []
        least += [-right_window_size] if right_window_size >= 0 else []
        bounds += [(op.greater_equal, bound) for bound in least]
        for relation, bound in bounds:
            masks.append(g.emit(relation(distance, g.constant(bound, "int64"))))
    if scale is None:
        q, scale = _scaled(g, q)
    precision = carrier(softmax_precision) if softmax_precision else None
    # Without a mask, and of keys that begin with the first, every row sees a key.
    some_see_none = bool(masks) and (len(masks) > is_causal or nonpad_kv_seqlen is not None)
    how = Scores(scale, masks, softcap, precision, some_see_none)
    y, stages = attend(g, q, k, v, how)
    y = join_heads(g, y) if flat else y
    return y, k, v, stages[qk_matmul_output_mode]


def _scaled(g: Graph, q: Any) -> tuple[Any, float]:
    """q and 1 / sqrt(head size); q is divided by the root where nobody knows the size yet."""
    depth = g.shape(q)[3]
    if isinstance(depth, int):
        return q, 1 / math.sqrt(depth)
    size = op.astype(g.as_expr(g.dims_value([depth], ()), "head_size"), g.dtype(q))
    return g.emit(op.divide(q, g.emit(op.sqrt(size)))), 1.0


def _full_width(g: Graph, mask: Any, keys: Any) -> Any:
    """A mask may say nothing about the last keys: they do not take part."""
    have = g.shape(mask)[-1]
    if (
        g.scalars.same(have, keys)
        or have == 1
        or not isinstance(have, int)
        or not isinstance(keys, int)
    ):
        return mask
    rest = [0] * (2 * g.rank(mask) - 1) + [keys - have]
    if g.dtype(mask) == "bool":
        wide = op.nn.pad(op.astype(mask, "int8"), pad_width=rest, pad_value=0.0)
        return g.emit(op.astype(wide, "bool"))
    return g.emit(op.nn.pad(mask, pad_width=rest, pad_value=-math.inf))


# ---- com.microsoft


def _mask_ms(g: Graph, mask: Any, batch: Any, keys: Any, value: float, dtype: str) -> Any:
    """Of 0 and 1, in one of the forms that ONNX Runtime takes, as an additive mask."""
    shape = g.shape(mask)
    if len(shape) == 1:  # each row's last key and 1; perhaps, behind all of these, its first key
        column = op.reshape(op.arange(0, keys, 1, dtype="int64"), [1, 1, 1, keys])
        mask = g.emit(op.astype(mask, "int64"))
        bound = lambda x: op.reshape(x, [batch, 1, 1, 1])
        if g.scalars.same(shape[0], batch):
            seen = op.less(column, bound(mask))
        else:
            # Where there are no first keys, these are 0.
            bounds = g.emit(op.concat([mask, op.zeros([batch], "int64")], axis=0))
            part = lambda a, b: g.emit(
                op.strided_slice(bounds, axes=[0], begin=[a], end=[b], assume_inbound=True)
            )
            above = op.less(column, bound(part(0, batch)))
            first = bound(part(batch, g.scalars.mul(batch, 2)))
            seen = op.logical_and(above, op.greater_equal(column, first))
    elif len(shape) == 2:
        seen = op.reshape(op.astype(mask, "bool"), [shape[0], 1, 1, shape[1]])
    elif len(shape) == 3:
        seen = op.reshape(op.astype(mask, "bool"), [shape[0], 1, shape[1], shape[2]])
    else:
        raise UnsupportedModel(f"a mask with {len(shape)} dimensions is not supported")
    seen = g.emit(seen)
    return g.emit(op.where(seen, g.constant(0, dtype), g.constant(value, dtype)))


def attention_ms(
    g: Graph, projected: Any, heads: int, mask: Any, past: Any, bias: Any, causal: bool, hidden: float,
    scale: float, sizes: list[int] | None = None,
) -> tuple:  # fmt: skip
    """com.microsoft's Attention from the projection [B, S, q + k + v] on: the result, and the new cache."""
    width = g.shape(projected)[2]
    sizes = sizes or [g.scalars.floordiv(width, 3)] * 3
    first, second = sizes[0], g.scalars.add(sizes[0], sizes[1])
    cut = lambda a, b: g.emit(op.strided_slice(projected, axes=[2], begin=[a], end=[b]))
    q, k, v = (
        split_heads(g, x, heads) for x in (cut(0, first), cut(first, second), cut(second, width))
    )
    return _attention_ms(g, q, k, v, mask, past, bias, causal, hidden, scale)


def _attention_ms(g, q, k, v, mask, past, bias, causal, hidden, scale) -> tuple:
    present = None
    if past is not None:  # [2, B, heads, past, depth]
        parts = [
            g.emit(op.squeeze(op.strided_slice(past, axes=[0], begin=[i], end=[i + 1]), axis=[0]))
            for i in range(2)
        ]
        k, v = after_past(g, *parts, k, v)
    if g.wants(1):
        present = g.emit(op.stack([k, v], axis=0))
    return _heads_ms(g, q, k, v, mask, bias, causal, hidden, scale), present


def _heads_ms(g, q, k, v, mask, bias, causal, hidden, scale) -> Any:
    batch, _, queries, _ = g.shape(q)
    keys, masks = g.shape(k)[2], []
    if mask is not None:
        masks.append(_mask_ms(g, mask, batch, keys, hidden, g.dtype(q)))
    if bias is not None:
        masks.append(bias)
    if causal:
        behind = g.as_expr(g.dims_value([g.scalars.sub(keys, queries)], ()), "past")
        distance = _positions(g, queries, keys, behind)
        seen = g.emit(op.greater_equal(distance, g.constant(0, "int64")))
        zero, low = g.constant(0, g.dtype(q)), g.constant(hidden, g.dtype(q))
        masks.append(g.emit(op.where(seen, zero, low)))
    if not scale:
        q, scale = _scaled(g, q)
    y, _ = attend(g, q, k, v, Scores(scale, masks))
    return join_heads(g, y)


@onnx_op("Attention", since=1, domain="com.microsoft")
def attention_microsoft(
    g: Graph,
    x: Expr,
    weights: Expr,
    bias: Expr | None = None,
    mask: Expr | None = None,
    past: Expr | None = None,
    attention_bias: Expr | None = None,
    *,
    num_heads: int,
    unidirectional: int = 0,
    qkv_hidden_sizes: list[int] | None = None,
    do_rotary: int = 0,
    mask_filter_value: float = -10000.0,
    past_present_share_buffer: int = 0,
    rotary_embedding_dim: int = 0,
    scale: float = 0.0,
) -> tuple:
    if do_rotary or past_present_share_buffer:
        raise UnsupportedModel("rotary embeddings and shared buffers are not supported")
    projected = g.emit(op.matmul(*inner_agree(g, x, weights)))
    if bias is not None:
        projected = g.emit(op.add(*g.agree(projected, bias)))
    return attention_ms(
        g, projected, num_heads, mask, past, attention_bias, bool(unidirectional),
        mask_filter_value, scale, qkv_hidden_sizes,
    )  # fmt: skip


def _unpacked(g: Graph, x: Any, i: int) -> Any:
    """Part i of [B, S, heads, parts, depth], as [B, S, heads * depth]."""
    batch, length, heads, _, depth = g.shape(x)
    part = op.strided_slice(x, axes=[3], begin=[i], end=[i + 1])
    return g.emit(op.reshape(part, [batch, length, g.scalars.mul(heads, depth)]))


@onnx_op("MultiHeadAttention", since=1, domain="com.microsoft")
def multi_head_attention(
    g: Graph,
    query: Expr,
    key: Expr | None = None,
    value: Expr | None = None,
    bias: Expr | None = None,
    mask: Expr | None = None,
    attention_bias: Expr | None = None,
    past_key: Expr | None = None,
    past_value: Expr | None = None,
    *,
    num_heads: int,
    mask_filter_value: float = -10000.0,
    scale: float = 0.0,
    unidirectional: int = 0,
) -> tuple:
    if g.rank(query) == 5:  # packed: [B, S, heads, 3, depth]
        flat = [_unpacked(g, query, i) for i in range(3)]
    else:
        if key is None:
            raise UnsupportedModel("a packed query, key and value has 5 dimensions")
        if value is None:  # packed: [B, T, heads, 2, depth]
            flat = [query, *(_unpacked(g, key, i) for i in range(2))]
        else:
            flat = [query, key, value]
    if bias is not None:
        total, start = g.shape(bias)[0], 0
        for i, x in enumerate(flat):
            width = g.shape(x)[-1] if g.rank(x) == 3 else g.scalars.floordiv(total, 3)
            end = g.scalars.add(start, width)
            part = op.strided_slice(bias, axes=[0], begin=[start], end=[end])
            flat[i] = g.emit(op.add(*g.agree(x, part))) if g.rank(x) == 3 else x
            start = end
    q, k, v = (split_heads(g, x, num_heads) if g.rank(x) == 3 else x for x in flat)
    if past_key is not None:
        k, v = after_past(g, past_key, past_value, k, v)
    q, k, v = fitting(g, q, k, v)
    y = _heads_ms(g, q, k, v, mask, attention_bias, bool(unidirectional), mask_filter_value, scale)
    return y, k, v
