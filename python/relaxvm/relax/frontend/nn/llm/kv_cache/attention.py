# SPDX-License-Identifier: Apache-2.0
"""Attention programs of the paged cache for a CPU; parameters in the order in which the cache passes them.

Queries are (tokens, query heads, size) with `q_indptr` where each sequence begins; pages are (pages, 2, key heads,
page size, size).  `length_info` has the slots in use of each sequence's last page; in programs with windows three
rows: that, the slot where the tokens after the hole begin, and how many tokens stand before the hole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from relaxvm.tirx import AssertStmt, PrimFunc, const

from .program import PARALLEL, Memory, Program, cast, index
from .rope import Scaling
from .tiles import (
    Batch,
    Heads,
    Limits,
    Pages,
    attend_tile,
    batch_of,
    for_tiles,
    outputs,
    queries,
    rope_params,
    rotations,
)


def prefill_paged(
    h_kv: int,
    h_q: int,
    d: int,
    dtype: str,
    sliding_window: bool,
    rope_scaling: Scaling | None,
    page_size: int = 16,
    sliding_window_size: int | None = None,
) -> PrimFunc:
    """Several new tokens a sequence, whose keys are in the pages already.

    With `causal` the last query sees all keys, each one before a key less.  `sliding_window_size`: a query sees so
    many keys, itself among them, besides those before the hole.
    """
    heads = Heads(h_kv, h_q, d, d, dtype)
    p = Program("prefill_paged" + ("_window" if sliding_window else ""))
    q, tokens, batch, q_indptr = queries(p, heads)
    pages = Pages(p, heads, page_size, sliding_window)
    pages.lists(batch)
    offset = p.buffer("k_rope_pos_offset", [batch], "int32")
    positions = p.buffer("q_rope_position", [tokens], "int32")
    out, lse = outputs(p, heads, tokens)
    causal = p.scalar("causal", "int32")
    rope = rope_params(p, rope_scaling)
    scale = p.scalar("sm_scale", "float32")

    def tile(b: Any, h: Any, first_row: Any) -> None:
        limits = Limits(p, batch_of(p, b, q_indptr, pages.num_keys(b)), heads.group, first_row)
        limits.causal = causal
        if sliding_window and sliding_window_size is not None:
            limits.window, limits.sinks = sliding_window_size, pages.before
        first = limits.batch.first_token
        rotate = rotations(
            p,
            heads,
            rope,
            lambda r: positions[first + limits.query(r)],
            lambda t: index(offset[b]) + t,
        )
        attend_tile(p, heads, heads.tile, limits, h, (q, out, lse), pages.locate(h), rotate, scale)

    for_tiles(p, heads, q_indptr, tokens, batch, tile)
    return p.build()


def decode_paged(
    num_kv_heads: int,
    num_qo_heads: int,
    head_dim: int,
    qkv_dtype: str,
    sliding_window: bool,
    rope_scaling: Scaling | None,
    page_size: int = 16,
) -> PrimFunc:
    """One new token a sequence, whose key is in the pages already: the query heads of a key head are the rows."""
    heads = Heads(num_kv_heads, num_qo_heads, head_dim, head_dim, qkv_dtype)
    p = Program("decode_paged" + ("_window" if sliding_window else ""))
    batch = p.size("batch")
    q = p.buffer("q", [batch, heads.queries, heads.size], heads.dtype)
    pages = Pages(p, heads, page_size, sliding_window)
    pages.lists(batch)
    offset = p.buffer("k_rope_pos_offset", [batch], "int32")
    positions = p.buffer("q_rope_position", [batch], "int32")
    out, lse = outputs(p, heads, batch)
    rope = rope_params(p, rope_scaling)
    scale = p.scalar("sm_scale", "float32")
    with p.loop("task", batch * heads.keys, PARALLEL) as task:
        b, h = p.let("b", task // heads.keys), p.let("h", task % heads.keys)
        sequence = Batch(b, b, const(1, "int64"), pages.num_keys(b))
        limits = Limits(p, sequence, heads.group, const(0, "int64"))
        rotate = rotations(p, heads, rope, lambda r: positions[b], lambda t: index(offset[b]) + t)
        attend_tile(p, heads, heads.group, limits, h, (q, out, lse), pages.locate(h), rotate, scale)
    return p.build()


def _ragged_keys(
    p: Program, heads: Heads, batch: Any
) -> tuple[Memory, Memory, Memory, Callable[[Any, Any], Any]]:
    tokens = p.size("num_kv_tokens")
    k = p.buffer("k", [tokens, heads.keys, heads.size], heads.dtype)
    v = p.buffer("v", [tokens, heads.keys, heads.value_size], heads.dtype)
    indptr = p.buffer("kv_indptr", [batch + 1], "int32")

    def locate(first: Any, h: Any) -> Any:
        return lambda t: (
            lambda i: cast("float32", k[first + t, h, i]),
            lambda i: cast("float32", v[first + t, h, i]),
        )

    return k, v, indptr, locate


def prefill_ragged(
    h_kv: int, h_q: int, d_qk: int, d_v: int, dtype: str, rope_scaling: Scaling | None
) -> PrimFunc:
    """Queries, keys and values of several sequences one after another, without pages."""
    heads = Heads(h_kv, h_q, d_qk, d_v, dtype)
    p = Program("prefill_ragged")
    q, tokens, batch, q_indptr = queries(p, heads)
    _, _, kv_indptr, locate = _ragged_keys(p, heads, batch)
    positions = p.buffer("q_rope_position", [tokens], "int32")
    offset = p.buffer("k_rope_pos_offset", [batch], "int32")
    out, lse = outputs(p, heads, tokens)
    causal = p.scalar("causal", "int32")
    rope = rope_params(p, rope_scaling)
    scale = p.scalar("sm_scale", "float32")

    def tile(b: Any, h: Any, first_row: Any) -> None:
        first = p.let("first_key", index(kv_indptr[b]))
        num_keys = p.let("num_keys", index(kv_indptr[b + 1]) - first)
        limits = Limits(p, batch_of(p, b, q_indptr, num_keys), heads.group, first_row)
        limits.causal = causal
        start = limits.batch.first_token
        rotate = rotations(
            p,
            heads,
            rope,
            lambda r: positions[start + limits.query(r)],
            lambda t: index(offset[b]) + t,
        )
        attend_tile(p, heads, heads.tile, limits, h, (q, out, lse), locate(first, h), rotate, scale)

    for_tiles(p, heads, q_indptr, tokens, batch, tile)
    return p.build()


def tree_ragged(h_kv: int, h_q: int, d: int, dtype: str, rope_scaling: Scaling | None) -> PrimFunc:
    """As prefill_ragged, where the tokens of each sequence form a forest and see themselves and their ancestors."""
    heads = Heads(h_kv, h_q, d, d, dtype)
    p = Program("tree_ragged")
    q, tokens, batch, q_indptr = queries(p, heads)
    _, _, kv_indptr, locate = _ragged_keys(p, heads, batch)
    positions = p.buffer("q_rope_position", [tokens], "int32")
    tree_indptr = p.buffer("mn_indptr", [batch + 1], "int32")
    order = p.buffer("mask", [p.size("num_nodes"), 2], "int32")
    out, lse = outputs(p, heads, tokens)
    rope = rope_params(p, rope_scaling)
    scale = p.scalar("sm_scale", "float32")

    def tile(b: Any, h: Any, first_row: Any) -> None:
        first = p.let("first_key", index(kv_indptr[b]))
        num_keys = p.let("num_keys", index(kv_indptr[b + 1]) - first)
        limits = Limits(p, batch_of(p, b, q_indptr, num_keys), heads.group, first_row)
        _set_tree(p, limits, b, tree_indptr, order)
        start = limits.batch.first_token
        rotate = rotations(
            p,
            heads,
            rope,
            lambda r: positions[start + limits.query(r)],
            lambda t: positions[first + t],
        )
        attend_tile(p, heads, heads.tile, limits, h, (q, out, lse), locate(first, h), rotate, scale)

    for_tiles(p, heads, q_indptr, tokens, batch, tile)
    return p.build()


def _set_tree(p: Program, limits: Limits, b: Any, indptr: Memory, order: Memory) -> None:
    limits.order = order
    limits.order_start = p.let("order_start", index(indptr[b]))
    limits.tree_size = p.let("tree_size", index(indptr[b + 1]) - limits.order_start)


def tree_paged(
    h_kv: int, h_q: int, d: int, dtype: str, rope_scaling: Scaling | None, page_size: int = 16
) -> PrimFunc:
    """As prefill_paged, where the last keys of each sequence form a forest: queries see the keys before it,
    themselves and their ancestors.  Keys are rotated before they are stored."""
    heads = Heads(h_kv, h_q, d, d, dtype)
    p = Program("tree_paged")
    q, tokens, batch, q_indptr = queries(p, heads)
    pages = Pages(p, heads, page_size)
    pages.lists(batch)
    p.buffer("k_rope_pos_offset", [batch], "int32")
    p.buffer("q_rope_position", [tokens], "int32")
    out, lse = outputs(p, heads, tokens)
    rope = rope_params(p, rope_scaling)
    scale = p.scalar("sm_scale", "float32")
    tree_indptr = p.buffer("tree_order_indptr", [batch + 1], "int32")
    order = p.buffer("tree_order", [p.size("num_nodes"), 2], "int32")
    p.add(
        AssertStmt(
            rope.mode == 0, "ValueError", "trees of tokens need keys that are stored rotated"
        )
    )

    def tile(b: Any, h: Any, first_row: Any) -> None:
        limits = Limits(p, batch_of(p, b, q_indptr, pages.num_keys(b)), heads.group, first_row)
        _set_tree(p, limits, b, tree_indptr, order)
        rotate = rotations(p, heads, None, None, None)
        attend_tile(p, heads, heads.tile, limits, h, (q, out, lse), pages.locate(h), rotate, scale)

    for_tiles(p, heads, q_indptr, tokens, batch, tile)
    return p.build()


def prefill_latent(
    num_heads: int, d_qk: int, d_v: int, dtype: str, page_size: int = 16
) -> PrimFunc:
    """Latent attention: pages (pages, page size, d_qk) of one key head, whose first d_v elements are the values."""
    heads = Heads(1, num_heads, d_qk, d_v, dtype)
    p = Program("prefill_latent")
    q, tokens, batch, q_indptr = queries(p, heads)
    pages = Pages(p, heads, page_size, is_latent=True)
    pages.lists(batch)
    out, lse = outputs(p, heads, tokens)
    causal = p.scalar("causal", "int32")
    scale = p.scalar("sm_scale", "float32")

    def locate(t: Any) -> Any:
        page, slot = pages.place(t)

        def element(i: Any) -> Any:
            return cast("float32", pages.pages[page, slot, i])

        return element, element

    def tile(b: Any, h: Any, first_row: Any) -> None:
        limits = Limits(p, batch_of(p, b, q_indptr, pages.num_keys(b)), heads.group, first_row)
        limits.causal = causal
        rotate = rotations(p, heads, None, None, None)
        attend_tile(p, heads, heads.tile, limits, h, (q, out, lse), locate, rotate, scale)

    for_tiles(p, heads, q_indptr, tokens, batch, tile)
    return p.build()
