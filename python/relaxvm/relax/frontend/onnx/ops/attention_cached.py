# SPDX-License-Identifier: Apache-2.0
"""Attention of decoders with a cache (com.microsoft), in which each element of the batch has a length of its own."""

from __future__ import annotations

import math
from typing import Any

from relaxvm.relax import op

from ..errors import InvalidModel, UnsupportedModel
from ..graph import Graph
from ..registry import Dims, Expr, onnx_op
from .attention import Scores, attend, join_heads, split_heads
from .rotary import turned


@onnx_op("GroupQueryAttention", since=1, domain="com.microsoft")
def group_query_attention(
    g: Graph,
    query: Expr,
    key: Expr | None = None,
    value: Expr | None = None,
    past_key: Expr | None = None,
    past_value: Expr | None = None,
    seqlens_k: Expr | None = None,
    total_sequence_length: Dims | None = None,
    cos_cache: Expr | None = None,
    sin_cache: Expr | None = None,
    position_ids: Expr | None = None,
    attention_bias: Expr | None = None,
    head_sink: Expr | None = None,
    k_scale: Expr | None = None,
    v_scale: Expr | None = None,
    q_norm_weight: Expr | None = None,
    k_norm_weight: Expr | None = None,
    query_seqlens: Expr | None = None,
    *,
    num_heads: int,
    kv_num_heads: int,
    causal: int = 1,
    do_rotary: int = 0,
    k_norm_epsilon: float | None = None,
    k_quant_type: str = "NONE",
    kv_cache_bit_width: int = 0,
    local_window_size: int = -1,
    q_norm_epsilon: float | None = None,
    qk_norm_epsilon: float = 1e-6,
    qk_output: int = 0,
    rotary_interleaved: int = 0,
    scale: float = 0.0,
    sliding_window_cache: int = 0,
    smooth_softmax: int = 0,
    softcap: float = 0.0,
    v_quant_type: str = "NONE",
) -> tuple:
    """Row b holds seqlens_k[b] + 1 positions with the new ones, which follow the cache's."""
    if seqlens_k is None or total_sequence_length is None:
        raise InvalidModel("seqlens_k and total_sequence_length are needed")
    if k_quant_type != "NONE" or v_quant_type != "NONE" or qk_output or sliding_window_cache:
        raise UnsupportedModel(
            "quantized and sliding caches, and scores as output, are not supported"
        )
    if query_seqlens is not None:
        raise UnsupportedModel("query_seqlens is not supported")
    q, k, v = _heads(g, query, key, value, num_heads, kv_num_heads)
    if q_norm_weight is not None:
        norm = lambda x, w, e: g.emit(
            op.nn.rms_norm(x, w, axes=[-1], epsilon=qk_norm_epsilon if e is None else e)
        )
        q, k = norm(q, q_norm_weight, q_norm_epsilon), norm(k, k_norm_weight, k_norm_epsilon)
    batch, _, length, depth = g.shape(q)
    if not isinstance(depth, int):
        raise UnsupportedModel("the size of its heads is unknown; give the query's last dimension")
    k, v = (g.checked(x, [batch, kv_num_heads, length, depth]) for x in (k, v))
    ends = g.emit(op.reshape(op.astype(seqlens_k, "int64"), [-1]))
    ends = g.emit(op.add(g.checked(ends, [batch]), g.constant(1, "int64")))
    count = g.as_expr(g.dims_value([length], ()), "length")
    # The first prompt may be longer than a row's own part of it, which is padded.
    starts = g.emit(op.maximum(op.subtract(ends, count), g.constant(0, "int64")))
    rows = op.reshape(op.arange(0, length, 1, dtype="int64"), [1, length])
    places = g.emit(op.add(op.reshape(starts, [batch, 1]), rows))
    if do_rotary:
        at = places if position_ids is None else position_ids
        q, k = (turned(g, x, at, cos_cache, sin_cache, bool(rotary_interleaved)) for x in (q, k))
    total = g.scalars.maximum(total_sequence_length[0], length)
    if past_key is None:
        past_key = past_value = g.emit(op.zeros([batch, kv_num_heads, 0, depth], g.dtype(q)))
    past = g.shape(past_key)[2]
    past_key, past_value = (
        g.checked(x, [batch, kv_num_heads, past, depth]) for x in (past_key, past_value)
    )
    room = g.scalars.maximum(past, total)
    k = g.emit(op.rvm.cache_rows(past_key, k, starts, [room]))
    v = g.emit(op.rvm.cache_rows(past_value, v, starts, [room]))
    column = op.reshape(op.arange(0, total, 1, dtype="int64"), [1, 1, 1, total])
    behind = g.emit(op.subtract(op.reshape(places, [batch, 1, length, 1]), column))
    masks: list = []
    if causal:
        masks.append(op.greater_equal(behind, g.constant(0, "int64")))
    else:
        masks.append(op.less(column, op.reshape(ends, [batch, 1, 1, 1])))
    if local_window_size >= 0:
        masks.append(op.less(behind, g.constant(local_window_size, "int64")))
    masks = [g.emit(mask) for mask in masks]
    if attention_bias is not None:
        masks.insert(0, attention_bias)
    seen = lambda x: g.emit(
        op.strided_slice(x, axes=[2], begin=[0], end=[total], assume_inbound=True)
    )
    keys, values = (x if g.scalars.same(room, total) else seen(x) for x in (k, v))
    if not scale:
        scale = 1 / math.sqrt(depth)
    if head_sink is None and smooth_softmax:
        head_sink = g.constant([0.0] * num_heads, g.dtype(q))
    how = Scores(scale, masks, softcap, sink=head_sink)
    y, _ = attend(g, q, keys, values, how)
    return join_heads(g, y), k, v


def _heads(g: Graph, query: Any, key: Any, value: Any, heads: int, kv_heads: int) -> tuple:
    if key is not None:
        return split_heads(g, query, heads), *(split_heads(g, x, kv_heads) for x in (key, value))
    batch, length, width = g.shape(query)
    all_heads = heads + 2 * kv_heads
    packed = g.emit(op.reshape(query, [batch, length, all_heads, width // all_heads]))
    packed = g.emit(op.permute_dims(packed, [0, 2, 1, 3]))
    ends = [0, heads, heads + kv_heads, all_heads]
    cut = lambda a, b: g.emit(op.strided_slice(packed, axes=[1], begin=[a], end=[b]))
    return tuple(cut(a, b) for a, b in zip(ends, ends[1:]))
