# SPDX-License-Identifier: Apache-2.0
"""LinearAttention and CausalConvWithState beside ONNX's own definition, compiled once for all lengths."""

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

from relaxvm.relax.frontend.onnx import InvalidModel, from_onnx

HEADS, D_K, D_V = 2, 8, 5

RULES = {
    # update_rule: (queries' heads, past state, decay's width, beta's width)
    "linear": (4, False, None, None),
    "gated": (2, True, HEADS, None),
    "delta": (6, True, None, 1),
    "gated_delta": (2, False, HEADS * D_K, HEADS),
}


def model_of(rule, make_model, dtype="float"):
    queries, past, decay, beta = RULES[rule]
    extra = "".join(
        f", {dtype}[b, t, {width}] {name}"
        for name, width in (("decay", decay), ("beta", beta))
        if width
    )
    state = f", float[b, {HEADS}, {D_K}, {D_V}] past" if past else ""
    model = make_model(
        f"g ({dtype}[b, t, {queries * D_K}] q, {dtype}[b, t, {HEADS * D_K}] k, {dtype}[b, t, {HEADS * D_V}] v"
        f"{state}{extra}) => ({dtype}[b, t, {queries * D_V}] y, float[b, {HEADS}, {D_K}, {D_V}] s)"
        f' {{ y, s = LinearAttention<q_num_heads={queries}, kv_num_heads={HEADS}, update_rule="{rule}">'
        "(q, k, v) }",
        27,
    )
    names = [
        "q",
        "k",
        "v",
        "past" if past else "",
        "decay" if decay else "",
        "beta" if beta else "",
    ]
    while not names[-1]:
        names.pop()
    model.graph.node[0].ClearField("input")
    model.graph.node[0].input.extend(names)
    return model


def feed_of(model, batch, length, dtype):
    rng = np.random.default_rng(length)
    feed = {}
    for value in model.graph.input:
        shape = [
            {"b": batch, "t": length}.get(d.dim_param, d.dim_value)
            for d in value.type.tensor_type.shape.dim
        ]
        array = rng.standard_normal(shape) * (0.3 if value.name == "k" else 1)
        array = -np.abs(array) if value.name == "decay" else array
        feed[value.name] = array.astype("f4" if value.name == "past" else dtype)
    return feed


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("dtype", ["float", "float16"])
def test_agrees(rule, dtype, make_model, run_model_once):
    model = model_of(rule, make_model, dtype)
    ours, peer = run_model_once(model), ReferenceEvaluator(model)
    limits = {"rtol": 1e-4, "atol": 1e-5} if dtype == "float" else {"rtol": 4e-3, "atol": 2e-3}
    for batch, length in ((2, 7), (1, 1), (3, 40)):
        feed = feed_of(model, batch, length, "f4" if dtype == "float" else "f2")
        for have, want in zip(ours(feed), peer.run(None, feed), strict=True):
            assert have.shape == want.shape
            np.testing.assert_allclose(have.astype("f4"), want.astype("f4"), **limits)


@pytest.mark.parametrize(
    ("rule", "message"),
    [("gated", "needs input 'decay'"), ("linear", "has no input 'beta'"), ("other", "update_rule")],
)
def test_inputs_must_fit_the_rule(rule, message, make_model):
    model = model_of("delta", make_model)
    next(a for a in model.graph.node[0].attribute if a.name == "update_rule").s = rule.encode()
    with pytest.raises(InvalidModel, match=message):
        from_onnx(model)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("activation", ["none", "silu"])
def test_convolution_carries_its_last_columns(bias, activation, make_model, run_model_once):
    text = (
        "g (float[b, 6, t] x, float[b, 6, 3] past) => (float[b, 6, t] y, float[b, 6, 3] s) {"
        f' y, s = CausalConvWithState<activation="{activation}">(x, weight) }}'
    )
    rng = np.random.default_rng(0)
    weights = {"weight": rng.standard_normal((6, 1, 4), "f4"), "bias": rng.standard_normal(6, "f4")}
    model = make_model(text, 27, weights)
    if bias:
        model.graph.node[0].input.extend(["bias", "past"])
    ours, peer = run_model_once(model), ReferenceEvaluator(model)
    for batch, length in ((2, 9), (1, 1), (3, 2)):
        feed = {
            "x": rng.standard_normal((batch, 6, length), "f4"),
            "past": rng.standard_normal((batch, 6, 3), "f4"),
        }
        for have, want in zip(ours(feed), peer.run(None, feed), strict=True):
            assert have.shape == want.shape
            np.testing.assert_allclose(have, want, rtol=1e-4, atol=1e-5)
