# SPDX-License-Identifier: Apache-2.0
"""Mistakes with the paged attention cache: clear errors that leave it as it was."""

import numpy as np
import pytest
from kv_cache_model import (
    INLINE,
    KEY_HEADS,
    NONE,
    PAGE,
    QUERY_HEADS,
    SIZE,
    TREE,
    Model,
    builtin,
    cache_op,
    free_pages,
    make,
    shape,
    tensor,
)

import relaxvm


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
