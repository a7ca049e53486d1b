# SPDX-License-Identifier: Apache-2.0
"""Every function of nn.op gives what NumPy gives."""

from __future__ import annotations

import math

import numpy as np
import pytest

from relaxvm.relax.frontend import nn

G = np.random.default_rng(0)
X = G.standard_normal((2, 3, 4)).astype("float32")
Y = G.standard_normal((3, 4)).astype("float32")
P = np.abs(X) + 0.5
PERMUTED = X.transpose(2, 0, 1)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def gelu(x):
    return (x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))).astype(x.dtype)


def softmax(x, axis):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def normal(x, axes):
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + 1e-5)


CASES = {
    "add": (nn.add, (X, Y), X + Y),
    "subtract": (nn.subtract, (X, Y), X - Y),
    "multiply": (nn.multiply, (X, Y), X * Y),
    "divide": (nn.divide, (X, Y), X / Y),
    "maximum": (nn.maximum, (X, Y), np.maximum(X, Y)),
    "minimum": (nn.minimum, (X, Y), np.minimum(X, Y)),
    "less": (nn.less, (X, Y), X < Y),
    "less_equal": (nn.less_equal, (X, Y), X <= Y),
    "greater": (nn.greater, (X, Y), X > Y),
    "greater_equal": (nn.greater_equal, (X, Y), X >= Y),
    "equal": (nn.equal, (X, X), X == X),
    "not_equal": (nn.not_equal, (X, Y), X != Y),
    "relu": (nn.relu, (X,), np.maximum(X, 0)),
    "relu6": (nn.relu6, (X * 9,), np.clip(X * 9, 0, 6)),
    "silu": (nn.silu, (X,), X * sigmoid(X)),
    "gelu": (nn.gelu, (X,), gelu(X)),
    "sigmoid": (nn.sigmoid, (X,), sigmoid(X)),
    "tanh": (nn.tanh, (X,), np.tanh(X)),
    "exp": (nn.exp, (X,), np.exp(X)),
    "log": (nn.log, (P,), np.log(P)),
    "floor": (nn.floor, (X,), np.floor(X)),
    "sqrt": (nn.sqrt, (P,), np.sqrt(P)),
    "square": (nn.square, (X,), X * X),
    "negative": (nn.negative, (X,), -X),
    "softplus": (lambda x: nn.softplus(x, 2.0), (X,), np.log1p(np.exp(2 * X)) / 2),
    "prelu": (nn.prelu, (X, Y[:, 0]), np.where(X > 0, X, X * Y[:, :1])),
    "softmax": (lambda x: nn.softmax(x, 1), (X,), softmax(X, 1)),
    "unsqueeze": (lambda x: nn.unsqueeze(x, 1), (X,), X[:, None]),
    "squeeze": (lambda x: nn.squeeze(x, 1), (X[:, None],), X),
    "concat": (lambda x, y: nn.concat([x, y], 1), (X, X), np.concatenate([X, X], 1)),
    "chunk": (lambda x: nn.chunk(x, 2, 2), (X,), np.split(X, 2, 2)),
    "split": (lambda x: nn.split(x, [1], 1), (X,), np.split(X, [1], 1)),
    "sum": (lambda x: nn.sum(x, 1, True), (X,), X.sum(1, keepdims=True)),
    "max": (lambda x: nn.max(x, [0, 2]), (X,), X.max((0, 2))),
    "min": (nn.min, (X,), X.min()),
    "matmul": (nn.matmul, (X, Y.T.copy()), X @ Y.T),
    "broadcast_to": (lambda y: nn.broadcast_to(y, [2, 3, 4]), (Y,), np.broadcast_to(Y, (2, 3, 4))),
    "permute_dims": (lambda x: nn.permute_dims(x, [2, 0, 1]), (X,), PERMUTED),
    "permute": (lambda x: nn.permute(x, [2, 0, 1]), (X,), PERMUTED),
    "reshape": (lambda x: nn.reshape(x, [4, -1]), (X,), X.reshape(4, -1)),
    "repeat": (lambda x: nn.repeat(x, 2, 1), (X,), X.repeat(2, 1)),
    "take": (lambda x, i: nn.take(x, i, 2), (X, np.array([3, 0])), X[:, :, [3, 0]]),
    "pad": (lambda y: nn.pad(y, [1, 0, 0, 2], value=7.0), (Y,), np.pad(Y, ((1, 0), (0, 2)), constant_values=7)),
    "astype": (lambda x: nn.astype(x, "int32"), (X * 9,), (X * 9).astype("int32")),
    "where": (nn.where, (np.array([1, 0, 3, 0]), X, X * 2), np.where([1, 0, 1, 0], X, X * 2)),
    "cumsum": (lambda x: nn.cumsum(x, 1), (X,), X.cumsum(1)),
    "cumsum exclusive": (lambda x: nn.cumsum(x, 2, exclusive=True), (X,), X.cumsum(2) - X),
    "sort": (lambda x: nn.sort(x, 1, True), (X,), -np.sort(-X, 1)),
    "argsort": (nn.argsort, (X,), X.argsort(-1).astype("int32")),
    "topk": (lambda x: nn.topk(x, 2)[0], (X,), -np.sort(-X, -1)[..., :2]),
    "topk indices": (lambda x: nn.topk(x, 2, ret_type="indices"), (X,), (-X).argsort(-1)[..., :2].astype("int32")),
    "triu": (lambda y: nn.triu(y, 1), (Y,), np.triu(Y, 1)),
    "full": (lambda y: nn.full([2], 3, "int32"), (Y,), np.full(2, 3, "int32")),
    "zeros": (lambda y: nn.zeros([2]), (Y,), np.zeros(2, "float32")),
    "ones": (lambda y: nn.ones([2], "int64"), (Y,), np.ones(2, "int64")),
    "arange": (lambda y: nn.arange(1, 8, 3), (Y,), np.arange(1, 8, 3, dtype="float32")),
    "layer_norm": (lambda x: nn.layer_norm(x, 4), (X,), normal(X, -1)),
    "layer_norm affine": (lambda x, y: nn.layer_norm(x, [3, 4], y, y), (X, Y), normal(X, (1, 2)) * Y + Y),
    "rms_norm": (lambda x, y: nn.rms_norm(x, y, -1), (X, Y[0]), X / np.sqrt((X * X).mean(-1, keepdims=True) + 1e-5) * Y[0]),
    "group_norm": (lambda x: nn.group_norm(x, 1, None, None), (X,), normal(X, (1, 2))),
    "operators": (lambda x: (2 - (1 + x) * 3) / 4 + 1 / (x * x + 1), (X,), (2 - (1 + X) * 3) / 4 + 1 / (X * X + 1)),
    "comparisons": (lambda x: [x < 0, x <= 0, x > 0, x >= 0], (X,), [X < 0, X <= 0, X > 0, X >= 0]),
    "methods": (lambda x: (-x).maximum(0.5).minimum(x).reshape(6, 4).permute_dims(1, 0).repeat(2, 0), (X,), np.minimum(np.maximum(-X, 0.5), X).reshape(6, 4).T.repeat(2, 0)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_operator_gives_what_numpy_gives(name, run_function):
    function, inputs, want = CASES[name]
    got = run_function(function, *inputs)
    if not isinstance(want, list):
        got, want = [got], [want]
    assert [g.dtype for g in got] == [np.asarray(w).dtype for w in want]
    for g, w in zip(got, want):
        np.testing.assert_allclose(g, w, rtol=1e-4, atol=1e-5)


def test_every_function_is_a_name_of_nn():
    assert len(nn.op.__all__) == 77
    assert all(callable(getattr(nn, name)) for name in nn.op.__all__)


def attention(q, k, v, mask=0.0, scale=None):
    q, k, v = (t.transpose(0, 2, 1, 3) for t in (q, k, v))
    scores = q @ k.transpose(0, 1, 3, 2) * (scale or q.shape[-1] ** -0.5) + mask
    return (softmax(scores, -1) @ v).transpose(0, 2, 1, 3)


Q, K = (G.standard_normal((1, n, 2, 8)).astype("float32") for n in (5, 7))
MASK = G.standard_normal((1, 2, 5, 7)).astype("float32")


def test_attention_across_sequences(run_function):
    got = run_function(lambda q, k: nn.scaled_dot_product_attention(q, k, k, scale=0.5), Q, K)
    np.testing.assert_allclose(got, attention(Q, K, K, scale=0.5), rtol=1e-4, atol=1e-5)


def test_attention_adds_its_mask(run_function):
    got = run_function(lambda q, k, m: nn.scaled_dot_product_attention(q, k, k, m), Q, K, MASK)
    np.testing.assert_allclose(got, attention(Q, K, K, MASK), rtol=1e-4, atol=1e-5)


def test_causal_attention_sees_no_later_token(run_function):
    got = run_function(lambda q: nn.scaled_dot_product_attention(q, q, q, is_causal=True), Q)
    want = attention(Q, Q, Q, np.triu(np.full((5, 5), -np.inf), 1))
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("size", [8, 9])
def test_timestep_embedding(size, run_function):
    steps = np.array([0, 1, 17], "int64")
    got = run_function(lambda x: nn.get_timestep_embedding(x, size, True, 0, 2.0, 5000), steps)
    angle = 2.0 * steps[:, None] * np.exp(-math.log(5000) * np.arange(4) / 4)
    want = np.concatenate([np.cos(angle), np.sin(angle), np.zeros((3, size - 8))], 1)
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
def test_interpolate_keeps_a_constant_image(mode, run_function):
    image = np.full((1, 2, 4, 6), 3.0, "float32")
    by_factor = run_function(lambda x: nn.interpolate(x, scale_factor=(2, 1.5), mode=mode), image)
    by_size = run_function(lambda x: nn.interpolate(x, (8, 9), mode=mode, align_corners=True), image)  # fmt: skip
    assert by_factor.shape == by_size.shape == (1, 2, 8, 9)
    np.testing.assert_allclose(by_factor, 3.0, rtol=1e-5)
    np.testing.assert_allclose(by_size, 3.0, rtol=1e-5)


# ---- sampling: probabilities in falling order, nucleus and count per row

PROBS = G.random((4, 10)).astype("float32")
PROBS /= PROBS.sum(1, keepdims=True)
ORDER = (-PROBS).argsort(1).astype("int32")
SORTED = np.take_along_axis(PROBS, ORDER, 1)
TOP_P = np.array([[0.1], [0.5], [0.9], [1.0]], "float32")
TOP_K = np.array([[10], [3], [5], [10]], "int32")


def last_kept() -> list[int]:
    result = []
    for row, p, k in zip(SORTED.cumsum(1), TOP_P[:, 0], TOP_K[:, 0]):
        index = 0
        while index < 9 and row[index] < p and index + 1 < k:
            index += 1
        result.append(index)
    return result


def test_probabilities_are_kept_up_to_top_p_and_top_k(run_function):
    got = run_function(nn.renormalize_top_p_top_k_prob, PROBS, SORTED, TOP_P, TOP_K)
    cutoff = SORTED[range(4), last_kept()][:, None]
    want = np.where(PROBS >= cutoff, PROBS, 0)
    np.testing.assert_allclose(got, want / want.sum(1, keepdims=True), rtol=1e-5)


@pytest.mark.parametrize("rows", [None, [0, 1, 1, 2, 3, 3]])
def test_token_is_sampled_among_the_kept(rows, run_function):
    own = list(range(4)) if rows is None else rows
    sample = G.random((len(own), 1)).astype("float32")
    named = [] if rows is None else [np.array(rows, "int64")[:, None]]
    inputs = SORTED, ORDER, TOP_P, TOP_K, sample, *named
    got = run_function(nn.sample_top_p_top_k_from_sorted_prob, *inputs)
    sums = SORTED.cumsum(1)
    shares = sums / sums[range(4), last_kept()][:, None]
    want = [ORDER[r, min(9, int((shares[r] <= u).sum()))] for r, u in zip(own, sample[:, 0])]
    assert got.dtype == "int32" and got[:, 0].tolist() == want


def test_index_is_drawn_by_running_sum(run_function):
    sample = np.array([[0.0], [0.999], [0.5], [0.2]], "float32")
    got = run_function(nn.multinomial_from_uniform, PROBS, sample)
    want = [int((PROBS[i].cumsum() <= u).sum()) for i, u in enumerate(sample[:, 0])]
    assert got[:, 0].tolist() == want


# ---- refusals say what to do

REFUSED = {
    "collective": (lambda x: nn.op.ccl_allreduce(x), NotImplementedError, "one process"),
    "gather": (lambda x: nn.op.ccl_allgather(x, 2), NotImplementedError, "ccl_allgather"),
    "broadcast": (lambda x: nn.op.ccl_broadcast_from_worker0(x), NotImplementedError, "broadcast_from_worker0"),
    "mask of bool": (lambda x: nn.scaled_dot_product_attention(x, x, x, x < 0), TypeError, "float tensor"),
    "antialias": (lambda x: nn.interpolate(x, 8, antialias=True), ValueError, "antialias"),
    "mode": (lambda x: nn.interpolate(x, 8, mode="area"), ValueError, "mode is one of"),
    "no size": (lambda x: nn.interpolate(x), ValueError, "size or scale_factor"),
    "gelu": (lambda x: nn.gelu(x, "fast"), ValueError, "approximate"),
    "operand": (lambda x: x + "1", TypeError, "nn.Tensor"),
    "same": (lambda x: nn.conv2d(x, x, stride=2, padding="same"), ValueError, "stride 1"),
    "padding": (lambda x: nn.conv2d(x, x, padding="full"), ValueError, '"same" or "valid"'),
    "debug": (lambda x: nn.op.print_(x), RuntimeError, "debug=True"),
    "program's argument": (lambda x: nn.op.extern("f", [{}], x), TypeError, "dict"),
    "program's result": (lambda x: nn.op.extern("f", [x], 3), TypeError, "out is"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refusal_says_what_to_do(name, run_function):
    function, kind, words = REFUSED[name]
    with pytest.raises(kind, match=words):
        run_function(function, np.zeros((1, 2, 4, 4), "float32"))


def test_operator_outside_of_a_method_is_an_error():
    with pytest.raises(RuntimeError, match="export_tvm"):
        nn.zeros([2])
