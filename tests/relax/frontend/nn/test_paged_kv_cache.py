# SPDX-License-Identifier: Apache-2.0
"""Models with a paged cache: made by a method of the model, attended to by its layers."""

from __future__ import annotations

import numpy as np
import pytest

import relaxvm
from relaxvm import relax, runtime
from relaxvm.relax.frontend import nn
from relaxvm.relax.frontend.nn.llm import position_embedding
from relaxvm.relax.frontend.nn.llm.kv_cache import (
    FlashInferPagedKVCache,
    PagedKVCache,
    RopeMode,
    TIRPagedKVCache,
)

from .conftest import machine_of, to_machine

HEADS, KEY_HEADS, SIZE = 4, 2, 16
SIZES = ["max_batch_size", "max_total_seq_len", "prefill_chunk_size", "page_size", "support_sliding_window"]  # fmt: skip
G = np.random.default_rng(4)


class Attention(nn.Module):
    def __init__(self, **options) -> None:
        self.options = options

    def forward(self, cache: PagedKVCache, qkv):
        return cache.attention_with_fused_qkv(0, qkv, HEADS, SIZE**-0.5)

    def shared(self, cache, q, k, v):
        return cache.attention_with_shared_kv(0, q, k, v, SIZE**-0.5)

    def positions(self, cache, n):
        return cache.get_query_positions(n)

    def create(self, max_batch_size, max_total_seq_len, prefill_chunk_size, page_size, support_sliding_window):  # fmt: skip
        sizes = (max_batch_size, max_total_seq_len, prefill_chunk_size, page_size)
        return make(*sizes, support_sliding_window, **self.options)


def make(*sizes, **options):
    settings = {
        "attn_kind": "mha",
        "layer_partition": relax.ShapeExpr([0, 1]),
        "num_hidden_layers": 1,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KEY_HEADS,
        "qk_head_dim": SIZE,
        "v_head_dim": SIZE,
        "mla_original_qk_head_dim": 0,
        "mla_original_v_head_dim": 0,
        "rope_mode": RopeMode.NONE,
        "rope_scale": 1,
        "rope_theta": 10000,
        "rope_scaling": {},
        "rope_ext_factors": relax.prim_value(0),
        "rotary_dim": SIZE,
        "enable_disaggregation": False,
        "dtype": "float32",
        "target": None,
        **options,
    }
    return TIRPagedKVCache(**dict(zip(SIZES, sizes)), **settings)


CACHE = nn.spec.Object(PagedKVCache)


def rows(heads, size=SIZE):
    return nn.spec.Tensor([1, "n", heads, size], "float32")


SPEC = {
    "forward": {"cache": CACHE, "qkv": rows(HEADS + 2 * KEY_HEADS)},
    "shared": {"cache": CACHE, "q": rows(HEADS), "k": rows(KEY_HEADS), "v": rows(KEY_HEADS)},
    "positions": {"cache": CACHE, "n": int},
    "create": {name: int for name in SIZES},
}


def state(name, cache, *args):
    return relaxvm.get_global_func(f"vm.builtin.kv_state_{name}")(cache, *args)


def forward(cache, call, length, sequence=0):
    state("begin_forward", cache, runtime.Shape([sequence]), runtime.Shape([length]))
    result = call()
    state("end_forward", cache)
    return result


def new_cache(machine, windows=0):
    cache = machine["create"](*(runtime.Shape([s]) for s in (4, 128, 64, 16, windows)))
    state("add_sequence", cache, 0)
    return cache


def causal(qkv):
    q, k, v = np.split(qkv[0].transpose(1, 0, 2), [HEADS, HEADS + KEY_HEADS])
    k, v = (t.repeat(HEADS // KEY_HEADS, 0) for t in (k, v))
    scores = q @ k.transpose(0, 2, 1) * SIZE**-0.5
    scores += np.triu(np.full(scores.shape[1:], -np.inf), 1)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return (weights / weights.sum(-1, keepdims=True) @ v).transpose(1, 0, 2)[None]


QKV = G.standard_normal((1, 20, HEADS + 2 * KEY_HEADS, SIZE)).astype("float32")


@pytest.fixture(scope="module")
def machine():
    return machine_of(Attention().export_tvm(SPEC)[0])


@pytest.mark.parametrize("windows", [0, 1])
def test_prompt_and_single_tokens_attend_to_all_before(machine, windows):
    cache = new_cache(machine, windows)
    parts = []
    for begin, end in ((0, 17), (17, 18), (18, 20)):
        piece = runtime.tensor(np.ascontiguousarray(QKV[:, begin:end]))
        call = lambda x=piece: machine["forward"](cache, x).numpy()
        parts.append(forward(cache, call, end - begin))
    np.testing.assert_allclose(np.concatenate(parts, 1), causal(QKV), rtol=1e-3, atol=1e-4)


def test_shared_attention_and_positions(machine):
    cache = new_cache(machine)
    q, k, v = np.split(QKV, [HEADS, HEADS + KEY_HEADS], axis=2)

    def call():
        machine["forward"](cache, runtime.tensor(QKV))
        positions = machine["positions"](cache, runtime.Shape([20])).numpy()
        return positions, machine["shared"](cache, *to_machine((q, k, v))).numpy()

    positions, shared = forward(cache, call, 20)
    assert positions.tolist() == list(range(20))
    np.testing.assert_allclose(shared, causal(QKV), rtol=1e-3, atol=1e-4)


class Latent(nn.Module):
    """What a prompt of a model with latent attention does: rows are stored, attention is among its own tokens."""

    def forward(self, cache, q, k, v, rows):
        cache = cache.append_mla_kv(0, rows)
        out, sums = cache.self_attention(0, q, k, v, 0.25)
        return cache.merge_attn_output_inplace(out, sums, out, sums)

    def later(self, cache, q, rows):
        return cache.append_mla_kv(0, rows).cross_attention(0, q, 8, 0.25)

    def create(self, max_batch_size, max_total_seq_len, prefill_chunk_size, page_size, support_sliding_window):  # fmt: skip
        return make(
            *(max_batch_size, max_total_seq_len, prefill_chunk_size, page_size),
            support_sliding_window,
            attn_kind=["mla"],
            num_key_value_heads=1,
            v_head_dim=8,
            mla_original_qk_head_dim=SIZE,
            mla_original_v_head_dim=SIZE,
        )


def test_latent_attention_within_a_prompt():
    heads = rows(HEADS)
    spec = {
        "forward": {"cache": CACHE, "q": heads, "k": heads, "v": heads, "rows": rows(1)},
        "later": {"cache": CACHE, "q": heads, "rows": rows(1)},
        "create": SPEC["create"],
    }
    machine = machine_of(Latent().export_tvm(spec)[0])
    cache = new_cache(machine)
    q, k, v = (G.standard_normal((1, 5, HEADS, SIZE)).astype("float32") for _ in range(3))
    stored = G.standard_normal((1, 6, 1, SIZE)).astype("float32")
    first, last = stored[:, :5].copy(), stored[:, 5:].copy()
    call = lambda: [t.numpy() for t in machine["forward"](cache, *to_machine((q, k, v, first)))]
    out, sums = forward(cache, call, 5)
    scores = np.einsum("bqhd,bkhd->bhqk", q, k) * 0.25 + np.triu(np.full((5, 5), -np.inf), 1)
    weights = np.exp(scores)
    total = weights.sum(-1, keepdims=True)
    np.testing.assert_allclose(out, np.einsum("bhqk,bkhd->bqhd", weights / total, v), rtol=1e-3, atol=1e-4)  # fmt: skip
    twice = np.log2(2 * total[..., 0]).transpose(0, 2, 1)  # merged with itself
    np.testing.assert_allclose(sums, twice, rtol=1e-3, atol=1e-4)
    one = q[:, :1].copy()
    call = lambda: machine["later"](cache, *to_machine((one, last)))[0].numpy()
    got = forward(cache, call, 1)
    weights = np.exp(np.einsum("bqhd,bkld->bhqk", one, stored) * 0.25)
    weights /= weights.sum(-1, keepdims=True)
    want = np.einsum("bhqk,bkld->bqhd", weights, stored[..., :8])
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)


def rotated(x, positions, size, interleaved):
    angle = positions[:, None] / 10000 ** (np.arange(size // 2) * 2 / size)
    cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
    result, half = x.copy(), size // 2
    first = slice(0, size, 2) if interleaved else slice(0, half)
    second = slice(1, size, 2) if interleaved else slice(half, size)
    a, b = x[..., first], x[..., second]
    result[..., first], result[..., second] = a * cos - b * sin, b * cos + a * sin
    return result


@pytest.mark.parametrize("rotary", [None, 8])
@pytest.mark.parametrize("kind", ["default", "gptj"])
def test_llama_rope_rotates_the_last_tokens(rotary, kind):
    class Rope(nn.Module):
        def forward(self, qkv, total):
            heads = HEADS, KEY_HEADS
            scaling = {"rope_type": kind}
            return position_embedding.llama_rope(qkv, total, 1e4, 1.0, *heads, scaling, rotary)

        def other(self, qkv, total):
            heads = HEADS, KEY_HEADS
            return position_embedding.llama_rope(qkv, total, 5e5, 1.0, *heads, {}, rotary)

    each = {"qkv": rows(HEADS + 2 * KEY_HEADS), "total": int}
    machine = machine_of(Rope().export_tvm({"forward": each, "other": each})[0])
    q, k, v = machine["forward"](*to_machine((QKV, 23)))
    positions, size = np.arange(3, 23), rotary or SIZE
    wanted = np.split(QKV, [HEADS, HEADS + KEY_HEADS], axis=2)
    for got, want in ((q, wanted[0]), (k, wanted[1])):
        expected = rotated(want[0], positions, size, kind == "gptj")[None]
        np.testing.assert_allclose(got.numpy(), expected, rtol=1e-3, atol=1e-4)
    assert (v.numpy() == wanted[2]).all()


WRONG = {
    "kinds": ({"attn_kind": ["mha", "mla"]}, ValueError, "kinds of attention"),
    "unknown": ({"attn_kind": "linear"}, ValueError, "out of mha, mla, mha_sliding"),
    "disaggregation": ({"enable_disaggregation": True}, ValueError, "between GPUs"),
    "target": ({"target": "cuda"}, ValueError, "for a CPU"),
    "factors": ({"rope_ext_factors": relax.const([1.0, 2.0])}, ValueError, "rope_ext_factors"),
}


@pytest.mark.parametrize("name", WRONG)
def test_cache_that_cannot_be_is_refused(name):
    options, kind, words = WRONG[name]
    with pytest.raises(kind, match=words):
        Attention(**options).export_tvm({"create": SPEC["create"]})


def test_mistakes_around_a_cache_are_named():
    with pytest.raises(NotImplementedError, match="use TIRPagedKVCache"):
        FlashInferPagedKVCache()

    class Rope(nn.Module):
        def forward(self, qkv):
            return position_embedding.llama_rope(qkv, 3, 1e4, 1.0, 2, 2, {})

    with pytest.raises(ValueError, match="8 heads are not 2 of queries"):
        Rope().export_tvm({"forward": {"qkv": rows(8)}})
