# SPDX-License-Identifier: Apache-2.0
"""FuseAttention: masks that hide what comes later, and heads that are repeated, as exporters write them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import relax, tirx
from relaxvm.relax import op
from relaxvm.relax.transform import DeadCodeElimination, FuseAttention

HEADS, GROUPS, DEPTH = 4, 2, 8
Emit = Callable[[relax.Expr], relax.Var]


def number(value: float) -> relax.Constant:
    return relax.const(value, "float32")


def positions(emit: Emit, begin: Any, end: Any, shape: list[Any]) -> relax.Var:
    return emit(op.reshape(emit(op.arange(begin, end, 1, "int64")), shape))


def lower_triangle(emit: Emit, past: Any, queries: Any, offset: int = 0) -> relax.Var:
    """Rows past .. past + queries of a square of True below its diagonal."""
    keys = past + queries
    square = emit(op.full([keys, keys], relax.const(True, "bool"), "bool"))
    return emit(
        op.strided_slice(
            emit(op.tril(square, offset)), [0], [past], [keys], [1], assume_inbound=True
        )
    )


def compared(emit: Emit, past: Any, queries: Any, offset: int = 0) -> relax.Var:
    """key <= query + past, by positions that a graph counts."""
    row = emit(op.add(positions(emit, 0, queries, [queries, 1]), number_of(emit, past + offset)))
    column = positions(emit, 0, past + queries, [1, past + queries])
    return emit(op.logical_not(emit(op.greater(column, row))))


def number_of(emit: Emit, size: Any) -> relax.Var:
    return emit(op.reshape(emit(op.shape_to_tensor(relax.ShapeExpr([size]))), []))


def constant_triangle(emit: Emit, past: Any, queries: Any, offset: int = 0) -> relax.Var:
    square = relax.const(np.tril(np.ones((1, 1, 512, 512), bool), offset))
    ends = [past + queries, past + queries]
    part = op.strided_slice(square, [2, 3], [past, 0], ends, [1, 1], assume_inbound=True)
    return emit(part)


MASKS = [lower_triangle, compared, constant_triangle]


def chosen(emit: Emit, scores: relax.Var, seen: relax.Var) -> relax.Var:
    return emit(op.where(seen, scores, number(-1e9)))


def added(emit: Emit, scores: relax.Var, seen: relax.Var) -> relax.Var:
    hidden = emit(op.where(seen, number(0.0), number(-3.4e38)))
    return emit(op.add(scores, hidden))


def scaled(emit: Emit, scores: relax.Var, seen: relax.Var) -> relax.Var:
    kept = emit(op.astype(seen, "float32"))
    hidden = emit(op.multiply(emit(op.subtract(number(1.0), kept)), number(-10000.0)))
    return emit(op.add(hidden, scores))


JOINS = [chosen, added, scaled]


def apart(emit: Emit, x: relax.Var, count: int) -> relax.Var:
    batch, length = x.ty.shape[0], x.ty.shape[1]
    return emit(op.permute_dims(emit(op.reshape(x, [batch, length, count, DEPTH])), [0, 2, 1, 3]))


def expanded(emit: Emit, x: relax.Var) -> relax.Var:
    """repeat_kv of torch models."""
    batch, _, length, _ = x.ty.shape
    wide = emit(op.expand_dims(x, [2]))
    wide = emit(op.broadcast_to(wide, [batch, GROUPS, HEADS // GROUPS, length, DEPTH]))
    return emit(op.reshape(wide, [batch, HEADS, length, DEPTH]))


def repeated(emit: Emit, x: relax.Var) -> relax.Var:
    return emit(op.repeat(x, HEADS // GROUPS, axis=1))


def root_scaled(emit: Emit, q: relax.Var, k: relax.Var) -> relax.Var:
    """torch.nn.functional.scaled_dot_product_attention as its exporter writes it."""
    batch, _, length, _ = k.ty.shape
    rows = emit(op.reshape(k, [batch * HEADS, length, DEPTH]))
    turned = emit(op.permute_dims(rows, [0, 2, 1]))
    turned = emit(op.reshape(turned, [batch, HEADS, DEPTH, length]))
    depth = relax.const(np.array([DEPTH], "float32"))
    one = relax.const(np.array([1], "float32"))
    factor = emit(op.sqrt(emit(op.divide(one, emit(op.sqrt(depth))))))
    return emit(op.matmul(emit(op.multiply(q, factor)), emit(op.multiply(turned, factor))))


def module(
    mask: Any, join: Any = chosen, share: Any = None, past: bool = True, product: Any = None
) -> relaxvm.IRModule:
    n, s = tirx.Var("n", "int64"), tirx.Var("s", "int64")
    p: Any = tirx.Var("p", "int64") if past else 0
    count = HEADS if share is None else GROUPS
    sizes = {
        "q": [n, s, HEADS * DEPTH],
        "k": [n, p + s, count * DEPTH],
        "v": [n, p + s, count * DEPTH],
        "past": [p],
    }
    params = [relax.Var(name, relax.TensorType(dims, "float32")) for name, dims in sizes.items()]
    builder = relax.BlockBuilder()
    emit = builder.emit
    with builder.function("main", params):
        with builder.dataflow():
            q, k, v = apart(emit, params[0], HEADS), *(apart(emit, x, count) for x in params[1:3])
            if share is not None:
                k, v = share(emit, k), share(emit, v)
            if product is not None:
                scores = product(emit, q, k)
            else:
                scores = emit(op.matmul(q, emit(op.permute_dims(k, [0, 1, 3, 2]))))
                scores = emit(op.multiply(scores, number(0.3)))
            if mask is not None:
                scores = join(emit, scores, mask(emit, p, s))
            out = emit(op.matmul(emit(op.nn.softmax(scores)), v))
            result = builder.emit_output(op.permute_dims(out, [0, 2, 1, 3]))
        builder.emit_func_output(result)
    return builder.get()


def same_answers(
    first: tuple[relaxvm.IRModule, str],
    second: tuple[relaxvm.IRModule, str],
    sizes: tuple[tuple[int, int], ...],
    count: int = HEADS,
) -> None:
    """Both modules, each with its pipeline, for some (queries, past)."""
    machines = [
        relax.VirtualMachine(relaxvm.compile(mod, relax_pipeline=pipeline), relaxvm.cpu())
        for mod, pipeline in (first, second)
    ]
    rng = np.random.default_rng(2)
    for queries, past in sizes:
        shapes = ((queries, HEADS), (queries + past, count), (queries + past, count))
        arrays = [rng.standard_normal((2, n, h * DEPTH), dtype="float32") for n, h in shapes]
        arrays.append(np.zeros(past, "float32"))
        given = [relaxvm.runtime.tensor(a) for a in arrays]
        one, other = (vm["main"](*given).numpy() for vm in machines)
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-5)


def fused(mod: relaxvm.IRModule) -> relaxvm.IRModule:
    return DeadCodeElimination()(FuseAttention()(mod))


@pytest.mark.parametrize("join", JOINS)
@pytest.mark.parametrize("mask", MASKS)
def test_masks_of_later_keys_become_an_attribute(mask: Any, join: Any) -> None:
    before = module(mask, join)
    after = fused(before)
    text = after.script()
    assert 'causal_mask="BottomRight"' in text and "R.nn.attention(" in text
    assert "R.where" not in text and "R.tril" not in text
    if MASKS.index(mask) == JOINS.index(join):
        same_answers((after, "zero"), (before, "zero"), ((5, 3), (1, 9)))


def test_blocks_of_hidden_keys_are_left_out() -> None:
    """130 queries in chunks of 48 and up to 201 keys in blocks of 64: every border is met."""
    before = module(compared)
    sizes = ((130, 71), (49, 0), (64, 64), (3, 190))
    same_answers((before, "default"), (before, "zero"), sizes)


@pytest.mark.parametrize("offset", [-1, 1, 2])
@pytest.mark.parametrize("mask", MASKS)
def test_other_diagonals_stay_masks(mask: Any, offset: int) -> None:
    before = module(lambda emit, p, s: mask(emit, p, s, offset))
    assert "causal_mask=" not in fused(before).script().replace("causal_mask=None", "")


def test_masks_that_do_not_hide_stay() -> None:
    def faint(emit: Emit, scores: relax.Var, seen: relax.Var) -> relax.Var:
        return emit(op.where(seen, scores, number(-5.0)))

    assert "R.nn.attention" not in fused(module(compared, faint)).script()


def test_a_mask_that_hides_all_keys_of_a_query_stays() -> None:
    """key <= query of a square, where there may be fewer keys than queries."""
    before = module(lambda emit, p, s: compared(emit, 0, s), past=False)
    assert 'causal_mask="' in fused(before).script()

    def shorter(emit: Emit, p: Any, s: Any) -> relax.Var:
        row = positions(emit, 0, s, [s, 1])
        return emit(op.less(positions(emit, 0, s, [1, s]), row))

    assert 'causal_mask="' not in fused(module(shorter, past=False)).script()


@pytest.mark.parametrize("product", [None, root_scaled])
@pytest.mark.parametrize("share", [expanded, repeated])
def test_repeated_heads_are_read_where_they_are(share: Any, product: Any) -> None:
    before = module(lower_triangle, share=share, product=product)
    after = fused(before)
    text = after.script()
    assert "R.broadcast_to" not in text and "R.repeat(" not in text and "R.nn.attention(" in text
    same_answers((after, "zero"), (before, "zero"), ((7, 4),), GROUPS)


def test_heads_in_another_order_are_copied() -> None:
    """Groups next to each other, not their members: head h reads h % GROUPS."""

    def tiled(emit: Emit, x: relax.Var) -> relax.Var:
        batch, _, length, _ = x.ty.shape
        wide = emit(op.expand_dims(x, [1]))
        wide = emit(op.broadcast_to(wide, [batch, HEADS // GROUPS, GROUPS, length, DEPTH]))
        return emit(op.reshape(wide, [batch, HEADS, length, DEPTH]))

    before = module(None, share=tiled)
    after = fused(before)
    assert "R.broadcast_to" in after.script()
    same_answers((after, "zero"), (before, "zero"), ((7, 4),), GROUPS)
