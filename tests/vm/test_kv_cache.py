# SPDX-License-Identifier: Apache-2.0
"""The paged attention cache beside attention in NumPy: sequences, forks, steps back, windows, trees."""

import numpy as np
import pytest
from kv_cache_model import (
    INLINE,
    KEY_HEADS,
    LAYERS,
    NONE,
    NORMAL,
    PAGE,
    QUERY_HEADS,
    SIZE,
    TREE,
    Model,
    attention,
    builtin,
    cache_op,
    free_pages,
    make,
    shape,
    tensor,
)

import relaxvm
from relaxvm.relax.frontend.nn.llm import kv_cache as kvc

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
