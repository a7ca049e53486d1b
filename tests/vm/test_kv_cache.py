# SPDX-License-Identifier: Apache-2.0
"""The paged attention cache beside attention in NumPy: sequences, forks, steps back, windows, trees, mistakes."""

import numpy as np
import pytest
import tvm_ffi

import relaxvm
from relaxvm.relax.frontend.nn.llm import kv_cache as kvc

LAYERS, QUERY_HEADS, KEY_HEADS, SIZE, PAGE = 2, 6, 2, 32, 8
THETA = 1e4
NONE, NORMAL, INLINE = kvc.RopeMode


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


CASES = [(NONE, "float32"), (NORMAL, "float32"), (INLINE, "float32"), (NORMAL, "float16")]


@pytest.fixture(params=CASES, ids=lambda case: f"{case[0].name}-{case[1]}")
def model(request):
    rope, dtype = request.param
    return Model(make(rope, dtype), rope, tolerance=4e-3 if dtype == "float16" else 2e-5)


def test_prompts_and_decodes_of_several_sequences(model):
    model.add(0, 5, 9)
    for lengths in ({0: 1}, {5: 9, 0: 40}, {9: 3, 5: 1}, {0: 1, 5: 1, 9: 1}, {9: 1, 0: 1}):
        model.step(lengths)
    model.check()


def test_forks_share_pages_until_one_writes(model):
    everything = free_pages(model.cache)
    model.add(0)
    model.step({0: 3 * PAGE + 3})
    used = everything - free_pages(model.cache)
    model.fork(0, 1)
    model.fork(0, 2, PAGE + 1)
    model.fork(1, 3)
    assert everything - free_pages(model.cache) == used
    model.step({0: 1, 1: 1, 3: 1})  # the page that is filled in part is copied for two of three
    assert everything - free_pages(model.cache) == used + 2
    model.step({2: 2 * PAGE, 0: 2})
    model.step({0: 1, 1: 1, 2: 1, 3: 1})
    model.check()
    for i in (0, 3, 1, 2):
        model.remove(i)
        model.check()
    assert free_pages(model.cache) == everything
    assert cache_op("empty", model.cache)


def test_tokens_are_taken_back(model):
    everything = free_pages(model.cache)
    model.add(0, 1)
    model.step({0: 2 * PAGE + 1, 1: 5})
    model.fork(0, 2)
    model.pop(0, PAGE + 2)
    model.pop(1, 5)
    model.pop(2, 0)
    model.check()
    model.step({0: 4, 1: 1, 2: 1})
    model.check()
    builtin("kv_state_clear")(model.cache)
    assert free_pages(model.cache) == everything


@pytest.mark.parametrize("rope", [NONE, NORMAL, INLINE])  # NORMAL is INLINE in a window
def test_windows_keep_sinks_and_the_last_tokens(rope):
    model = Model(make(rope, support_sliding_window=True), INLINE if rope else NONE)
    everything = free_pages(model.cache)
    model.add(0, 1, 2, 5)
    for i, window in {0: (20, 3), 1: (2 * PAGE, PAGE), 5: (PAGE + 1, 0)}.items():
        cache_op("enable_sliding_window_for_seq", model.cache, i, *window)
        model.window[i] = window
    for lengths in ({0: 10, 1: 30, 2: 5}, {0: 15, 1: 1, 5: 40}, {0: 1, 1: 1, 2: 1, 5: 3}):
        model.step(lengths)
        model.check()
    model.fork(0, 3)
    model.fork(1, 4, PAGE)
    for _ in range(3 * PAGE):
        model.step({0: 1, 1: 1, 2: 1, 3: 1, 4: 1, 5: 1})
    model.check()
    model.pop(0, 2)
    model.step({0: 1})
    # A window of 20 tokens never takes more than 5 pages, whatever went through it.
    for i in (1, 2, 3, 4, 5):
        model.remove(i)
    assert everything - free_pages(model.cache) <= 5
    with pytest.raises(ValueError, match="the window forgot what was before"):
        model.pop(0, 18)


def test_layers_with_a_window_see_the_last_tokens():
    kinds = [kvc.AttnKind.MHA_SLIDING, kvc.AttnKind.MHA]
    cache = make(INLINE, layer_sliding_window_size=11, attn_kinds=kinds)
    model = Model(cache, INLINE, layer_window=11)
    model.add(0, 1)
    for lengths in ({0: 30, 1: 3}, {0: 1, 1: 1}, {0: 5, 1: 12}, {1: 1, 0: 1}):
        model.step(lengths)
    model.check()


TREE = [-1, 0, 0, 1, 1, -1, 5]


@pytest.mark.parametrize("rope", [NONE, NORMAL])
def test_tokens_of_a_tree_see_their_ancestors(rope):
    model = Model(make(rope), rope)
    model.add(0, 1)
    model.step({0: 13, 1: 2})
    model.step({0: 7, 1: 3}, {0: TREE, 1: [-1, 0, 0]})
    cache_op("commit_accepted_token_tree_nodes", model.cache, shape([0, 1]), shape([4, -1]))
    for kept in (model.k, model.v):
        kept[0] = np.concatenate([kept[0][:, :13], kept[0][:, [13, 14, 17]]], axis=1)
        kept[1] = kept[1][:, :2]
    model.tree = {0: [], 1: []}
    model.check()
    model.step({0: 1, 1: 1})
    # A tree that grows over two forwards.
    model.step({0: 2, 1: 1}, {0: [-1, 0], 1: [-1]})
    model.step({0: 2, 1: 1}, {0: [0, 2], 1: [-1]})
    with pytest.raises(RuntimeError, match="ends in a tree; commit it"):
        builtin("kv_state_begin_forward")(model.cache, shape([0]), shape([1]))
    model.check()


@pytest.mark.parametrize("rope", [NONE, NORMAL])
def test_a_layer_attends_to_keys_of_another(rope):
    model = Model(make(rope), rope)
    model.add(0)
    model.step({0: 12})
    for count in (3, 1):
        builtin("kv_state_begin_forward")(model.cache, shape([0]), shape([count]))
        q, k, v = (model.random(count, h, SIZE) for h in (QUERY_HEADS, KEY_HEADS, KEY_HEADS))
        out = relaxvm.runtime.empty((count, QUERY_HEADS, SIZE), "float32")
        shared = (model.cache, 1, SIZE**-0.5, *(tensor(x) for x in (q, k, v)), out)
        with pytest.raises(RuntimeError, match="has not stored its keys in this forward"):
            cache_op("attention_with_shared_kv", *shared)
        qkv = tensor(np.concatenate([q, k, v], axis=1))
        cache_op("attention_with_fused_qkv", model.cache, 1, SIZE**-0.5, qkv, out)
        other = model.random(count, QUERY_HEADS, SIZE)
        shared = (*shared[:3], tensor(other), *shared[4:])
        cache_op("attention_with_shared_kv", *shared)
        builtin("kv_state_end_forward")(model.cache)
        for kept, rows in ((model.k, k), (model.v, v)):
            kept[0] = np.concatenate([kept[0], np.stack([rows] * LAYERS)], axis=1)
        model.compare(out, other, {0: count}, 1)


def test_self_and_cached_attention_merge_to_the_whole():
    model = Model(make(NONE))
    model.add(0, 1)
    model.step({0: 20})
    builtin("kv_state_begin_forward")(model.cache, shape([0, 1]), shape([5, 4]))
    q, k, v = (model.random(9, h, SIZE) for h in (QUERY_HEADS, KEY_HEADS, KEY_HEADS))
    outs = [relaxvm.runtime.empty((9, QUERY_HEADS, SIZE), "float32") for _ in range(2)]
    lses = [relaxvm.runtime.empty((9, QUERY_HEADS), "float32") for _ in range(2)]
    scale = SIZE**-0.5
    cache_op(
        "self_attention", model.cache, 0, scale, *(tensor(x) for x in (q, k, v)), outs[0], lses[0]
    )
    cache_op("cross_attention", model.cache, 0, scale, tensor(q), outs[1], lses[1])
    np.testing.assert_array_equal(outs[1].numpy()[5:], 0)  # sequence 1 had no tokens before
    args = (outs[0], lses[0], outs[1], lses[1])
    merged, lse = cache_op("merge_attn_output_inplace", model.cache, *args)
    for i, rows in ((0, slice(0, 5)), (1, slice(5, 9))):
        for kept, new in ((model.k, k), (model.v, v)):
            kept[i] = np.concatenate([kept[i], np.stack([new[rows]] * LAYERS)], axis=1)
        count = rows.stop - rows.start
        wanted = attention(q[rows], model.k[i][0], model.v[i][0], model.sees(i, count, 0))
        np.testing.assert_allclose(merged.numpy()[rows], wanted[0], rtol=2e-5, atol=2e-5)
        np.testing.assert_allclose(lse.numpy()[rows], wanted[1], rtol=2e-5, atol=2e-5)


ROW, VALUES = 48, 32


def test_latent_attention_of_a_prompt_and_of_a_decode():
    heads = 4
    cache = make(
        num_qo_heads=heads,
        num_kv_heads=1,
        head_dim=ROW,
        v_head_dim=VALUES,
        attn_kinds=[kvc.AttnKind.MLA] * LAYERS,
        self_attention_dims=(24, 16),
    )
    rng = np.random.default_rng(3)
    builtin("kv_state_add_sequence")(cache, 0)
    rows = np.zeros((0, ROW))
    for count in (11, 1, 3):
        builtin("kv_state_begin_forward")(cache, shape([0]), shape([count]))
        new, q = rng.uniform(-1, 1, (count, ROW)), rng.uniform(-1, 1, (count, heads, ROW))
        out = relaxvm.runtime.empty((count, heads, VALUES), "float32")
        lse = relaxvm.runtime.empty((count, heads), "float32")
        for layer in range(LAYERS):
            cache_op("append_mla_kv", cache, layer, tensor(new))
        cache_op("cross_attention", cache, 1, ROW**-0.5, tensor(q), out, lse)
        seen = np.concatenate([rows, new]) if count == 1 else rows
        if len(seen):
            keys = seen[:, None].astype("f4")
            wanted = attention(q, keys, keys[..., :VALUES], True)
            np.testing.assert_allclose(out.numpy(), wanted[0], rtol=2e-5, atol=2e-5)
            np.testing.assert_allclose(lse.numpy(), wanted[1], rtol=2e-5, atol=2e-5)
        q, k, v = (rng.uniform(-1, 1, (count, heads, n)) for n in (24, 24, 16))
        out = relaxvm.runtime.empty((count, heads, 16), "float32")
        cache_op("self_attention", cache, 0, 24**-0.5, *(tensor(x) for x in (q, k, v)), out, lse)
        causal = np.tril(np.ones((count, count), bool))
        np.testing.assert_allclose(out.numpy(), attention(q, k, v, causal)[0], rtol=2e-5, atol=2e-5)
        builtin("kv_state_end_forward")(cache)
        rows = np.concatenate([rows, new])
    stored = relaxvm.runtime.empty((LAYERS, 13, ROW), "float32")
    cache_op("debug_get_kv_mla", cache, 0, 2, 15, stored)
    np.testing.assert_array_equal(stored.numpy()[1], rows[2:].astype("f4"))


def begin(cache, *args):
    builtin("kv_state_begin_forward")(cache, *args)


def qkv_of(tokens, heads=QUERY_HEADS + 2 * KEY_HEADS, dtype="float32"):
    return tensor(np.zeros((tokens, heads, SIZE)), dtype)


def attend(cache, layer, qkv, tokens=1):
    out = relaxvm.runtime.empty((tokens, QUERY_HEADS, SIZE), "float32")
    cache_op("attention_with_fused_qkv", cache, layer, 1.0, qkv, out)


def in_forward(act):
    """The mistake, between begin_forward and end_forward of a token of sequence 0."""

    def run(cache):
        begin(cache, shape([0]), shape([1]))
        try:
            act(cache)
        finally:
            builtin("kv_state_end_forward")(cache)
            builtin("kv_state_popn")(cache, 0, 1)

    return run


MISTAKES = {
    "unknown sequence": (KeyError, "no sequence 7", lambda c: begin(c, shape([7]), shape([1]))),
    "unknown among others": (
        KeyError,
        "no sequence 7",
        lambda c: begin(c, shape([0, 7]), shape([1, 1])),
    ),
    "sequence twice": (ValueError, "twice", lambda c: begin(c, shape([0, 0]), shape([1, 1]))),
    "no tokens": (ValueError, "cannot append 0", lambda c: begin(c, shape([0]), shape([0]))),
    "lengths": (ValueError, "as many lengths", lambda c: begin(c, shape([0]), shape([1, 2]))),
    "long prompt": (ValueError, "at most 128 tokens", lambda c: begin(c, shape([0]), shape([129]))),
    "huge prompt": (
        ValueError,
        "at most 128 tokens",
        lambda c: begin(c, shape([0, 1]), shape([1, 2**62])),
    ),
    "parents": (
        ValueError,
        "2 tokens and 1 parents",
        lambda c: begin(c, shape([0]), shape([2]), shape([-1])),
    ),
    "parent ahead": (
        ValueError,
        "parents come before",
        lambda c: begin(c, shape([0]), shape([2]), shape([-1, 1])),
    ),
    "parent below": (
        ValueError,
        "parents come before",
        lambda c: begin(c, shape([0]), shape([1]), shape([-2])),
    ),
    "end": (RuntimeError, "begin_forward", lambda c: builtin("kv_state_end_forward")(c)),
    "outside": (RuntimeError, "begin_forward", lambda c: attend(c, 0, qkv_of(1))),
    "layer": (IndexError, "layers 0 to 1, not 2", in_forward(lambda c: attend(c, 2, qkv_of(1)))),
    "layer below": (IndexError, "not -1", in_forward(lambda c: attend(c, -1, qkv_of(1)))),
    "heads": (
        ValueError,
        r"qkv of .* \(1, 10, 32\)",
        in_forward(lambda c: attend(c, 0, qkv_of(1, 9))),
    ),
    "tokens": (ValueError, "qkv of this forward", in_forward(lambda c: attend(c, 0, qkv_of(2)))),
    "dtype": (
        ValueError,
        "given .* of float16",
        in_forward(lambda c: attend(c, 0, qkv_of(1, dtype="float16"))),
    ),
    "kind": (
        ValueError,
        "no latent attention",
        in_forward(lambda c: cache_op("append_mla_kv", c, 0, tensor(np.zeros((1, SIZE))))),
    ),
    "begin twice": (
        RuntimeError,
        "another begin_forward",
        in_forward(lambda c: begin(c, shape([0]), shape([1]))),
    ),
    "remove inside": (
        RuntimeError,
        "removing a sequence is not possible",
        in_forward(lambda c: builtin("kv_state_remove_sequence")(c, 0)),
    ),
    "fork": (
        ValueError,
        "cannot be forked at 9",
        lambda c: builtin("kv_state_fork_sequence")(c, 0, 3, 9),
    ),
    "fork onto": (ValueError, "already", lambda c: builtin("kv_state_fork_sequence")(c, 0, 1)),
    "pop": (ValueError, "cannot lose 6", lambda c: builtin("kv_state_popn")(c, 0, 6)),
    "pop less": (ValueError, "cannot lose -1", lambda c: builtin("kv_state_popn")(c, 0, -1)),
    "window": (
        ValueError,
        "made without sliding windows",
        lambda c: cache_op("enable_sliding_window_for_seq", c, 0, 4, 1),
    ),
    "commit": (
        ValueError,
        "does not end in a tree",
        lambda c: cache_op("commit_accepted_token_tree_nodes", c, shape([0]), shape([0])),
    ),
    "copy": (
        IndexError,
        "none from 3 to 6",
        lambda c: cache_op("debug_get_kv", c, 0, 3, 6, qkv_of(1), qkv_of(1)),
    ),
    "copy to": (
        ValueError,
        "dense tensors",
        lambda c: cache_op("debug_get_kv", c, 0, 3, 5, qkv_of(1), qkv_of(1)),
    ),
    "another object": (TypeError, "a paged KV cache", lambda c: cache_op("empty", qkv_of(1))),
    "transfer": (
        NotImplementedError,
        "between GPUs only",
        lambda c: builtin("kv_cache_disagg_prepare_recv")(c, 0, 1),
    ),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_mistakes_are_errors_and_change_nothing(case):
    kind, message, act = MISTAKES[case]
    model = Model(make())
    model.add(0, 1)
    model.step({0: 5, 1: 1})
    pages = free_pages(model.cache)
    with pytest.raises(kind, match=message):
        act(model.cache)
    assert free_pages(model.cache) == pages
    model.check()
    model.step({0: 1, 1: 3})


def test_a_full_cache_says_so_and_goes_on():
    model = Model(make(tokens=6 * PAGE))
    model.add(*range(8))
    with pytest.raises(RuntimeError, match="room for 8 sequences"):
        model.add(8)
    model.step({0: 4 * PAGE, 1: 3})
    with pytest.raises(RuntimeError, match="3 more pages of 8 tokens are needed, 2 are free"):
        begin(model.cache, shape([0, 1, 2]), shape([1, PAGE, PAGE]))
    model.check()
    model.step({1: PAGE})
    model.remove(0)
    model.step({2: 4 * PAGE, 1: 1})
    model.check()


TREE_MISTAKES = [(INLINE, {}), (NONE, {"support_sliding_window": True})]


@pytest.mark.parametrize("rope, options", TREE_MISTAKES)
def test_trees_need_keys_that_stay(rope, options):
    model = Model(make(rope, **options), rope)
    model.add(0)
    model.step({0: 3}, {0: [-1, 0, 1]})  # a chain is no tree
    with pytest.raises(ValueError, match="takes no trees"):
        begin(model.cache, shape([0]), shape([2]), shape([2, 2]))
    cache_op("commit_accepted_token_tree_nodes", model.cache, shape([0]), shape([1]))
    model.k[0], model.v[0], model.tree[0] = model.k[0][:, :2], model.v[0][:, :2], []
    model.check()


@pytest.mark.parametrize("leaf", [-2, 7])
def test_a_leaf_that_is_not_there_commits_nothing(leaf):
    model = Model(make())
    model.add(0, 1)
    model.step({0: 7, 1: 1}, {0: TREE, 1: [-1]})
    with pytest.raises(IndexError, match=f"no leaf {leaf}: its last forward appended 7"):
        cache_op("commit_accepted_token_tree_nodes", model.cache, shape([1, 0]), shape([0, leaf]))
    model.check()
    with pytest.raises(RuntimeError, match="commit it before the sequence is forked"):
        model.fork(0, 2)


def test_what_a_cache_cannot_be_made_of():
    create = builtin("paged_attention_kv_cache_create")
    good = [shape([2, 64, 16, 8, 0]), shape([0, 1]), 4, 2, 8, 8, shape([0]), False, 0, 1.0, 1e4]
    good += [None, tensor(0.0), None, None, *[[]] * 8, [], None, None, None, None]
    assert free_pages(create(*good)) == 64 // 8 + 1
    for position, value, kind, message in [
        (0, shape([2, 64, 16, 8]), ValueError, "5 or 6 sizes"),
        (0, shape([2, 64, 16, 0, 0]), ValueError, "positive"),
        (0, shape([2, 2**40, 16, 8, 0]), ValueError, "below 2"),
        (1, shape([0, 1, 2]), ValueError, "in several stages"),
        (2, 3, ValueError, "cannot share"),
        (6, shape([]), ValueError, "0 kinds"),
        (6, shape([9]), ValueError, "not 9"),
        (6, shape([3]), ValueError, "needs its size"),
        (7, True, NotImplementedError, "GPUs only"),
        (8, 5, ValueError, "rope mode"),
        (11, tensor([1.0]), NotImplementedError, "extended rope"),
        (15, ["flashinfer", create], ValueError, "need a GPU"),
        (15, ["tirx"], ValueError, "tirx"),
        (13, 5, TypeError, "a function or None"),
    ]:
        args = list(good)
        args[position] = value
        with pytest.raises(kind, match=message):
            create(*args)
    cache = create(*good)
    builtin("kv_state_add_sequence")(cache, 0)
    begin(cache, shape([0]), shape([1]))
    with pytest.raises(ValueError, match="made without the program for splitting"):
        out = relaxvm.runtime.empty((1, 4, 8), "float32")
        cache_op("attention_with_fused_qkv", cache, 0, 1.0, tensor(np.zeros((1, 8, 8))), out)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("windows", [False, True])
def test_random_operations_keep_what_they_should(seed, windows):
    rng = np.random.default_rng(seed)
    model = Model(make(tokens=256, support_sliding_window=windows), seed=seed)
    everything = free_pages(model.cache)
    unused = set(range(8))
    for _ in range(40):
        act, ids = rng.integers(6), sorted(model.k)
        i = int(rng.choice(ids)) if ids else None
        if (act == 0 or not ids) and unused:
            new = unused.pop()
            model.add(new)
            if windows and rng.integers(2):
                model.window[new] = (int(rng.integers(9, 30)), int(rng.integers(0, 9)))
                cache_op("enable_sliding_window_for_seq", model.cache, new, *model.window[new])
        elif act == 1 and unused:
            new, length = unused.pop(), model.k[i].shape[1]
            model.fork(i, new, int(rng.choice([-1, rng.integers(length + 1)])))
        elif act == 2 and i not in model.window:
            kept = model.k[i].shape[1]
            most = kept if not windows else 0  # a fork of a window may have lost what is before
            model.pop(i, int(rng.integers(most + 1)))
        elif act == 3 and len(ids) > 2:
            model.remove(i)
            model.window.pop(i, None)
            unused.add(i)
        else:
            some = rng.choice(ids, size=rng.integers(1, len(ids) + 1), replace=False)
            lengths = {int(s): int(rng.choice([1, 1, 2, 9, 20])) for s in some}
            needed = sum(n // PAGE + 2 for n in lengths.values())
            if needed <= free_pages(model.cache) and sum(lengths.values()) <= 128:
                model.step(lengths)
        model.check()
    for i in list(model.k):
        model.remove(i)
    assert free_pages(model.cache) == everything
