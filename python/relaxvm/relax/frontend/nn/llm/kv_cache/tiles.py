# SPDX-License-Identifier: Apache-2.0
"""What attention programs have in common: keys in pages, tiles of query rows, and which keys a row sees."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from relaxvm import tirx
from relaxvm.tirx import const

from .flash import KEYS, Keys, Rows, attend
from .program import PARALLEL, Memory, Program, cast, ceildiv, index
from .rope import Rotation, Scaling

_NEVER, _ALWAYS = 1 << 30, -(1 << 30)


@dataclass
class Heads:
    keys: int
    queries: int
    size: int
    value_size: int
    dtype: str

    def __post_init__(self) -> None:
        if self.queries % self.keys:
            raise ValueError(f"{self.queries} query heads cannot share {self.keys} key heads")

    @property
    def group(self) -> int:
        return self.queries // self.keys

    @property
    def tile(self) -> int:
        """Rows of a tile: a block of keys is loaded and turned round once for all, and all stay in the second cache."""
        return 64 if self.size <= 256 else 32


@dataclass
class Rope:
    mode: Any
    scale: Any
    theta: Any
    scaling: Scaling | None


def rope_params(p: Program, scaling: Scaling | None) -> Rope:
    return Rope(
        p.scalar("rotary_mode", "int32"),
        p.scalar("rope_scale", "float32"),
        p.scalar("rope_theta", "float32"),
        scaling,
    )


@dataclass
class Batch:
    """The sequence of a task: its query tokens, its keys, and what of them a row may see."""

    b: Any
    first_token: Any
    num_queries: Any
    num_keys: Any


class Pages:
    """Keys and values in pages."""

    def __init__(
        self,
        p: Program,
        heads: Heads,
        page_size: int,
        has_windows: bool = False,
        is_latent: bool = False,
    ) -> None:
        self.p, self.page_size, self.has_windows = p, page_size, has_windows
        inner = [page_size] if is_latent else [2, heads.keys, page_size]
        self.pages = p.buffer("pages", [p.size("num_pages"), *inner, heads.size], heads.dtype)

    def lists(self, batch: Any) -> None:
        p = self.p
        self.indptr = p.buffer("page_indptr", [batch + 1], "int32")
        self.values = p.buffer("page_values", [p.size("num_used")], "int32")
        shape = [3, batch] if self.has_windows else [batch]
        self.length = p.buffer("length_info", shape, "int32")

    def num_keys(self, b: Any) -> Any:
        p = self.p
        self.first = p.let("first_page", index(self.indptr[b]))
        count = p.let("page_count", index(self.indptr[b + 1]) - self.first)
        if self.has_windows:
            self.before = p.let("before_hole", index(self.length[2, b]))
            self.shift = p.let("hole", index(self.length[1, b]) - self.before)
            used = index(self.length[0, b]) - self.shift
        else:
            used = index(self.length[b])
        slots = (count - 1) * self.page_size + used
        return p.let("num_keys", tirx.if_then_else(count > 0, slots, const(0, "int64")))

    def place(self, t: Any) -> tuple[Any, Any]:
        """Page and slot of key t."""
        p = self.p
        slot = t
        if self.has_windows:
            slot = p.let("slot", tirx.if_then_else(t < self.before, t, t + self.shift))
        page = p.let("page", index(self.values[self.first + slot // self.page_size]))
        return page, p.let("in_page", slot % self.page_size)

    def locate(self, h: Any) -> Callable[[Any], tuple[Any, Any]]:
        def at(t: Any) -> tuple[Any, Any]:
            page, slot = self.place(t)
            return (
                lambda i: cast("float32", self.pages[page, 0, h, slot, i]),
                lambda i: cast("float32", self.pages[page, 1, h, slot, i]),
            )

        return at


def for_tiles(
    p: Program, heads: Heads, q_indptr: Memory, num_tokens: Any, batch: Any, act: Any
) -> None:
    """act(b, h, first row, rows of the sequence) for every tile of rows; a row is a query of one head of a group."""
    group = heads.group
    num_tiles = ceildiv(num_tokens * group, heads.tile) + batch
    with p.loop("task", num_tiles * heads.keys, PARALLEL) as task:
        tile, h = p.let("tile", task // heads.keys), p.let("h", task % heads.keys)
        found = p.local("found", (3,), "int64")  # sequence, tile in it, tiles before it
        found[0] = const(-1, "int64")
        found[2] = const(0, "int64")
        with p.loop("s", batch) as s:
            count = p.let(
                "count", ceildiv(index(q_indptr[s + 1] - q_indptr[s]) * group, heads.tile)
            )
            here = tirx.And(found[2] <= tile, tile < found[2] + count)
            with p.when(here):
                found[0] = s
                found[1] = tile - found[2]
            found[2] = found[2] + count
        with p.when(found[0] >= 0):
            b = p.let("b", found[0])
            act(b, h, p.let("first_row", found[1] * heads.tile))


def _rows(
    p: Program,
    heads: Heads,
    most: int,
    count: Any,
    token_and_head: Callable[[Any], tuple[Any, Any]],
    q: Memory,
    out: Memory,
    lse: Memory,
    prepare: Callable[[Any, Memory], None],
) -> Rows:
    def load(r: Any, i: Any) -> Any:
        token, head = token_and_head(r)
        return cast("float32", q[token, head, i])

    def store(r: Any, i: Any, value: Any) -> None:
        token, head = token_and_head(r)
        out[token, head, i] = value

    def store_lse(r: Any, value: Any) -> None:
        token, head = token_and_head(r)
        lse[token, head] = value

    return Rows(most, count, load, prepare, store, store_lse)


def rotations(
    p: Program, heads: Heads, rope: Rope | None, query_at: Any, key_at: Any
) -> tuple[Callable[[Any, Memory], None], Callable[[Any, Memory, Any], None]]:
    """What rotates queries and keys after they were loaded, when the mode asks for it."""
    if rope is None:
        return lambda r, row: None, lambda t, row, r: None
    rotation = Rotation(p, heads.size, rope.scale, rope.theta, rope.scaling)

    def query(r: Any, row: Memory) -> None:
        with p.when(rope.mode == 1):
            rotation.rotate(query_at(r), row, r)

    def key(t: Any, row: Memory, r: Any) -> None:
        with p.when(rope.mode == 1):
            rotation.rotate(key_at(t), row, r)

    return query, key


class Limits:
    """Which keys the rows of a tile see: all up to a limit, in a window, or their ancestors in a tree."""

    def __init__(self, p: Program, batch: Batch, group: int, first_row: Any) -> None:
        self.p, self.batch, self.group, self.first_row = p, batch, group, first_row
        self.past = p.let("past", batch.num_keys - batch.num_queries)
        self.causal: Any = None  # an int32 expression, or None: every key is seen
        self.window: int | None = None
        self.sinks: Any = None
        self.order: Memory | None = None
        self.order_start: Any = None
        self.tree_size: Any = None

    def query(self, r: Any) -> Any:
        return (self.first_row + r) // self.group

    def last(self, count: Any) -> Any:
        """The keys that some row sees end here."""
        keys = self.batch.num_keys
        if self.causal is None:
            return keys
        end = self.past + self.query(count - 1) + 1
        return self.p.let("end", tirx.if_then_else(self.causal != 0, tirx.min(end, keys), keys))

    def first(self) -> Any:
        zero = const(0, "int64")
        if self.window is None:
            return zero
        start = tirx.max(self.past + self.query(0) + 1 - self.window, zero)
        return self.p.let("start", tirx.if_then_else(self.sinks > 0, zero, start))

    def begin_block(self, base: Any) -> None:
        if self.order is None:
            return
        p, keys = self.p, self.batch.num_keys
        self.enter, self.leave = (p.local(n, (KEYS,), "int32") for n in ("enter", "leave"))
        with p.loop("i", KEYS) as i:
            node = p.let("node", base + i - (keys - self.tree_size))
            self.enter[i] = tirx.if_then_else(
                base + i < keys, const(_ALWAYS, "int32"), const(_NEVER, "int32")
            )
            self.leave[i] = const(_NEVER, "int32")
            with p.when(tirx.And(node >= 0, base + i < keys)):
                self.enter[i] = self.order[self.order_start + node, 0]
                self.leave[i] = self.order[self.order_start + node, 1]

    def begin_row(self, r: Any) -> None:
        p, keys = self.p, self.batch.num_keys
        query = p.let("query", self.query(r))
        if self.order is not None:
            node = self.order_start + self.tree_size - self.batch.num_queries + query
            self.mine = p.let("mine", self.order[node, 0])
            return
        limit = keys - 1
        if self.causal is not None:
            limit = tirx.if_then_else(self.causal != 0, tirx.min(self.past + query, limit), limit)
        self.limit = p.let("limit", cast("int32", limit))
        if self.window is not None:
            self.oldest = p.let("oldest", cast("int32", self.past + query + 1 - self.window))
            self.kept = p.let("kept", cast("int32", self.sinks))

    def sees(self, key: Any, lane: Any) -> Any:
        if self.order is not None:
            return tirx.And(self.enter[lane] <= self.mine, self.mine < self.leave[lane])
        seen = key <= self.limit
        if self.window is not None:
            seen = tirx.And(seen, tirx.Or(key >= self.oldest, key < self.kept))
        return seen


def attend_tile(
    p: Program,
    heads: Heads,
    most: int,
    limits: Limits,
    h: Any,
    tensors: tuple[Memory, Memory, Memory],
    locate: Any,
    rotate: tuple[Any, Any],
    scale: Any,
) -> None:
    batch, group = limits.batch, heads.group
    left = batch.num_queries * group - limits.first_row
    count = p.let("row_count", tirx.min(left, const(most, "int64")))

    def token_and_head(r: Any) -> tuple[Any, Any]:
        return batch.first_token + limits.query(r), h * group + (limits.first_row + r) % group

    rows = _rows(p, heads, most, count, token_and_head, *tensors, rotate[0])
    last = limits.last(count)
    keys = Keys(
        limits.first(), last, locate, rotate[1], limits.begin_block, limits.begin_row, limits.sees
    )
    attend(p, rows, keys, heads.size, heads.value_size, scale)


def queries(p: Program, heads: Heads) -> tuple[Memory, Any, Any, Memory]:
    """Queries, how many tokens and sequences there are, and where each sequence begins."""
    tokens, num_offsets = p.size("num_tokens"), p.size("num_offsets")
    q = p.buffer("q", [tokens, heads.queries, heads.size], heads.dtype)
    return q, tokens, num_offsets - 1, p.buffer("q_indptr", [num_offsets], "int32")


def outputs(p: Program, heads: Heads, tokens: Any) -> tuple[Memory, Memory]:
    out = p.buffer("output", [tokens, heads.queries, heads.value_size], heads.dtype)
    return out, p.buffer("lse", [tokens, heads.queries], "float32")


def batch_of(p: Program, b: Any, q_indptr: Memory, num_keys: Any) -> Batch:
    first = p.let("first_token", index(q_indptr[b]))
    return Batch(b, first, p.let("num_queries", index(q_indptr[b + 1]) - first), num_keys)
