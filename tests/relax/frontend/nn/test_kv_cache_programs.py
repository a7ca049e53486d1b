# SPDX-License-Identifier: Apache-2.0
"""Programs of the attention cache, called as a program of the user calls them; rotary embedding; tirx.build."""

import math

import numpy as np
import pytest

import relaxvm
from relaxvm import tirx
from relaxvm.relax.frontend.nn.llm import kv_cache as kvc
from relaxvm.s_tir import dlight

HEADS, SIZE, PAGE = 2, 16, 16


def tensor(values, dtype="float32"):
    return relaxvm.runtime.tensor(np.ascontiguousarray(values, dtype))


def built(program):
    return tirx.build(program).main


def pages(count=4, dtype="float32"):
    values = np.arange(count * 2 * HEADS * PAGE * SIZE, dtype=dtype)
    return values.reshape(count, 2, HEADS, PAGE, SIZE)


def test_page_is_copied_up_to_a_token():
    data = pages()
    x = tensor(data)
    built(kvc._copy_single_page_cpu(HEADS, PAGE, SIZE, "float32"))(x, 1, 3, 5)
    data[3, :, :, :5] = data[1, :, :, :5]
    np.testing.assert_array_equal(x.numpy(), data)


def test_tokens_move_in_order():
    data = pages()
    x = tensor(data)
    moves = [(3, 2), (2 * PAGE + 1, 3), (17, 16)]
    places = np.array(moves, "i4").T
    f = built(kvc._compact_kv_copy_cpu(HEADS, SIZE, "float32"))
    f(x, tensor([0, 2, 3], "int32"), tensor(places, "int32"), 2)
    for source, target in moves:
        (a, i), (b, j) = divmod(source, PAGE), divmod(target, PAGE)
        data[b, :, :, j] = data[a, :, :, i]
    np.testing.assert_array_equal(x.numpy(), data)


def test_stored_tokens_are_read_back_and_negative_places_are_skipped():
    rng = np.random.default_rng(0)
    k, v = (rng.random((3, HEADS, SIZE), "f4") for _ in range(2))
    x, before = tensor(pages()), pages()
    built(kvc._kv_cache_transpose_append(HEADS, SIZE, "float32"))(
        x, tensor(k), tensor(v), tensor([33, -1, 5], "int32")
    )
    out = [relaxvm.runtime.tensor(np.zeros((2, 3, HEADS, SIZE), "f4")) for _ in range(2)]
    built(kvc._kv_cache_debug_get_kv(2, HEADS, SIZE, "float32"))(
        x, tensor([33, 0, 5], "int32"), *out, 1
    )
    for read, given, part in ((out[0], k, 0), (out[1], v, 1)):
        np.testing.assert_array_equal(read.numpy()[0], 0)
        np.testing.assert_array_equal(read.numpy()[1, [0, 2]], given[[0, 2]])
        np.testing.assert_array_equal(read.numpy()[1, 1], before[0, part, :, 0])


TREES = [[-1, 0, 0, 2], [-1, -1, 1]]


def orders(trees):
    """Enter and leave times of a walk, by recursion."""
    rows = []
    for parents in trees:
        times, clock = {}, 0

        def walk(node, parents=parents, times=times):
            nonlocal clock
            enter = clock
            clock += 1
            for child, parent in enumerate(parents):
                if parent == node:
                    walk(child, parents, times)
            times[node] = (enter, clock)

        for node, parent in enumerate(parents):
            if parent < 0:
                walk(node)
        rows += [times[n] for n in range(len(parents))]
    return np.array(rows, "i4")


@pytest.mark.parametrize("dtype, tolerance", [("float32", 1e-5), ("float16", 2e-3)])
def test_tree_without_pages_sees_ancestors(dtype, tolerance):
    query_heads, rng = 4, np.random.default_rng(1)
    total = sum(map(len, TREES))
    q = rng.uniform(-1, 1, (total, query_heads, SIZE)).astype(dtype)
    k, v = (rng.uniform(-1, 1, (total, HEADS, SIZE)).astype(dtype) for _ in range(2))
    indptr = tensor(np.cumsum([0, *map(len, TREES)]), "int32")
    out = tensor(np.zeros_like(q), dtype)
    lse = tensor(np.zeros((total, query_heads)))
    built(kvc.tree_attn_cpu(HEADS, query_heads, SIZE, dtype, {}))(
        tensor(q, dtype),
        indptr,
        tensor(k, dtype),
        tensor(v, dtype),
        indptr,
        tensor(np.zeros(total), "int32"),
        indptr,
        tensor(orders(TREES), "int32"),
        out,
        lse,
        0,
        1.0,
        1e4,
        0.25,
    )
    first = 0
    for parents in TREES:
        for node in range(len(parents)):
            seen, at = [], node
            while at >= 0:
                seen.append(first + at)
                at = parents[at]
            for head in range(query_heads):
                scores = k[seen, head // 2].astype("f8") @ q[first + node, head] * 0.25
                weights = np.exp(scores)
                wanted = weights @ v[seen, head // 2] / weights.sum()
                got = out.numpy()[first + node, head]
                np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance)
                np.testing.assert_allclose(
                    lse.numpy()[first + node, head], np.log2(weights.sum()), atol=1e-3
                )
        first += len(parents)


LLAMA3 = dict(
    rope_type="llama3",
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=64,
)
YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=64, beta_fast=8)
LINEAR = dict(rope_type="linear", factor=2.0)


def frequencies(size, theta, scaling):
    """By the published formulas, pair by pair."""
    result = []
    for pair in range(size // 2):
        f = theta ** (-2 * pair / size)
        kind = scaling.get("rope_type", "default")
        if kind == "linear":
            f /= scaling["factor"]
        elif kind == "llama3":
            length = 2 * math.pi / f
            trained = scaling["original_max_position_embeddings"]
            if length > trained / scaling["low_freq_factor"]:
                f /= scaling["factor"]
            elif length >= trained / scaling["high_freq_factor"]:
                low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
                smooth = (trained / length - low) / (high - low)
                f = (1 - smooth) * f / scaling["factor"] + smooth * f
        elif kind == "yarn":
            trained = scaling["original_max_position_embeddings"]
            low, high = (
                size * math.log(trained / (turns * 2 * math.pi)) / (2 * math.log(theta))
                for turns in (scaling["beta_fast"], 1)
            )
            low, high = max(math.floor(low), 0), min(math.ceil(high), size - 1)
            ramp = min(max((pair - low) / max(high - low, 0.001), 0), 1)
            f = f / scaling["factor"] * ramp + f * (1 - ramp)
        result.append(f)
    return np.array(result)


@pytest.mark.parametrize(
    "scaling, rotary",
    [
        ({}, None),
        ({}, 8),
        ({"rope_type": "gptj"}, None),
        (LINEAR, None),
        (LLAMA3, None),
        (YARN, 12),
    ],
    ids=["whole", "part", "gptj", "linear", "llama3", "yarn"],
)
@pytest.mark.parametrize("rotates", [0, 1])
def test_queries_and_keys_are_split_and_rotated(scaling, rotary, rotates):
    theta, heads, positions = 500.0, (3, 1), [0, 1, 7, 100]
    x = np.random.default_rng(2).uniform(-1, 1, (4, 5, SIZE)).astype("f4")
    q, k, v = (tensor(np.zeros((4, n, SIZE))) for n in (3, 1, 1))
    built(kvc.llama_rope_with_position_map(theta, 1.0, SIZE, *heads, "float32", scaling, rotary))(
        tensor(x), tensor(positions, "int32"), q, k, v, rotates
    )
    wanted = x.astype("f8").copy()
    if rotates:
        size = rotary or SIZE
        angle = np.outer(positions, frequencies(size, theta, scaling))[:, None]
        loud = 0.1 * math.log(4.0) + 1 if scaling is YARN else 1.0
        if scaling.get("rope_type") == "gptj":
            first, second = np.s_[..., 0:size:2], np.s_[..., 1:size:2]
        else:
            first, second = np.s_[..., : size // 2], np.s_[..., size // 2 : size]
        a, b = wanted[:, :4][first].copy(), wanted[:, :4][second].copy()
        wanted[:, :4][first] = (a * np.cos(angle) - b * np.sin(angle)) * loud
        wanted[:, :4][second] = (b * np.cos(angle) + a * np.sin(angle)) * loud
    for got, part in ((q, np.s_[:, :3]), (k, np.s_[:, 3:4]), (v, np.s_[:, 4:])):
        np.testing.assert_allclose(got.numpy(), wanted[part], rtol=1e-4, atol=3e-5)


@pytest.mark.parametrize(
    "make, kind, message",
    [
        (lambda: kvc._attention_decode_cpu(3, 4, 8, "float32", False, {}), ValueError, "share 3"),
        (
            lambda: kvc._attention_decode_cpu(1, 1, 8, "float32", False, {"rope_type": "x"}),
            NotImplementedError,
            "rope_type 'x' is not supported",
        ),
        (
            lambda: kvc.llama_rope_with_position_map(1e4, 1, 8, 1, 1, "float32", {}, 9),
            ValueError,
            "9 elements of 8",
        ),
        (
            lambda: kvc.llama_rope_with_position_map(1e4, 1, 8, 1, 1, "float32", {}, 3),
            ValueError,
            "in pairs",
        ),
    ],
)
def test_programs_that_cannot_be(make, kind, message):
    with pytest.raises(kind, match=message):
        make()


def test_programs_are_built_without_a_graph():
    first, second = (
        kvc._merge_state_inplace_cpu("float32"),
        kvc._copy_single_page_cpu(1, 8, 8, "int8"),
    )
    module = relaxvm.ir.IRModule({"a": first, "b": second})
    programs = tirx.build(dlight.ApplyDefaultSchedule(dlight.cpu.GEMV())(module), "llvm")
    assert programs.names == ["merge_state", "copy_single_page"]
    v, s = tensor(np.full((1, 1, 4), 1.0)), tensor([[2.0]])
    programs["merge_state"](v, s, tensor(np.full((1, 1, 4), 5.0)), tensor([[2.0]]))
    np.testing.assert_array_equal(v.numpy(), np.full((1, 1, 4), 3.0))
    assert s.numpy()[0, 0] == 3.0
    with pytest.raises(KeyError, match="no program 'main', only merge_state"):
        _ = programs.main
    with pytest.raises(TypeError, match="no schedule rule"):
        dlight.ApplyDefaultSchedule("gemv")
    with pytest.raises(ValueError, match="no tensor program"):
        tirx.build(relaxvm.ir.IRModule({}))
    assert str(relaxvm.target.Target.from_device(relaxvm.cpu())) == "llvm"
