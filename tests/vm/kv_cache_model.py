# SPDX-License-Identifier: Apache-2.0
"""A model of the paged attention cache in NumPy, and short names of its builtins."""

import numpy as np
import tvm_ffi

import relaxvm
from relaxvm.relax.frontend.nn.llm import kv_cache as kvc

LAYERS, QUERY_HEADS, KEY_HEADS, SIZE, PAGE = 2, 6, 2, 32, 8
THETA = 1e4
NONE, NORMAL, INLINE = kvc.RopeMode
TREE = [-1, 0, 0, 1, 1, -1, 5]


def builtin(name):
    return relaxvm.get_global_func(f"vm.builtin.{name}")


def cache_op(name, *args):
    return builtin(f"attention_kv_cache_{name}")(*args)


def shape(values):
    return tvm_ffi.Shape(list(values))


def tensor(values, dtype="float32"):
    return relaxvm.runtime.tensor(np.ascontiguousarray(values, dtype))


def make(rope=NONE, dtype="float32", tokens=512, **more):
    options = dict(
        num_layers=LAYERS,
        num_qo_heads=QUERY_HEADS,
        num_kv_heads=KEY_HEADS,
        head_dim=SIZE,
        max_batch_size=8,
        max_total_seq_len=tokens,
        prefill_chunk_size=128,
        dtype=dtype,
        page_size=PAGE,
        rope_mode=rope,
        rope_theta=THETA,
    )
    return kvc.create_paged_kv_cache(**{**options, **more})


def rotate(x, positions):
    """(tokens, heads, size), by the formula."""
    half = x.shape[-1] // 2
    angle = np.asarray(positions, "f8")[:, None] * THETA ** (-np.arange(half) / half)
    c, s = np.cos(angle)[:, None], np.sin(angle)[:, None]
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * c - b * s, b * c + a * s], axis=-1)


def attention(q, k, v, sees):
    """Output and the logarithm in base 2 of the sum; `sees` is (queries, keys)."""
    group = q.shape[1] // k.shape[1]
    k, v = (np.repeat(x.astype("f8"), group, axis=1) for x in (k, v))
    scores = np.einsum("qhd,khd->hqk", q.astype("f8"), k) / np.sqrt(q.shape[-1])
    scores = np.where(sees, scores, -np.inf)
    top = scores.max(axis=-1, keepdims=True)
    weights = np.exp(scores - top)
    total = weights.sum(axis=-1, keepdims=True)
    lse = (top + np.log(total))[..., 0].T / np.log(2)
    return np.einsum("hqk,khd->qhd", weights / total, v), lse


class Model:
    """A cache, and what it should hold: for each sequence (layers, tokens, heads, size), not rotated."""

    def __init__(self, cache, rope=NONE, seed=0, tolerance=2e-5, layer_window=None):
        self.cache, self.rope, self.tolerance = cache, rope, tolerance
        self.layer_window = layer_window
        self.rng = np.random.default_rng(seed)
        self.dtype = "float16" if tolerance > 1e-3 else "float32"
        self.k, self.v, self.tree, self.window = {}, {}, {}, {}

    def add(self, *ids):
        for i in ids:
            builtin("kv_state_add_sequence")(self.cache, i)
            self.k[i] = self.v[i] = np.zeros((LAYERS, 0, KEY_HEADS, SIZE))
            self.tree[i] = []

    def fork(self, parent, child, position=-1):
        builtin("kv_state_fork_sequence")(self.cache, parent, child, position)
        end = None if position == -1 else position
        self.k[child], self.v[child] = self.k[parent][:, :end], self.v[parent][:, :end]
        self.tree[child] = []

    def pop(self, i, count):
        builtin("kv_state_popn")(self.cache, i, count)
        end = self.k[i].shape[1] - count
        self.k[i], self.v[i] = self.k[i][:, :end], self.v[i][:, :end]

    def remove(self, i):
        builtin("kv_state_remove_sequence")(self.cache, i)
        del self.k[i], self.v[i], self.tree[i]

    def random(self, *dims):
        return self.rng.uniform(-1, 1, dims).astype(self.dtype).astype("f8")

    def positions(self, i):
        """Of all tokens; those of a tree stand at their depth."""
        length, tree = self.k[i].shape[1], self.tree[i]
        depths = []
        for parent in tree:
            depths.append(0 if parent < 0 else depths[parent] + 1)
        start = length - len(tree)
        return np.concatenate([np.arange(start), start + np.array(depths, int)])

    def sees(self, i, count, layer):
        length, tree = self.k[i].shape[1], self.tree[i]
        query, key = np.arange(length - count, length)[:, None], np.arange(length)[None]
        seen = key <= query
        if self.layer_window and layer == 0:
            seen &= key > query - self.layer_window
        start = length - len(tree)
        for node, parent in enumerate(tree):
            row = start + node - (length - count)
            if row < 0:
                continue
            ancestors = {node}
            while parent >= 0:
                ancestors.add(parent)
                parent = tree[parent]
            seen[row, start:] = [j in ancestors for j in range(len(tree))]
        return seen

    def step(self, lengths, trees=None):
        """Appends random tokens and compares the attention of every layer."""
        ids = list(lengths)
        parents = None
        if trees is not None:
            parents = shape([p for i in ids for p in trees[i]])
            for i in ids:
                self.tree[i] = self.tree[i] + list(trees[i])
        builtin("kv_state_begin_forward")(self.cache, shape(ids), shape(lengths.values()), parents)
        new = {}
        for i, count in lengths.items():
            new[i] = [self.random(LAYERS, count, h, SIZE) for h in (QUERY_HEADS, *[KEY_HEADS] * 2)]
            self.k[i] = np.concatenate([self.k[i], new[i][1]], axis=1)
            self.v[i] = np.concatenate([self.v[i], new[i][2]], axis=1)
        positions = cache_op("get_query_positions", self.cache).numpy()
        wanted = np.concatenate([self.positions(i)[-n:] for i, n in lengths.items()])
        np.testing.assert_array_equal(positions, wanted)
        total = sum(lengths.values())
        for layer in range(LAYERS):
            parts = [np.concatenate([new[i][p][layer] for i in ids]) for p in range(3)]
            out = relaxvm.runtime.empty((total, QUERY_HEADS, SIZE), self.dtype)
            qkv = tensor(np.concatenate(parts, axis=1), self.dtype)
            cache_op("attention_with_fused_qkv", self.cache, layer, SIZE**-0.5, qkv, out)
            self.compare(out, parts[0], lengths, layer)
        builtin("kv_state_end_forward")(self.cache)
        for i in ids:
            self.slide(i)

    def expected(self, q, i, count, layer):
        k = self.k[i][layer]
        if self.rope != NONE:
            q, k = rotate(q, self.positions(i)[-count:]), rotate(k, self.positions(i))
        return attention(q, k, self.v[i][layer], self.sees(i, count, layer))[0]

    def compare(self, out, q, lengths, layer):
        first = 0
        for i, count in lengths.items():
            rows = slice(first, first + count)
            np.testing.assert_allclose(
                out.numpy()[rows],
                self.expected(q[rows], i, count, layer),
                rtol=self.tolerance,
                atol=self.tolerance,
            )
            first += count

    def slide(self, i):
        window, sinks = self.window.get(i, (None, 0))
        excess = self.k[i].shape[1] - window if window else 0
        if excess > 0:
            for kept in (self.k, self.v):
                kept[i] = np.delete(kept[i], np.s_[sinks : sinks + excess], axis=1)

    def check(self):
        """What is stored."""
        for i, keys in self.k.items():
            n = keys.shape[1]
            assert cache_op("get_sequence_length", self.cache, i) == n
            k, v = (relaxvm.runtime.empty((LAYERS, n, KEY_HEADS, SIZE), self.dtype) for _ in "kv")
            cache_op("debug_get_kv", self.cache, i, 0, n, k, v)
            np.testing.assert_array_equal(v.numpy(), self.v[i])
            if self.rope == NORMAL:
                keys = np.stack([rotate(layer, self.positions(i)) for layer in keys])
            np.testing.assert_allclose(k.numpy(), keys, rtol=self.tolerance, atol=self.tolerance)
        total = sum(k.shape[1] for k in self.k.values())
        assert cache_op("get_total_sequence_length", self.cache) == total


def free_pages(cache):
    return cache_op("get_num_available_pages", cache)
