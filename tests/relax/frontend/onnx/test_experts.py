# SPDX-License-Identifier: Apache-2.0
"""Mixtures of experts beside ONNX Runtime, or written out where that has no kernel, compiled once for all numbers of tokens."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from relaxvm.relax.frontend.onnx import InvalidModel, UnsupportedModel, from_onnx

EXPERTS, WIDTH, INNER = 4, 64, 32
GATE = {"activation_alpha": 1.702, "activation_beta": 1.0}
NAMES = ("x", "r", "w1", "b1", "w2", "b2", "w3", "b3")
QUANTIZED = ("x", "r", "w1", "s1", "b1", "w2", "s2", "b2", "w3", "s3", "b3", "z1", "z2", "z3", "rw")


def model_of(kind, weights, extra=(), dtype=TensorProto.FLOAT, **attributes):
    names = [
        n if n in weights or n in ("x", "r", *extra) else ""
        for n in (NAMES if kind == "MoE" else QUANTIZED)
    ]
    while not names[-1]:
        names.pop()
    node = helper.make_node(kind, names, ["y"], domain="com.microsoft", **attributes)
    value = lambda name, shape: helper.make_tensor_value_info(name, dtype, shape)
    inputs = [value("x", ["b", "s", WIDTH]), *(value(n, ["n", EXPERTS]) for n in ("r", *extra))]
    graph = helper.make_graph(
        [node],
        "g",
        inputs,
        [value("y", ["b", "s", WIDTH])],
        [numpy_helper.from_array(v, k) for k, v in weights.items()],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def weights_of(rng, rows, third=False, bias=True):
    normal = lambda *shape: (rng.standard_normal(shape) / 4).astype("f4")
    weights = {"w1": normal(EXPERTS, rows, WIDTH), "w2": normal(EXPERTS, WIDTH, INNER)}
    if bias:
        weights |= {"b1": normal(EXPERTS, rows), "b2": normal(EXPERTS, WIDTH)}
    return weights | ({"w3": normal(EXPERTS, INNER, WIDTH)} if third else {})


def feed_of(rng, batch, length, extra=(), dtype="f4"):
    feed = {"x": rng.standard_normal((batch, length, WIDTH))}
    feed |= {n: rng.standard_normal((batch * length, EXPERTS)) for n in ("r", *extra)}
    return {k: (np.abs(v) if k in extra else v).astype(dtype) for k, v in feed.items()}


SIZES = ((1, 1), (2, 3), (3, 40))
PLAIN = {
    # activation_type: (rows of the first layer, other attributes)
    "relu": (INNER, {"k": 2}),
    "gelu": (INNER, {"k": 2, "normalize_routing_weights": 1}),
    "silu": (INNER, {"k": 1}),
    "identity": (INNER, {"k": 4, "normalize_routing_weights": 1}),
    "swiglu": (2 * INNER, {"k": 2, "normalize_routing_weights": 1, "swiglu_limit": 0.5, **GATE}),
}


@pytest.mark.peer
@pytest.mark.parametrize("activation", PLAIN)
def test_agrees(activation, run_model_once):
    import onnxruntime

    rows, attributes = PLAIN[activation]
    attributes = {**attributes, "swiglu_fusion": int(activation == "swiglu")}
    rng = np.random.default_rng(0)
    weights = weights_of(rng, rows, bias=activation != "relu")
    model = model_of("MoE", weights, activation_type=activation, **attributes)
    ours, peer = run_model_once(model), onnxruntime.InferenceSession(model.SerializeToString())
    for batch, length in SIZES:
        feed = feed_of(rng, batch, length)
        have, want = ours(feed)[0], peer.run(None, feed)[0]
        assert have.shape == want.shape
        np.testing.assert_allclose(have, want, rtol=1e-3, atol=1e-4)


def silu(x):
    return x / (1 + np.exp(-x))


@pytest.mark.parametrize("form", ["silu", "apart", "halves"])
def test_third_layers_and_halves(form, run_model_once):
    """ONNX Runtime's CPU provider has neither."""
    rng = np.random.default_rng(1)
    third = form != "halves"
    weights = weights_of(rng, INNER * (1 if third else 2), third)
    attributes = {"activation_type": "silu" if form == "silu" else "swiglu"}
    model = model_of("MoE", weights, swiglu_fusion=0 if third else 2, **attributes)
    feed = feed_of(rng, 2, 5)
    x = feed["x"].reshape(-1, WIDTH)
    shares = np.exp(feed["r"]) / np.exp(feed["r"]).sum(axis=1, keepdims=True)
    want = np.zeros_like(x)
    for t, row in enumerate(x):
        e = np.argmax(feed["r"][t])
        first = weights["w1"][e] @ row + weights["b1"][e]
        gate, value = (first, weights["w3"][e] @ row) if third else np.split(first, 2)
        last = weights["w2"][e] @ (silu(gate) * value) + weights["b2"][e]
        want[t] = shares[t, e] * last
    have = run_model_once(model)(feed)[0]
    np.testing.assert_allclose(have.reshape(-1, WIDTH), want, rtol=1e-3, atol=1e-4)


def test_halves_keep_their_type(run_model_once):
    rng = np.random.default_rng(2)
    weights = {k: v.astype("f2") for k, v in weights_of(rng, INNER).items()}
    ours = run_model_once(model_of("MoE", weights, dtype=TensorProto.FLOAT16, k=2))
    wide = run_model_once(model_of("MoE", {k: v.astype("f4") for k, v in weights.items()}, k=2))
    feed = feed_of(rng, 2, 3, dtype="f2")
    have, want = ours(feed)[0], wide({k: v.astype("f4") for k, v in feed.items()})[0]
    assert have.dtype == np.float16
    np.testing.assert_allclose(have.astype("f4"), want, rtol=4e-3, atol=2e-3)


def codes_of(rng, rows, columns, bits, block, zeros):
    blocks = columns // block if block else 1
    packed = rng.integers(0, 256, (EXPERTS, rows, columns * bits // 8), np.uint8)
    shape = (EXPERTS, rows, blocks) if block else (EXPERTS, rows)
    scales = (rng.random(shape) * 0.3 / (1 << bits)).astype("f4")
    width = (EXPERTS, rows, -(-blocks * bits // 8)) if block else (EXPERTS, -(-rows * bits // 8))
    return packed, scales, rng.integers(0, 256, width, np.uint8) if zeros else None


CODES = {
    # (bits, block, zero points, other attributes)
    "4 bits": (4, 0, False, {"activation_type": "relu"}),
    "4 bits in blocks": (4, 32, False, {"activation_type": "silu"}),
    "4 bits with zero points": (4, 0, True, {"activation_type": "swiglu", **GATE}),
    "4 bits in blocks with zero points": (4, 16, True, {"activation_type": "swiglu", **GATE}),
    "8 bits with zero points": (8, 0, True, {"activation_type": "swiglu", **GATE}),
    "2 bits in blocks": (2, 32, False, {"activation_type": "swiglu", **GATE}),
}


@pytest.mark.peer
@pytest.mark.parametrize("routed", [False, True], ids=["", "by weights of their own"])
@pytest.mark.parametrize("name", CODES)
def test_codes_agree(name, routed, run_model_once):
    import onnxruntime

    bits, block, zeros, attributes = CODES[name]
    rng = np.random.default_rng(3)
    fused = attributes["activation_type"] == "swiglu"
    weights = {}
    for i, shape in ((1, (INNER * (2 if fused else 1), WIDTH)), (2, (WIDTH, INNER))):
        packed, scales, points = codes_of(rng, *shape, bits, block, zeros)
        weights |= {f"w{i}": packed, f"s{i}": scales}
        weights[f"b{i}"] = rng.standard_normal((EXPERTS, shape[0])).astype("f4")
        if zeros:
            weights[f"z{i}"] = points
    if block:
        attributes = {**attributes, "block_size": block}
    extra = ("rw",) if routed else ()
    model = model_of(
        "QMoE", weights, extra, expert_weight_bits=bits, k=2, normalize_routing_weights=1,
        swiglu_fusion=int(fused), **attributes,
    )  # fmt: skip
    ours, peer = run_model_once(model), onnxruntime.InferenceSession(model.SerializeToString())
    for batch, length in SIZES:
        feed = feed_of(rng, batch, length, extra)
        have, want = ours(feed)[0], peer.run(None, feed)[0]
        assert have.shape == want.shape
        np.testing.assert_allclose(have, want, rtol=1e-3, atol=1e-3 * np.abs(want).max())


@pytest.mark.parametrize(
    ("attributes", "error", "message"),
    [
        ({"k": 5}, InvalidModel, "k is from 1 to the 4 experts"),
        ({"activation_type": "relu2"}, UnsupportedModel, "activation_type 'relu2'"),
        ({"use_sparse_mixer": 1}, UnsupportedModel, "sparse mixers"),
        ({"activation_type": "swiglu"}, InvalidModel, "swiglu needs a third layer"),
    ],
)
def test_refuses(attributes, error, message):
    model = model_of("MoE", weights_of(np.random.default_rng(0), INNER), **attributes)
    with pytest.raises(error, match=message):
        from_onnx(model)
