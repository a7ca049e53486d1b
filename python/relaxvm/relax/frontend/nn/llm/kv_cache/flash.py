# SPDX-License-Identifier: Apache-2.0
"""Attention of a tile of query rows, block by block of keys, without the matrix of all scores.

Each row keeps the greatest score m so far, the sum l of e^(score - m), and the sum o of e^(score - m) times values;
a block with a greater score scales both sums down (Milakov and Gimelshein 2018; Dao et al. 2022).  The logarithm of the
sum of all e^score is given to base 2: m log2(e) + log2(l)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from relaxvm import tirx
from relaxvm.tirx import const

from .program import UNROLLED, VECTORIZED, Memory, Program, cast, ceildiv, lanes

KEYS = 32  # of a block
_LANES = 16
_FEW_ROWS = 8
_HIDDEN = (
    -1e30
)  # the score of a key that must not be seen; far below _START, so that its weight is 0
_START = -1e29


@dataclass
class Rows:
    """The tile: `count` of `most` rows are there.  `load(r, d)` and `store(r, d, value)` are float32."""

    most: int
    count: Any
    load: Callable[[Any, Any], Any]
    prepare: Callable[[Any, Memory], None]  # after row r was loaded
    store: Callable[[Any, Any, Any], None]
    store_lse: Callable[[Any, Any], None]


@dataclass
class Keys:
    """Keys `first` to `last`.  `locate(t)` does what all elements of a key share and gives its two loaders."""

    first: Any
    last: Any
    locate: Callable[[Any], tuple[Callable[[Any], Any], Callable[[Any], Any]]]
    prepare: Callable[[Any, Memory, Any], None]  # after key t was loaded into a row
    begin_block: Callable[[Any], None]
    begin_row: Callable[[Any], None]
    # (key, its lane), the key as int32: is it there, and may the row of the last begin_row see it
    sees: Callable[[Any, Any], Any]


def row_block(most: int) -> int:
    """Rows that are multiplied at once."""
    return min(4, 1 << (most - 1).bit_length())


def attend(p: Program, rows: Rows, keys: Keys, key_size: int, value_size: int, scale: Any) -> None:
    """Writes output and logarithm of the sum of every row of the tile."""
    block = row_block(rows.most)
    num_blocks = p.let("num_blocks", ceildiv(rows.count, block))
    padded = -(-rows.most // block) * block
    q = p.local("q", (padded, key_size))
    out = p.local("acc", (padded, value_size))
    top = p.local("top", (padded,))
    total = p.local("total", (padded, _LANES))
    scores = p.local("scores", (padded, KEYS))
    # Turning the keys round costs as much as a few rows of scores: few rows take them as they are.
    turned = rows.most > _FEW_ROWS
    k_block = p.local("k_block", (key_size, KEYS) if turned else (KEYS, key_size))
    v_block = p.local("v_block", (KEYS, value_size))
    k_row = p.local("k_row", (1, key_size)) if turned else None

    _start(p, rows, num_blocks * block, q, out, top, total, scale)
    with p.loop("step", ceildiv(keys.last - keys.first, KEYS)) as step:
        base = p.let("base", keys.first + step * KEYS)
        _load_block(p, keys, base, k_row, k_block, v_block, key_size, value_size)
        keys.begin_block(base)
        if turned:
            _multiply(p, num_blocks, block, q, k_block, scores, key_size, KEYS, None)
        else:
            _multiply_rows(p, num_blocks, block, q, k_block, scores, key_size)
        with p.loop("r", rows.count) as r:
            _weigh(p, keys, base, r, scores, top, total, out, value_size)
        _multiply(p, num_blocks, block, scores, v_block, out, KEYS, value_size, out)
    with p.loop("r", rows.count) as r:
        sum_ = p.let("sum", _reduce(p, total, (r,), lambda a, b: a + b))
        inverse = p.let("inverse", tirx.if_then_else(sum_ > 0.0, 1.0 / sum_, const(0.0, "float32")))
        _vector(p, value_size, lambda i: rows.store(r, i, out[r, i] * inverse))
        lse = top[r] * const(math.log2(math.e), "float32") + tirx.log2(sum_)
        rows.store_lse(r, tirx.if_then_else(sum_ > 0.0, lse, const(_START, "float32")))


def _vector(p: Program, size: int, act: Callable[[Any], None], most: int = 32) -> None:
    width = lanes(size, most)
    with p.loop("b", size // width) as b, p.loop("i", width, VECTORIZED) as i:
        act(b * width + i)


def _start(
    p: Program,
    rows: Rows,
    count: Any,
    q: Memory,
    out: Memory,
    top: Memory,
    total: Memory,
    scale: Any,
) -> None:
    key_size, value_size = (int(m.var.ty.shape[1]) for m in (q, out))
    zero = const(0.0, "float32")

    def clear(memory: Memory, r: Any) -> Callable[[Any], None]:
        return lambda i: memory.__setitem__((r, i), zero)

    with p.loop("r", count) as r:
        top[r] = const(_START, "float32")
        _vector(p, _LANES, clear(total, r))
        _vector(p, value_size, clear(out, r))
        with p.either(r < rows.count) as otherwise:
            _vector(p, key_size, lambda i: q.__setitem__((r, i), rows.load(r, i)))
            rows.prepare(r, q)
            _vector(p, key_size, lambda i: q.__setitem__((r, i), q[r, i] * scale))
            otherwise()
            _vector(p, key_size, clear(q, r))


def _load_block(
    p: Program,
    keys: Keys,
    base: Any,
    k_row: Memory | None,
    k_block: Memory,
    v_block: Memory,
    key_size: int,
    value_size: int,
) -> None:
    """Values in rows, keys in rows, or turned round by way of `k_row`; zeros after the last one."""
    zero = const(0.0, "float32")
    with p.loop("t", KEYS) as t:
        row, r = (k_block, t) if k_row is None else (k_row, 0)
        with p.either(base + t < keys.last) as otherwise:
            load_key, load_value = keys.locate(base + t)
            _vector(p, key_size, lambda i: row.__setitem__((r, i), load_key(i)))
            keys.prepare(base + t, row, r)
            _vector(p, value_size, lambda i: v_block.__setitem__((t, i), load_value(i)))
            otherwise()
            _vector(p, key_size, lambda i: row.__setitem__((r, i), zero))
            _vector(p, value_size, lambda i: v_block.__setitem__((t, i), zero))
        if k_row is not None:
            with p.loop("d", key_size) as d:
                k_block[d, t] = k_row[0, d]


def _multiply(
    p: Program,
    num_blocks: Any,
    block: int,
    a: Memory,
    b: Memory,
    c: Memory,
    depth: int,
    width: int,
    start: Memory | None,
) -> None:
    """c = a b, or start + a b: `block` rows by some columns are held in registers."""
    columns = lanes(width)
    with p.loop("rb", num_blocks) as rb, p.loop("cb", width // columns) as cb:
        acc = p.local("tile", (block, columns))
        with p.loop("r", block, UNROLLED) as r, p.loop("i", columns, VECTORIZED) as i:
            acc[r, i] = (
                const(0.0, "float32") if start is None else start[rb * block + r, cb * columns + i]
            )
        with p.loop("k", depth) as k:
            with p.loop("r", block, UNROLLED) as r, p.loop("i", columns, VECTORIZED) as i:
                acc[r, i] = tirx.fma(a[rb * block + r, k], b[k, cb * columns + i], acc[r, i])
        with p.loop("r", block, UNROLLED) as r, p.loop("i", columns, VECTORIZED) as i:
            c[rb * block + r, cb * columns + i] = acc[r, i]


def _multiply_rows(
    p: Program, num_blocks: Any, block: int, a: Memory, b: Memory, c: Memory, depth: int
) -> None:
    """c = a times b turned round: every element is the sum of a vector."""
    width = lanes(depth, _LANES)
    with p.loop("rb", num_blocks) as rb, p.loop("t", KEYS) as t:
        acc = p.local("tile", (block, width))
        with p.loop("r", block, UNROLLED) as r, p.loop("i", width, VECTORIZED) as i:
            acc[r, i] = const(0.0, "float32")
        with p.loop("k", depth // width) as k:
            with p.loop("r", block, UNROLLED) as r, p.loop("i", width, VECTORIZED) as i:
                at = k * width + i
                acc[r, i] = tirx.fma(a[rb * block + r, at], b[t, at], acc[r, i])
        with p.loop("r", block, UNROLLED) as r:
            c[rb * block + r, t] = _reduce(p, acc, (r,), lambda x, y: x + y)


def _reduce(
    p: Program, memory: Memory, at: tuple[Any, ...], join: Callable[[Any, Any], Any]
) -> Any:
    """One value of the last dimension of a buffer, by halves."""
    size = int(memory.var.ty.shape[len(at)])
    while size > 1:
        size //= 2
        half = p.local(f"half{size}", (size,))
        with p.loop("i", size, VECTORIZED) as i:
            half[i] = join(memory[(*at, i)], memory[(*at, i + size)])
        memory, at = half, ()
    return memory[(*at, 0)]


def _weigh(
    p: Program,
    keys: Keys,
    base: Any,
    r: Any,
    scores: Memory,
    top: Memory,
    total: Memory,
    out: Memory,
    value_size: int,
) -> None:
    """Scores of a row become weights; what was summed before is scaled to the new greatest score."""
    keys.begin_row(r)
    hidden = const(_HIDDEN, "float32")
    first = p.let("first", cast("int32", base))
    with p.loop("i", KEYS, VECTORIZED) as i:
        seen = keys.sees(first + cast("int32", i), i)
        scores[r, i] = tirx.Select(seen, scores[r, i], hidden)
    best = p.let("best", tirx.max(top[r], _reduce(p, scores, (r,), tirx.max)))
    shrink = p.let("shrink", tirx.exp(top[r] - best))
    top[r] = best
    with p.loop("i", KEYS, VECTORIZED) as i:
        scores[r, i] = tirx.exp(scores[r, i] - best)
    with p.loop("i", _LANES, VECTORIZED) as i:
        total[r, i] = total[r, i] * shrink + (scores[r, i] + scores[r, i + _LANES])
    _vector(p, value_size, lambda i: out.__setitem__((r, i), out[r, i] * shrink))
