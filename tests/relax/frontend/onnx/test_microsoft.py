# SPDX-License-Identifier: Apache-2.0
"""Operators of com.microsoft beside ONNX Runtime, with symbolic batch and length."""

import numpy as np
import pytest

pytestmark = pytest.mark.peer

f4 = np.float32
RNG = np.random.default_rng(11)
MATRIX = RNG.standard_normal((8, 6)).astype(f4)
BYTES = RNG.integers(0, 255, (8, 6)).astype(np.uint8)
VECTOR = RNG.standard_normal(8).astype(f4)
ROWS = "g (float[n, s, 8] x) => (float[a, b, c] y) "
SHAPES = [{"x": (1, 3, 8)}, {"x": (2, 5, 8)}]
CASES = {
    # name: (graph, weights, shapes of the inputs)
    "FusedMatMul": (
        "g (float[n, 8] x) => (float[a, b] y) { y = com.microsoft.FusedMatMul<alpha=0.5, transB=1>(x, w) }",
        {"w": np.ascontiguousarray(MATRIX.T)}, [{"x": (3, 8)}, {"x": (1, 8)}]),
    "FusedGemm": (
        "g (float[n, 8] x) => (float[a, b] y) { y = com.microsoft.FusedGemm<activation=\"Relu\">(x, w, c) }",
        {"w": MATRIX, "c": VECTOR[:6]}, [{"x": (3, 8)}]),
    "FusedConv": (
        "g (float[n, 3, h, w] x) => (float[a, b, c, d] y) { y = com.microsoft.FusedConv<activation=\"Relu\", "
        "pads=[1,1,1,1]>(x, k) }",
        {"k": RNG.standard_normal((4, 3, 3, 3)).astype(f4)}, [{"x": (1, 3, 5, 6)}]),
    "QuickGelu": (ROWS + "{ y = com.microsoft.QuickGelu(x) }", {}, SHAPES),
    "Gelu": (ROWS + "{ y = com.microsoft.Gelu(x) }", {}, SHAPES),
    "FastGelu": (ROWS + "{ y = com.microsoft.FastGelu(x, v) }", {"v": VECTOR}, SHAPES),
    "BiasGelu": (ROWS + "{ y = com.microsoft.BiasGelu(x, v) }", {"v": VECTOR}, SHAPES),
    "SkipLayerNormalization": (
        ROWS + "{ y = com.microsoft.SkipLayerNormalization(x, x, v, v) }", {"v": VECTOR}, SHAPES),
    "SkipSimplifiedLayerNormalization": (
        ROWS + "{ y = com.microsoft.SkipSimplifiedLayerNormalization(x, x, v) }", {"v": VECTOR}, SHAPES),
    "Attention": (
        ROWS + "{ y = com.microsoft.Attention<num_heads=2>(x, w, b) }",
        {"w": RNG.standard_normal((8, 24)).astype(f4), "b": RNG.standard_normal(24).astype(f4)}, SHAPES),
    "Attention causal": (
        ROWS + "{ y = com.microsoft.Attention<num_heads=2, unidirectional=1>(x, w, b) }",
        {"w": RNG.standard_normal((8, 24)).astype(f4), "b": RNG.standard_normal(24).astype(f4)}, SHAPES),
    "MultiHeadAttention": (
        ROWS + "{ y = com.microsoft.MultiHeadAttention<num_heads=2>(x, x, x) }", {}, SHAPES),
    "RotaryEmbedding": (
        ROWS + "{ p = Constant<value = int64[1] {1}>() y = com.microsoft.RotaryEmbedding<num_heads=2>(x, p, c, s) }",
        {"c": RNG.standard_normal((16, 2)).astype(f4), "s": RNG.standard_normal((16, 2)).astype(f4)}, SHAPES),
    "MRotaryEmbedding": (
        "g (float[n, s, 16] x, int64[3, n, s] i) => (float[a, b, c] y) "
        "{ y = com.microsoft.MRotaryEmbedding<num_heads=2, mrope_section=[2,1,1]>(x, i, c, d) }",
        {"c": RNG.standard_normal((9, 4)).astype(f4), "d": RNG.standard_normal((9, 4)).astype(f4)},
        [{"x": (2, 5, 16), "i": (3, 2, 5)}]),
    "MRotaryEmbedding interleaved sections": (
        "g (float[n, 2, s, 20] x, int64[3, n, s] i) => (float[a, b, e, f] y) { y = com.microsoft.MRotaryEmbedding"
        "<num_heads=2, rotary_embedding_dim=16, mrope_section=[4,2,2], mrope_layout=1, interleaved=1>(x, i, c, d) }",
        {"c": RNG.standard_normal((9, 8)).astype(f4), "d": RNG.standard_normal((9, 8)).astype(f4)},
        [{"x": (2, 2, 5, 20), "i": (3, 2, 5)}]),
    "Inverse": (
        "g (float[n, s, 4, 4] x) => (float[a, b, c, d] y) { v = Add(x, w) y = com.microsoft.Inverse(v) }",
        {"w": 4 * np.eye(4, dtype=f4)[[2, 0, 3, 1]]}, [{"x": (2, 3, 4, 4)}, {"x": (1, 1, 4, 4)}]),
    "GatedAdd": (
        "g (float[n, s, 8] x, float[n, s, 8] z, float[n, s, 1] gate) => (float[a, b, c] y) "
        "{ y = com.microsoft.GatedAdd(x, z, gate) }", {}, [{"x": (2, 3, 8), "z": (2, 3, 8), "gate": (2, 3, 1)}]),
    "LinearAttentionGate": (
        "g (float[n, s, 4] x) => (float[a, b, c] y, float[d, e, f] z) "
        "{ y, z = com.microsoft.LinearAttentionGate(x, v, w, x) }",
        {"v": VECTOR[:4], "w": -np.exp(VECTOR[:4])}, [{"x": (2, 3, 4)}]),
    "LinearAttention of shared queries": (
        "g (float[n, s, 8] q, float[n, s, 16] k, float[n, s, 12] v, float[n, s, 4] gate) => "
        "(float[a, b, c] y, float[d, e, f, h] z) { t = Sigmoid(gate) e = Neg(t) y, z = com.microsoft.LinearAttention"
        "<q_num_heads=2, kv_num_heads=4>(q, k, v, , e, t) }", {},
        [{"q": (2, 3, 8), "k": (2, 3, 16), "v": (2, 3, 12), "gate": (2, 3, 4)}]),
    "FusedMatMul of moved batches": (
        "g (float[s, n, 8] x, float[n, t, 8] z) => (float[a, b, c] y) "
        "{ y = com.microsoft.FusedMatMul<transBatchA=1, transB=1>(x, z) }",
        {}, [{"x": (3, 2, 8), "z": (2, 5, 8)}]),
    "FusedGemm with Elu": (
        "g (float[n, 8] x) => (float[a, b] y) { y = com.microsoft.FusedGemm<activation=\"Elu\", "
        "activation_alpha=0.5>(x, w, c) }", {"w": MATRIX, "c": VECTOR[:6]}, [{"x": (3, 8)}]),
    "BranchwiseRMSNorm": (
        ROWS + "{ y = com.microsoft.BranchwiseRMSNorm<num_branches=2>(x, v) }", {"v": VECTOR}, SHAPES),
    "GatedRMSNorm": (ROWS + "{ y = com.microsoft.GatedRMSNorm(x, v, x) }", {"v": VECTOR[:4]}, SHAPES),
    "ScaledSiLU": (ROWS + "{ y = com.microsoft.ScaledSiLU<alpha=0.5>(x) }", {}, SHAPES),
    "CDist": (
        "g (float[n, 8] x) => (float[a, b] y) { y = com.microsoft.CDist<metric=\"euclidean\">(x, w) }",
        {"w": np.ascontiguousarray(MATRIX.T)}, [{"x": (3, 8)}]),
    "Trilu": (ROWS + "{ y = com.microsoft.Trilu<upper=0>(x) }", {}, SHAPES),
    "GatherBlockQuantized": (
        "g (int64[n, s] i) => (float[a, b, c] y) { y = com.microsoft.GatherBlockQuantized<bits=4, block_size=16>(w, i, s, z) }",
        {"w": RNG.integers(0, 255, (5, 16)).astype(np.uint8), "s": RNG.random((5, 2)).astype(f4),
         "z": RNG.integers(0, 255, (5, 1)).astype(np.uint8)}, [{"i": (2, 3)}]),
    "EmbedLayerNormalization": (
        "g (int32[n, s] ids) => (float[a, b, c] y) { y, m = com.microsoft.EmbedLayerNormalization(ids, , w, w, , v, v) }",
        {"w": np.ascontiguousarray(RNG.standard_normal((9, 8)).astype(f4)), "v": VECTOR}, [{"ids": (2, 5)}]),
    "Attention with first and last keys": (
        "g (float[n, s, 8] x, int32[m] l) => (float[a, b, c] y) { y = com.microsoft.Attention<num_heads=2>(x, w, b, l) }",
        {"w": RNG.standard_normal((8, 24)).astype(f4), "b": RNG.standard_normal(24).astype(f4)},
        [{"x": (2, 5, 8), "l": [5, 3, 1, 2]}, {"x": (2, 5, 8), "l": [5, 3]}]),
    "CausalConvWithState": (
        "g (float[n, 3, s] x) => (float[a, b, c] y, float[d, e, f] t) "
        "{ y, t = com.microsoft.CausalConvWithState<activation=\"silu\">(x, w) }",
        {"w": RNG.standard_normal((3, 1, 4)).astype(f4)}, [{"x": (2, 3, 9)}]),
    "DynamicQuantizeMatMul": (
        "g (float[n, 8] x) => (float[a, b] y) { y = com.microsoft.DynamicQuantizeMatMul(x, w, s, z) }",
        {"w": BYTES, "s": f4([0.02]), "z": np.uint8([120])}, [{"x": (3, 8)}]),
    "MatMulNBits": (
        "g (float[n, 32] x) => (float[a, b] y) { y = com.microsoft.MatMulNBits<K=32, N=4, bits=4, block_size=16>"
        "(x, w, s, z) }",
        {"w": RNG.integers(0, 255, (4, 2, 8)).astype(np.uint8), "s": RNG.random(8).astype(f4),
         "z": RNG.integers(0, 255, 4).astype(np.uint8)}, [{"x": (3, 32)}]),
    "MatMulNBits of 8 bits": (
        "g (float[n, s, 40] x) => (float[a, b, c] y) { y = com.microsoft.MatMulNBits<K=40, N=19, bits=8, block_size=32>"
        "(x, w, s, , , o) }",
        {"w": RNG.integers(0, 255, (19, 2, 32)).astype(np.uint8), "s": RNG.random(38).astype(f4) / 16,
         "o": RNG.standard_normal(19).astype(f4)}, [{"x": (1, 1, 40)}, {"x": (3, 5, 40)}]),
    "MatMulNBits of 2 bits": (
        "g (float[n, 64] x) => (float[a, b] y) { y = com.microsoft.MatMulNBits<K=64, N=70, bits=2, block_size=32>"
        "(x, w, s, z) }",
        {"w": RNG.integers(0, 255, (70, 2, 8)).astype(np.uint8), "s": RNG.random((70, 2)).astype(f4),
         "z": RNG.integers(0, 255, (70, 1)).astype(np.uint8)}, [{"x": (1, 64)}, {"x": (7, 64)}]),
    "MatMulNBits with bytes": (
        "g (float[n, 64] x) => (float[a, b] y) { y = com.microsoft.MatMulNBits<K=64, N=70, bits=4, block_size=32, "
        "accuracy_level=4>(x, w, s, z) }",
        {"w": RNG.integers(0, 255, (70, 2, 16)).astype(np.uint8), "s": RNG.random((70, 2)).astype(f4),
         "z": RNG.integers(0, 255, (70, 1)).astype(np.uint8)}, [{"x": (1, 64)}, {"x": (7, 64)}, {"x": (13, 64)}]),
    "QLinearAdd": (
        "g (float[n, 8] x) => (float[a, b] y) { q = QuantizeLinear(x, s, z) "
        "r = com.microsoft.QLinearAdd(q, s, z, q, s, z, t, z) y = DequantizeLinear(r, t, z) }",
        {"s": f4(0.02), "t": f4(0.05), "z": np.uint8(120)}, [{"x": (3, 8)}]),
    "QLinearSigmoid": (
        "g (float[n, 8] x) => (float[a, b] y) { q = QuantizeLinear(x, s, z) "
        "r = com.microsoft.QLinearSigmoid(q, s, z, t, z) y = DequantizeLinear(r, t, z) }",
        {"s": f4(0.02), "t": f4(0.01), "z": np.uint8(20)}, [{"x": (3, 8)}]),
    "QLinearConv": (
        "g (float[n, 3, h, w] x) => (float[a, b, c, d] y) { q = QuantizeLinear(x, s, z) "
        "r = QLinearConv<pads=[1,1,1,1]>(q, s, z, k, t, o, t, z) y = DequantizeLinear(r, t, z) }",
        {"s": f4(0.02), "t": f4(0.05), "z": np.uint8(120), "o": np.int8(0),
         "k": RNG.integers(-9, 9, (4, 3, 3, 3)).astype(np.int8)}, [{"x": (1, 3, 5, 6)}]),
}  # fmt: skip


def _drawn(rng, name, shape):
    if isinstance(shape, list):  # values
        return np.array(shape, np.int32)
    integers = {"i": np.int64, "ids": np.int32}
    return (
        rng.standard_normal(shape, dtype=f4)
        if name not in integers
        else rng.integers(0, 5, shape, integers[name])
    )


@pytest.mark.parametrize("name", CASES)
def test_agrees(name, sizes, make_model, run_model_once):
    import onnxruntime

    text, weights, shapes = CASES[name]
    model = make_model(sizes(text), 17, weights)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    peer = onnxruntime.InferenceSession(model.SerializeToString(), options)
    ours = run_model_once(model)
    rng = np.random.default_rng(7)
    for shape in shapes:
        feed = {k: _drawn(rng, k, s) for k, s in shape.items()}
        for have, want in zip(ours(feed), peer.run(None, feed), strict=True):
            assert have.shape == want.shape, shape
            np.testing.assert_allclose(have, want, rtol=1e-3, atol=1e-4)


# Batches and lengths that have a name at each place, as exporters leave them.
FREE_NAMES = {
    "multi head attention": (
        """g (float[b0, s0, 8] q, float[b1, t0, 8] k, float[b2, t1, 8] v, float[b3, 2, p0, 4] pk, float[b4, 2, p1, 4] pv)
        => (float[a, b, c] y, float[d, e, f, h] nk, float[i, j, l, m] nv)
        { y, nk, nv = com.microsoft.MultiHeadAttention<num_heads = 2>(q, k, v, , , , pk, pv) }""",
        {"q": (2, 3, 8), "k": (2, 3, 8), "v": (2, 3, 8), "pk": (2, 2, 4, 4), "pv": (2, 2, 4, 4)},
    ),
    "skip layer norm": (
        """g (float[b0, s0, 8] q, float[b1, s1, 8] k, float[8] w) => (float[a, b, c] y)
        { y = com.microsoft.SkipLayerNormalization(q, k, w, w, w) }""",
        {"q": (2, 3, 8), "k": (2, 3, 8), "w": (8,)},
    ),
    "convolution and residual": (
        """g (float[b0, 3, h0, w0] q, float[4, 3, 1, 1] k, float[b1, 4, h1, w1] v) => (float[a, b, c, d] y)
        { y = com.microsoft.FusedConv<activation = "Relu">(q, k, , v) }""",
        {"q": (1, 3, 4, 5), "k": (4, 3, 1, 1), "v": (1, 4, 4, 5)},
    ),
    "attention": (
        """g (float[b0, 4, s0, 8] q, float[b1, 2, t0, 8] k, float[b2, 2, t1, 8] v, float[s1, t2] m)
        => (float[a, b, c, d] y) { y = Attention<softcap = 2.0>(q, k, v, m) }""",
        {"q": (2, 4, 3, 8), "k": (2, 2, 5, 8), "v": (2, 2, 5, 8), "m": (3, 5)},
    ),
    "attention of open heads": (
        """g (float[b0, h0, s0, d0] q, float[b1, h1, t0, d1] k, float[b2, h2, t1, d2] v, float[b3, h3, s1, t2] m)
        => (float[a, b, c, d] y) { y = Attention(q, k, v, m) }""",
        {"q": (2, 4, 3, 8), "k": (2, 4, 5, 8), "v": (2, 4, 5, 8), "m": (2, 1, 3, 5)},
    ),
    "attention with a bias": (
        """g (float[b0, s0, 8] q, float[b1, t0, 8] k, float[b2, t1, 8] v, float[b3, h0, s1, t2] m) => (float[a, b, c] y)
        { y = com.microsoft.MultiHeadAttention<num_heads = 2>(q, k, v, , , m) }""",
        {"q": (2, 3, 8), "k": (2, 5, 8), "v": (2, 5, 8), "m": (1, 2, 3, 5)},
    ),
    "rotary embedding": (
        """g (float[b0, s0, 16] q, float[9, 4] k, float[9, 4] v, int64[b1, s1] i) => (float[a, b, c] y)
        { y = RotaryEmbedding<num_heads = 2, interleaved = 1>(q, k, v, i) }""",
        {"q": (2, 3, 16), "k": (9, 4), "v": (9, 4), "i": (2, 3)},
    ),
    "rotary embedding by rows": (
        """g (float[b0, 2, s0, 8] q, float[b1, s1, 4] k, float[b2, s2, 4] v) => (float[a, b, c, d] y)
        { y = RotaryEmbedding(q, k, v) }""",
        {"q": (2, 2, 3, 8), "k": (2, 3, 4), "v": (2, 3, 4)},
    ),
}  # fmt: skip


@pytest.mark.peer
@pytest.mark.parametrize("name", FREE_NAMES)
def test_sizes_agree_whatever_their_names(name, make_model, run_model_once):
    import onnxruntime

    text, shapes = FREE_NAMES[name]
    model = make_model(text, 23)
    rng = np.random.default_rng(0)
    feed = {
        k: rng.integers(0, 9, s) if k == "i" else rng.standard_normal(s).astype("f4")
        for k, s in shapes.items()
    }
    wanted = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feed)
    for have, want in zip(run_model_once(model)(feed), wanted, strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-4, atol=1e-5)
