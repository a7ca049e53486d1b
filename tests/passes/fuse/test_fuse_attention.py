# SPDX-License-Identifier: Apache-2.0
"""FuseAttention: attention as exporters write it becomes one call, with the same result; what is no attention stays."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import relaxvm
from relaxvm import relax, tirx
from relaxvm.relax import op
from relaxvm.relax.transform import FuseAttention

HEADS, DEPTH = 2, 16
Emit = Callable[[relax.Expr], relax.Var]


def number(value: float) -> relax.Constant:
    return relax.const(value, "float32")


def heads(emit: Emit, x: relax.Var, axes: list[int]) -> relax.Var:
    """[batch, length, heads * depth] with its heads apart, in the order of `axes`."""
    batch, length = x.ty.shape[0], x.ty.shape[1]
    apart = emit(op.reshape(x, relax.ShapeExpr([batch, length, HEADS, DEPTH])))
    return emit(op.permute_dims(apart, axes))


def scores(emit: Emit, q: relax.Var, k: relax.Var) -> relax.Var:
    return emit(op.matmul(heads(emit, q, [0, 2, 1, 3]), heads(emit, k, [0, 2, 3, 1])))


def weighted(emit: Emit, p: relax.Var, v: relax.Var) -> relax.Var:
    out = emit(op.matmul(p, heads(emit, v, [0, 2, 1, 3])))
    return emit(op.permute_dims(out, [0, 2, 1, 3]))


def added_mask(emit: Emit, q: relax.Var, k: relax.Var, v: relax.Var, mask: relax.Var) -> relax.Var:
    s = emit(op.divide(scores(emit, q, k), number(4.0)))
    hidden = emit(op.multiply(emit(op.subtract(number(1.0), mask)), number(-1e9)))
    return weighted(emit, emit(op.nn.softmax(emit(op.add(s, hidden)))), v)


def chosen_mask(emit: Emit, q: relax.Var, k: relax.Var, v: relax.Var, mask: relax.Var) -> relax.Var:
    s = emit(op.multiply(scores(emit, q, k), number(0.25)))
    seen = emit(op.greater(mask, number(0.5)))
    s = emit(op.where(seen, s, number(-3e38)))
    return weighted(emit, emit(op.nn.softmax(s, axis=3)), v)


def scaled_operands(
    emit: Emit, q: relax.Var, k: relax.Var, v: relax.Var, mask: relax.Var
) -> relax.Var:
    left = emit(op.multiply(heads(emit, q, [0, 2, 1, 3]), number(0.5)))
    right = emit(op.multiply(heads(emit, k, [0, 2, 3, 1]), number(0.5)))
    return weighted(emit, emit(op.nn.softmax(emit(op.matmul(left, right)))), v)


def merged_rows(emit: Emit, q: relax.Var, k: relax.Var, v: relax.Var, mask: relax.Var) -> relax.Var:
    s = scores(emit, q, k)
    batch, many, queries, keys = s.ty.shape
    rows = emit(op.reshape(s, relax.ShapeExpr([batch * many * queries, keys])))
    p = emit(op.reshape(emit(op.nn.softmax(rows, axis=1)), relax.ShapeExpr(list(s.ty.shape))))
    return weighted(emit, p, v)


def one_head(emit: Emit, q: relax.Var, k: relax.Var, v: relax.Var, mask: relax.Var) -> relax.Var:
    s = emit(op.multiply(emit(op.matmul(q, emit(op.permute_dims(k, [0, 2, 1])))), number(0.1)))
    return emit(op.matmul(emit(op.nn.softmax(s)), v))


def capped(emit: Emit, q: relax.Var, k: relax.Var, v: relax.Var, mask: relax.Var) -> relax.Var:
    s = emit(op.multiply(scores(emit, q, k), number(0.5)))
    s = emit(op.multiply(emit(op.tanh(emit(op.divide(s, number(3.0))))), number(3.0)))
    return weighted(emit, emit(op.nn.softmax(emit(op.add(s, mask)))), v)


def depths_first(
    emit: Emit, q: relax.Var, k: relax.Var, v: relax.Var, mask: relax.Var
) -> relax.Var:
    """As vision models write it, whose channels stand before the positions."""
    left = emit(op.permute_dims(heads(emit, q, [0, 2, 3, 1]), [0, 1, 3, 2]))
    s = emit(op.matmul(left, heads(emit, k, [0, 2, 3, 1])))
    p = emit(op.nn.softmax(emit(op.add(emit(op.multiply(s, number(0.25))), mask))))
    across = emit(op.permute_dims(p, [0, 1, 3, 2]))
    out = emit(op.matmul(heads(emit, v, [0, 2, 3, 1]), across))
    return emit(op.permute_dims(out, [0, 3, 1, 2]))


def of_each_head(*values: float) -> relax.Constant:
    return relax.const(np.array(values, "float32").reshape(HEADS, 1, 1), "float32")


def cosine(emit: Emit, q: relax.Var, k: relax.Var, v: relax.Var, mask: relax.Var) -> relax.Var:
    s = emit(op.multiply(scores(emit, q, k), of_each_head(0.25, 0.4)))
    return weighted(emit, emit(op.nn.softmax(emit(op.add(s, mask)))), v)


def cosine_one_head(
    emit: Emit, q: relax.Var, k: relax.Var, v: relax.Var, mask: relax.Var
) -> relax.Var:
    s = emit(op.matmul(q, emit(op.permute_dims(k, [0, 2, 1]))))
    by = emit(op.sum(emit(op.squeeze(mask, [1])), axis=[2], keepdims=True))
    s = emit(op.multiply(emit(op.multiply(by, s)), number(0.02)))
    return emit(op.matmul(emit(op.nn.softmax(s)), v))


def windows(emit: Emit, q: relax.Var, k: relax.Var, v: relax.Var, mask: relax.Var) -> relax.Var:
    """A bias of each head, then a mask of each window, the batch apart as images and windows."""
    s = emit(op.multiply(scores(emit, q, k), number(0.25)))
    s = emit(op.add(of_each_head(1.0, 2.0), s))
    batch, many, queries, keys = s.ty.shape
    split = emit(op.reshape(s, relax.ShapeExpr([1, batch, many, queries, keys])))
    hidden = emit(op.expand_dims(emit(op.multiply(mask, number(-100.0))), 0))
    s = emit(op.reshape(emit(op.add(split, hidden)), relax.ShapeExpr(list(s.ty.shape))))
    return weighted(emit, emit(op.nn.softmax(s)), v)


FORMS = [
    added_mask,
    chosen_mask,
    scaled_operands,
    merged_rows,
    one_head,
    capped,
    depths_first,
    cosine,
    cosine_one_head,
    windows,
]


def depths_first_one_head(
    emit: Emit, q: relax.Var, k: relax.Var, v: relax.Var, mask: relax.Var
) -> relax.Var:
    p = emit(op.nn.softmax(emit(op.matmul(q, emit(op.permute_dims(k, [0, 2, 1]))))))
    across = emit(op.permute_dims(p, [0, 2, 1]))
    return emit(op.matmul(emit(op.permute_dims(v, [0, 2, 1])), across))


def depths_first_elsewhere(
    emit: Emit, q: relax.Var, k: relax.Var, v: relax.Var, mask: relax.Var
) -> relax.Var:
    """The result's axes in an order that is not the call's."""
    left = emit(op.permute_dims(heads(emit, q, [0, 2, 3, 1]), [0, 1, 3, 2]))
    p = emit(op.nn.softmax(emit(op.matmul(left, heads(emit, k, [0, 2, 3, 1])))))
    across = emit(op.permute_dims(p, [0, 1, 3, 2]))
    out = emit(op.matmul(heads(emit, v, [0, 2, 3, 1]), across))
    return emit(op.permute_dims(out, [0, 2, 1, 3]))


def other_axis(emit: Emit, q: relax.Var, k: relax.Var, v: relax.Var, mask: relax.Var) -> relax.Var:
    return weighted(emit, emit(op.nn.softmax(scores(emit, q, k), axis=2)), v)


def scores_read_twice(
    emit: Emit, q: relax.Var, k: relax.Var, v: relax.Var, mask: relax.Var
) -> relax.Var:
    s = scores(emit, q, k)
    out = weighted(emit, emit(op.nn.softmax(s)), v)
    return emit(op.multiply(out, emit(op.sum(s))))


def module(form: Callable[..., relax.Var]) -> relaxvm.IRModule:
    n, s, t = (tirx.Var(name, "int64") for name in "nst")
    sizes = {"q": [n, s, 32], "k": [n, t, 32], "v": [n, t, 32], "mask": [n, 1, 1, t]}
    params = [relax.Var(name, relax.TensorType(dims, "float32")) for name, dims in sizes.items()]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(form(builder.emit, *params))
        builder.emit_func_output(result)
    return builder.get()


def answer(mod: relaxvm.IRModule) -> np.ndarray:
    rng = np.random.default_rng(2)
    q, k, v = (rng.standard_normal((2, n, 32), dtype="float32") for n in (9, 21, 21))
    mask = (rng.random((2, 1, 1, 21)) < 0.7).astype("float32")
    mask[..., 0] = 1
    vm = relax.VirtualMachine(relaxvm.compile(mod, relax_pipeline="zero"), relaxvm.cpu())
    return vm["main"](*[relaxvm.runtime.tensor(a) for a in (q, k, v, mask)]).numpy()


@pytest.mark.parametrize("form", FORMS)
def test_written_out_attention_becomes_one_call(form: Callable[..., relax.Var]) -> None:
    before = module(form)
    after = relax.transform.DeadCodeElimination()(FuseAttention()(before))
    text = after.script()
    assert "R.nn.attention" in text
    assert "R.matmul" not in text
    assert "R.permute_dims" not in text
    np.testing.assert_allclose(answer(after), answer(before), rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("form", [depths_first_one_head, depths_first_elsewhere])
def test_results_are_turned_where_they_are_read_so(form: Callable[..., relax.Var]) -> None:
    before = module(form)
    after = relax.transform.DeadCodeElimination()(FuseAttention()(before))
    text = after.script()
    assert "R.nn.attention" in text
    assert "R.matmul" not in text
    np.testing.assert_allclose(answer(after), answer(before), rtol=2e-4, atol=2e-5)


def weights_read_twice(
    emit: Emit, q: relax.Var, k: relax.Var, v: relax.Var, mask: relax.Var
) -> relax.Var:
    p = emit(op.nn.softmax(emit(op.matmul(q, emit(op.permute_dims(k, [0, 2, 1]))))))
    across = emit(op.permute_dims(p, [0, 2, 1]))
    out = emit(op.matmul(emit(op.permute_dims(v, [0, 2, 1])), across))
    return emit(op.multiply(out, emit(op.sum(across))))


def broadcast_by_the_mask(
    emit: Emit, q: relax.Var, k: relax.Var, v: relax.Var, mask: relax.Var
) -> relax.Var:
    """Scores of one query, which the mask makes those of many."""
    first = emit(op.strided_slice(q, [1], [0], [1]))
    s = emit(op.add(scores(emit, first, k), emit(op.permute_dims(mask, [0, 1, 3, 2]))))
    return weighted(emit, emit(op.nn.softmax(s)), v)


@pytest.mark.parametrize(
    "form", [other_axis, scores_read_twice, weights_read_twice, broadcast_by_the_mask]
)
def test_what_is_something_else_stays(form: Callable[..., relax.Var]) -> None:
    before = module(form)
    assert FuseAttention()(before).script() == before.script()


def windowed(images: int) -> relaxvm.IRModule:
    """Three windows for each image, their masks shared by all images; a bias of each head shared by all."""
    sizes = {"q": [images * 3, 2, 5, 16], "k": [images * 3, 2, 16, 5], "v": [images * 3, 2, 5, 16]}
    sizes |= {"mask": [3, 1, 5, 5], "bias": [1, 1, 2, 5, 5]}
    params = [relax.Var(name, relax.TensorType(dims, "float32")) for name, dims in sizes.items()]
    q, k, v, mask, bias = params
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            s = builder.emit(op.matmul(q, k))
            for added in (mask, bias):
                s = builder.emit(op.reshape(s, [images, 3, 2, 5, 5]))
                s = builder.emit(op.add(s, added))
                s = builder.emit(op.reshape(s, [images * 3, 2, 5, 5]))
            out = builder.emit_output(op.matmul(builder.emit(op.nn.softmax(s)), v))
        builder.emit_func_output(out)
    return builder.get()


@pytest.mark.parametrize("images", [1, 4])
def test_masks_of_windows_are_shared_by_the_images(images: int) -> None:
    before = windowed(images)
    after = FuseAttention()(before)
    assert after.script().count("R.nn.attention_bias") == 1
    rng = np.random.default_rng(4)
    sizes = [[int(d) for d in p.ty.shape] for p in before["main"].params]
    values = [rng.standard_normal(dims, dtype="float32") for dims in sizes]
    results = []
    for mod in (before, after):
        vm = relax.VirtualMachine(relaxvm.compile(mod, relax_pipeline="zero"), relaxvm.cpu())
        results.append(vm["main"](*[relaxvm.runtime.tensor(a) for a in values]).numpy())
    np.testing.assert_allclose(results[1], results[0], rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize(("dtype", "lowest"), [("float16", -65504.0), ("bfloat16", -1e38)])
def test_numbers_of_half_precision_are_read(dtype: str, lowest: float) -> None:
    dims = {"q": [2, 2, 5, 16], "k": [2, 2, 16, 7], "v": [2, 2, 7, 16]}
    params = [relax.Var(name, relax.TensorType(shape, dtype)) for name, shape in dims.items()]
    mask = relax.Var("mask", relax.TensorType([2, 1, 1, 7], "bool"))
    builder = relax.BlockBuilder()
    q, k, v = params
    with builder.function("main", [*params, mask]):
        with builder.dataflow():
            s = builder.emit(op.matmul(q, k))
            s = builder.emit(op.multiply(s, relax.const(0.25, dtype)))
            s = builder.emit(op.where(mask, s, relax.const(lowest, dtype)))
            out = builder.emit_output(op.matmul(builder.emit(op.nn.softmax(s)), v))
        builder.emit_func_output(out)
    text = FuseAttention()(builder.get()).script()
    assert "R.nn.attention_bias" in text
    assert "scale=0.25" in text
