# SPDX-License-Identifier: Apache-2.0
"""Programs of the paged cache that move keys and values, split and rotate them, and merge outputs."""

from __future__ import annotations

from typing import Any

from relaxvm import tirx
from relaxvm.tirx import PrimFunc, const

from .program import PARALLEL, VECTORIZED, Memory, Program, cast, index, lanes
from .rope import Rotation, Scaling, rope_type


def _copy_row(p: Program, size: int, store: Any, load: Any) -> None:
    width = lanes(size)
    with p.loop("b", size // width) as b, p.loop("i", width, VECTORIZED) as i:
        store(b * width + i, load(b * width + i))


def append_heads(num_heads: int, head_dim: int, dtype: str, page_size: int = 16) -> PrimFunc:
    """Stores keys and values of new tokens at `position_map`: page * page size + slot; negative: nowhere."""
    p = Program("append_heads")
    pages = p.buffer("pages", [p.size("num_pages"), 2, num_heads, page_size, head_dim], dtype)
    tokens = p.size("num_tokens")
    k = p.buffer("k", [tokens, num_heads, head_dim], dtype)
    v = p.buffer("v", [tokens, num_heads, head_dim], dtype)
    position_map = p.buffer("position_map", [tokens], "int32")
    with p.loop("t", tokens) as t:
        at = p.let("at", index(position_map[t]))
        with p.when(at >= 0), p.loop("h", num_heads) as h:
            for part, source in enumerate((k, v)):
                _copy_row(
                    p,
                    head_dim,
                    lambda i, value, part=part: pages.__setitem__(
                        (at // page_size, part, h, at % page_size, i), value
                    ),
                    lambda i, source=source: source[t, h, i],
                )
    return p.build()


def append_latent(d_qk: int, dtype: str, page_size: int = 16) -> PrimFunc:
    """Stores latent rows of new tokens, as append_heads."""
    p = Program("append_latent")
    pages = p.buffer("pages", [p.size("num_pages"), page_size, d_qk], dtype)
    tokens = p.size("num_tokens")
    rows = p.buffer("rows", [tokens, d_qk], dtype)
    position_map = p.buffer("position_map", [tokens], "int32")
    with p.loop("t", tokens) as t:
        at = p.let("at", index(position_map[t]))
        with p.when(at >= 0):
            _copy_row(
                p,
                d_qk,
                lambda i, value: pages.__setitem__((at // page_size, at % page_size, i), value),
                lambda i: rows[t, i],
            )
    return p.build()


def debug_get_kv(
    num_layers: int, num_heads: int, head_dim: int, dtype: str, page_size: int = 16
) -> PrimFunc:
    """Copies keys and values at `position_map` to one layer of (layers, tokens, heads, size)."""
    p = Program("debug_get_kv")
    pages = p.buffer("pages", [p.size("num_pages"), 2, num_heads, page_size, head_dim], dtype)
    tokens = p.size("num_tokens")
    position_map = p.buffer("position_map", [tokens], "int32")
    shape = [num_layers, tokens, num_heads, head_dim]
    targets = p.buffer("k", shape, dtype), p.buffer("v", shape, dtype)
    layer = p.scalar("layer_id", "int64")
    with p.loop("t", tokens) as t, p.loop("h", num_heads) as h:
        at = p.let("at", index(position_map[t]))
        for part, target in enumerate(targets):
            _copy_row(
                p,
                head_dim,
                lambda i, value, target=target: target.__setitem__((layer, t, h, i), value),
                lambda i, part=part: pages[at // page_size, part, h, at % page_size, i],
            )
    return p.build()


def copy_single_page(num_heads: int, page_size: int, head_dim: int, dtype: str) -> PrimFunc:
    """Copies the first `copy_length` tokens of a page to another page."""
    p = Program("copy_single_page")
    pages = p.buffer("pages", [p.size("num_pages"), 2, num_heads, page_size, head_dim], dtype)
    source, target, length = (
        p.scalar(name, "int64") for name in ("src_page_id", "tgt_page_id", "copy_length")
    )
    with p.loop("part", 2) as part, p.loop("h", num_heads) as h, p.loop("t", length) as t:
        _copy_row(
            p,
            head_dim,
            lambda i, value: pages.__setitem__((target, part, h, t, i), value),
            lambda i: pages[source, part, h, t, i],
        )
    return p.build()


def compact_copy(num_heads: int, head_dim: int, dtype: str, page_size: int = 16) -> PrimFunc:
    """Moves tokens, sequence by sequence and in order: from `copy_src_dst_pos[0]` to `[1]`."""
    p = Program("compact_copy")
    pages = p.buffer("pages", [p.size("num_pages"), 2, num_heads, page_size, head_dim], dtype)
    num_offsets = p.size("num_offsets")
    indptr = p.buffer("copy_length_indptr", [num_offsets], "int32")
    places = p.buffer("copy_src_dst_pos", [2, p.size("num_copies")], "int32")
    p.scalar("batch_size", "int32")
    with p.loop("b", num_offsets - 1) as b:
        first = p.let("first", index(indptr[b]))
        with p.loop("c", index(indptr[b + 1]) - first) as c:
            source = p.let("source", index(places[0, first + c]))
            target = p.let("target", index(places[1, first + c]))
            with p.loop("part", 2) as part, p.loop("h", num_heads) as h:
                _copy_row(
                    p,
                    head_dim,
                    lambda i, value: pages.__setitem__(
                        (target // page_size, part, h, target % page_size, i), value
                    ),
                    lambda i: pages[source // page_size, part, h, source % page_size, i],
                )
    return p.build()


def merge_state(dtype: str) -> PrimFunc:
    """Of two attentions to different keys, (tokens, heads, size) and logarithms of their sums in base 2, makes the
    attention to all keys, in the first."""
    p = Program("merge_state")
    tokens, heads, size = p.size("num_tokens"), p.size("num_heads"), p.size("head_size")
    v = p.buffer("v", [tokens, heads, size], dtype)
    s = p.buffer("s", [tokens, heads], "float32")
    other_v = p.buffer("v_other", [tokens, heads, size], dtype)
    other_s = p.buffer("s_other", [tokens, heads], "float32")
    with p.loop("t", tokens, PARALLEL) as t, p.loop("h", heads) as h:
        top = p.let("top", tirx.max(s[t, h], other_s[t, h]))
        a = p.let("a", tirx.exp2(s[t, h] - top))
        b = p.let("b", tirx.exp2(other_s[t, h] - top))
        inverse = p.let("inverse", const(1.0, "float32") / (a + b))
        with p.loop("i", size) as i:
            first, second = (cast("float32", x[t, h, i]) for x in (v, other_v))
            v[t, h, i] = (first * a + second * b) * inverse
        s[t, h] = top + tirx.log2(a + b)
    return p.build()


def split_rotary(
    theta: float,
    scale: float,
    head_dim: int,
    num_q_heads: int,
    num_kv_heads: int,
    dtype: str,
    rope_scaling: Scaling | None = None,
    rotary_dim: int | None = None,
) -> PrimFunc:
    """Splits (tokens, heads, size) into queries, keys and values; with `apply_rope`, rotates the first `rotary_dim`
    elements of queries and keys by the position of their token."""
    rope_type(rope_scaling)
    rotary = head_dim if rotary_dim is None else rotary_dim
    if rotary > head_dim:
        raise ValueError(f"{rotary} elements of {head_dim} cannot be rotated")
    p = Program("split_rotary")
    tokens = p.size("num_tokens")
    qkv = p.buffer("qkv", [tokens, num_q_heads + 2 * num_kv_heads, head_dim], dtype)
    positions = p.buffer("position_map", [tokens], "int32")
    q = p.buffer("q", [tokens, num_q_heads, head_dim], dtype)
    k = p.buffer("k", [tokens, num_kv_heads, head_dim], dtype)
    v = p.buffer("v", [tokens, num_kv_heads, head_dim], dtype)
    apply_rope = p.scalar("apply_rope", "int64")
    rotation = Rotation(p, rotary, const(scale, "float32"), const(theta, "float32"), rope_scaling)

    def copy(t: Any, target: Memory, count: int, first: int) -> None:
        with p.loop("h", count) as h:
            _copy_row(
                p,
                head_dim,
                lambda i, value: target.__setitem__((t, h, i), value),
                lambda i: qkv[t, first + h, i],
            )

    def rotate(t: Any, target: Memory, count: int, first: int) -> None:
        with p.loop("h", count) as h:
            rotation.apply(
                lambda i: cast("float32", qkv[t, first + h, i]),
                lambda i, value: target.__setitem__((t, h, i), value),
            )

    with p.loop("t", tokens, PARALLEL) as t:
        copy(t, q, num_q_heads, 0)
        copy(t, k, num_kv_heads, num_q_heads)
        copy(t, v, num_kv_heads, num_q_heads + num_kv_heads)
        with p.when(apply_rope == 1):
            rotation.turn_to(positions[t])
            rotate(t, q, num_q_heads, 0)
            rotate(t, k, num_kv_heads, num_q_heads)
    return p.build()
