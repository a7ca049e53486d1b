# SPDX-License-Identifier: Apache-2.0
"""Attention by blocks: right results at sizes that fit vectors, tiles, chunks and blocks and at sizes that do not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import relaxvm
from relaxvm import relax
from relaxvm.relax import op


def run(
    args: list[np.ndarray],
    body: Callable[..., relax.Expr],
    symbolic: bool = False,
    target: str = "llvm",
) -> np.ndarray:
    """One operator; equal sizes but those of heads and of elements become one variable when `symbolic`."""
    sizes: dict[int, relaxvm.tirx.Var] = {}
    heads = {shape for a in args[:3] for shape in a.shape[2:]}

    def dim(extent: int) -> relaxvm.tirx.Var | int:
        if not symbolic or extent in heads or extent == 1:
            return extent
        return sizes.setdefault(extent, relaxvm.tirx.Var(f"n{extent}", "int64"))

    params = [
        relax.Var(f"x{i}", relax.TensorType([dim(d) for d in a.shape], str(a.dtype)))
        for i, a in enumerate(args)
    ]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        builder.emit_func_output(builder.emit(body(*params)))
    executable = relaxvm.compile(builder.get(), target=target)
    vm = relaxvm.VirtualMachine(executable, relaxvm.cpu())
    return vm["main"](*[relaxvm.runtime.tensor(a) for a in args]).numpy()


def attention(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, bias: np.ndarray | None, causal: str | None
) -> np.ndarray:
    shared = q.shape[2] // k.shape[2]
    k, v = np.repeat(k, shared, axis=2), np.repeat(v, shared, axis=2)
    s = np.einsum("bshd,bthd->bhst", q.astype("float64"), k) / np.sqrt(q.shape[3])
    if bias is not None:
        s = s + bias
    if causal is not None:
        queries, keys = s.shape[2:]
        last = np.arange(queries)[:, None] + (keys - queries if causal == "BottomRight" else 0)
        s = np.where(np.arange(keys) <= last, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return np.einsum("bhst,bthe->bshe", e / e.sum(-1, keepdims=True), v)


ATTENTION = [
    # batch, queries, keys, heads, heads of keys, depth, width, masked, causal, target
    (2, 5, 7, 3, 3, 16, 16, False, None, "llvm"),
    (1, 1, 70, 4, 2, 32, 32, True, None, "llvm"),
    (2, 50, 130, 2, 1, 15, 15, False, "BottomRight", "llvm"),
    (1, 64, 128, 2, 2, 48, 40, True, "TopLeft", "llvm"),
    (1, 51, 67, 2, 1, 15, 17, True, None, "llvm -mcpu=haswell"),
]


@pytest.mark.parametrize("case", ATTENTION, ids=str)
def test_attention_by_blocks(case: tuple) -> None:
    batch, queries, keys, heads, groups, depth, width, masked, causal, target = case
    rng = np.random.default_rng(4)
    q, k, v = (
        rng.standard_normal(s, dtype="float32")
        for s in (
            (batch, queries, heads, depth),
            (batch, keys, groups, depth),
            (batch, keys, groups, width),
        )
    )
    bias = np.where(rng.random((batch, 1, 1, keys)) < 0.4, np.float32(-3e38), np.float32(0))
    bias[..., 0] = 0
    args = [q, k, v] + ([bias] if masked else [])

    def body(*x: relax.Expr) -> relax.Expr:
        if masked:
            return op.nn.attention_bias(*x, causal_mask=causal)
        return op.nn.attention(*x, causal_mask=causal)

    got = run(args, body, target=target)
    np.testing.assert_allclose(got, attention(q, k, v, bias if masked else None, causal), atol=3e-6)


# A chunk of rows that is full, one row more, rows that three chunks share unevenly, none.
@pytest.mark.parametrize("queries", [96, 97, 193, 200, 0])
@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("groups", [3, 1])
def test_chunks_of_attention_are_alike(queries: int, symbolic: bool, groups: int) -> None:
    rng = np.random.default_rng(5)
    q = rng.standard_normal((2, queries, 3, 20), dtype="float32")
    k, v = (rng.standard_normal((2, 70, groups, 20), dtype="float32") for _ in range(2))
    got = run([q, k, v], lambda *x: op.nn.attention(*x), symbolic)
    np.testing.assert_allclose(got, attention(q, k, v, None, None), atol=3e-6)


@pytest.mark.parametrize("queries", [3, 40])
def test_keys_that_are_all_hidden_in_the_first_block_do_not_count(queries: int) -> None:
    rng = np.random.default_rng(5)
    q, k, v = (rng.standard_normal((1, n, 1, 16), dtype="float32") for n in (queries, 200, 200))
    bias = np.zeros((1, 1, 1, 200), "float32")
    bias[..., :100] = -np.inf
    got = run([q, k, v, bias], op.nn.attention_bias)
    np.testing.assert_allclose(got, attention(q, k, v, bias, None), atol=3e-6)


TARGETS = ["llvm", "llvm -mcpu=haswell", "llvm -mcpu=x86-64"]
# What a mask has values for: nothing, keys, keys and queries, these and heads.
MASKS = {"none": None, "keys": (0, 0, 0, 1), "pairs": (1, 0, 1, 1), "heads": (1, 1, 1, 1)}


def mixed_cases(count: int) -> list[tuple]:
    """Sizes around the edges of tiles, of vectors, of chunks of 96 rows and of blocks of 96 keys."""
    rng = np.random.default_rng(11)
    queries, keys = [2, 6, 7, 12, 16, 17, 31, 49, 95, 97, 113], [1, 5, 12, 13, 49, 95, 96, 97, 200]
    return [
        (
            int(rng.choice(queries)),
            int(rng.choice(keys)),
            *[(3, 3), (4, 2), (4, 1)][rng.integers(3)],
            int(rng.choice([3, 8, 16, 33])),
            str(rng.choice(list(MASKS))),
            bool(rng.integers(2)),
            TARGETS[i % len(TARGETS)],
        )
        for i in range(count)
    ]


@pytest.mark.parametrize("case", mixed_cases(48), ids=str)
def test_masks_and_sizes(case: tuple) -> None:
    queries, keys, heads, groups, depth, mask, symbolic, target = case
    rng = np.random.default_rng(7)
    q = rng.standard_normal((2, queries, heads, depth), dtype="float32")
    k, v = (rng.standard_normal((2, keys, groups, depth), dtype="float32") for _ in range(2))
    args, bias = [q, k, v], None
    if (kept := MASKS[mask]) is not None:
        shape = [d if keep else 1 for d, keep in zip((2, heads, queries, keys), kept, strict=True)]
        bias = rng.standard_normal(shape, dtype="float32") * 3
        bias[rng.random(shape) < 0.2] = -np.inf
        bias[..., 0] = 0
        args.append(bias)
    got = run(args, op.nn.attention if bias is None else op.nn.attention_bias, symbolic, target)
    np.testing.assert_allclose(got, attention(q, k, v, bias, None), atol=5e-6)


@pytest.mark.parametrize("queries", [3, 20])
def test_a_query_that_is_no_number_spoils_its_own_results_alone(queries: int) -> None:
    rng = np.random.default_rng(8)
    q, k, v = (rng.standard_normal((1, n, 2, 16), dtype="float32") for n in (queries, 30, 30))
    want = attention(q, k, v, None, None)
    q[0, 1, 1, 5] = np.nan
    got = run([q, k, v], op.nn.attention)
    assert np.isnan(got[0, 1, 1]).all()
    want[0, 1, 1] = got[0, 1, 1] = 0
    np.testing.assert_allclose(got, want, atol=3e-6)


@pytest.mark.parametrize("queries", [3, 20])
def test_a_key_that_is_no_number_spoils_all_results(queries: int) -> None:
    rng = np.random.default_rng(9)
    q, k, v = (rng.standard_normal((1, n, 1, 16), dtype="float32") for n in (queries, 30, 30))
    k[0, 17, 0, 3] = np.nan
    assert np.isnan(run([q, k, v], op.nn.attention)).all()
