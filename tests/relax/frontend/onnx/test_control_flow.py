# SPDX-License-Identifier: Apache-2.0
"""If, Loop, Scan and sequences beside ONNX Runtime, each compiled once and run on several inputs."""

import numpy as np
import pytest

f4 = np.float32
COUNT = {"m": np.array(5, "int64")}
HEAD = "g (float[n] x, int64 m) => "
LOOP = "c = Constant<value = bool {1}>() "
BODY = "b (int64 i, bool ci, float[n] v) => "


def number(m):
    return {"m": np.array(m, "int64")}


CASES = {
    "if that depends on data": (
        "g (float[n] x) => (float[k] y) { s = ReduceSum<keepdims=0>(x) z = Constant<value_float=0.0>() "
        "c = Greater(s, z) y = If (c) <then_branch = t () => (float[n] p) { p = Exp(x) }, "
        "else_branch = e () => (float[q] p) { p = Concat<axis=0>(x, x) }> }",
        [{"x": np.ones(3, f4)}, {"x": -np.ones(3, f4)}]),
    "if before a node that its branches read": (
        "g (float[n] x) => (float[n] y) { s = ReduceSum<keepdims=0>(x) z = Constant<value_float=0.0>() "
        "c = Greater(s, z) y = If (c) <then_branch = t () => (float[n] p) { p = Exp(late) }, "
        "else_branch = e () => (float[n] p) { p = Neg(late) }> late = Tanh(x) }",
        [{"x": np.ones(3, f4)}, {"x": -np.ones(3, f4)}]),
    "if that depends on a size": (
        "g (float[n, 2] x) => (float[k] y) { s = Shape<end=1>(x) o = Constant<value_ints=[1]>() c = Equal(s, o) "
        "e = Constant<value = int64[0] {}>() cc = Reshape(c, e) y0 = If (cc) <then_branch = t () => (float[2] p) "
        "{ a = Constant<value_ints=[0]>() p = Squeeze(x, a) }, else_branch = e () => (float[q, 2] p) "
        "{ p = Neg(x) }> y1 = Exp(y0) y = ReduceSum<keepdims=0>(y1) }",
        [{"x": np.ones((1, 2), f4)}, {"x": np.ones((3, 2), f4)}]),
    "loop with a count": (
        HEAD + "(float[n] y, float[k, n] s) { " + LOOP + "y, s = Loop (m, c, x) <body = " + BODY +
        "(bool co, float[n] w, float[n] t) { co = Identity(ci) f = Cast<to=1>(i) a = Add(v, f) w = Mul(a, x) "
        "t = Neg(w) }> }",
        [{"x": np.arange(4, dtype=f4) * f4(0.5), **number(5)}, {"x": np.full(2, 0.1, f4), **number(300)}]),
    "loop that makes its value longer": (
        "g (float[n] x) => (float[k] y) { m = Constant<value_int=1000>() " + LOOP + "y = Loop (m, c, x) "
        "<body = b (int64 i, bool ci, float[q] v) => (bool co, float[r] w) { w = Concat<axis=0>(v, x) "
        "s = ReduceSum(w) l = Constant<value_float=20.0>() d = Less(s, l) e = Constant<value = int64[0] {}>() "
        "co = Reshape(d, e) }> }",
        [{"x": np.ones(3, f4)}, {"x": np.ones(25, f4)}]),
    "loop that never runs": (
        HEAD + "(float[n] y) { " + LOOP + "y = Loop (m, c, x) <body = " + BODY +
        "(bool co, float[n] w) { co = Identity(ci) w = Add(v, x) }> }",
        [{"x": np.ones(3, f4), **number(0)}]),
    "loop whose iterations need no stack": (
        HEAD + "(float[n] y) { " + LOOP + "y = Loop (m, c, x) <body = " + BODY +
        "(bool co, float[n] w) { co = Identity(ci) w = Add(v, x) }> }",
        [{"x": np.ones(2, f4), **number(100000)}]),
    "loop whose first iteration gives a value its rank": (
        "g (float[n] x) => (float[k] y, float[j, n] s) { m = Constant<value_int=400>() " + LOOP +
        "none = Constant<value_float=0.0>() y0, a, s = Loop (m, c, none, x) <body = "
        "b (int64 i, bool ci, float[q] u, float[n] v) => (bool co, float[n] w, float[n] z, float[n] t) "
        "{ w = Neg(v) z = Add(v, x) t = Exp(w) l = ReduceSum<keepdims=0>(z) d = Constant<value_float=40.0>() "
        "co = Less(l, d) }> y = Add(y0, a) }",
        [{"x": np.ones(3, f4)}, {"x": np.full(2, 30, f4)}]),
    "loop in a loop": (
        HEAD + "(float[n] y) { " + LOOP + "y = Loop (m, c, x) <body = " + BODY +
        "(bool co, float[n] w) { co = Identity(ci) w = Loop(i, ci, v) <body = d (int64 j, bool cj, float[n] u) "
        "=> (bool ck, float[n] z) { ck = Identity(cj) f = Cast<to=1>(j) h = Cast<to=1>(i) k = Add(f, h) "
        "l = Add(u, k) z = Add(l, x) }> }> }",
        [{"x": np.arange(4, dtype=f4), **COUNT}]),
    "if in a loop": (
        HEAD + "(float[n] y) { " + LOOP + "y = Loop (m, c, x) <body = " + BODY +
        "(bool co, float[n] w) { co = Identity(ci) two = Constant<value_int=2>() r = Mod(i, two) "
        "z = Constant<value_int=0>() e = Equal(r, z) w = If(e) <then_branch = t () => (float[n] p) "
        "{ p = Add(v, x) }, else_branch = o () => (float[n] p) { p = Mul(v, x) }> }> }",
        [{"x": np.arange(4, dtype=f4), **COUNT}]),
    "loop that is written out": (
        "g (float[n] x) => (float[n] y, float[3, n] s) { m = Constant<value_int=3>() " + LOOP +
        "y, s = Loop (m, c, x) <body = " + BODY + "(bool co, float[n] w, float[n] t) { co = Identity(ci) "
        "w = Add(v, x) t = Neg(w) }> }",
        [{"x": np.arange(4, dtype=f4)}]),
    "squeeze of axes that may have one element": (
        "g (float[n, 1, t] x) => (float[a, b] y) { z = Squeeze(x) e = Exp(z) y = Add(e, z) }",
        [{"x": np.ones(s, f4)} for s in ((2, 1, 3), (1, 1, 3), (2, 1, 1), (1, 1, 1))]),
    "squeeze to a scalar that is used": (
        "g (float[n, 1] x, float[3, 2] v) => (float[a, 2] y) { z = Squeeze(x) y = Mul(v, z) }",
        [{"x": np.full((s, 1), 3, f4), "v": np.ones((3, 2), f4)} for s in (1, 2)]),
    "squeeze of equal axes": (
        "g (float[n, n] x) => (float[a, b] y) { z = Squeeze(x) y = Neg(z) }",
        [{"x": np.ones((s, s), f4)} for s in (1, 3)]),
    "squeeze of dequantized integers": (
        "g (uint8[n, 1] x) => (float[a] y) { s = Constant<value_float=0.5>() d = DequantizeLinear(x, s) "
        "z = Squeeze(d) y = Neg(z) }",
        [{"x": np.full((s, 1), 3, "u1")} for s in (1, 3)]),
    "scan": (
        "g (float[n] a, float[t, n] x) => (float[n] y, float[t, n] s) { y, s = Scan<num_scan_inputs=1, "
        "body = b (float[n] u, float[n] v) => (float[n] w, float[n] z) { w = Add(u, v) z = Mul(w, v) }>(a, x) }",
        [{"a": np.ones(3, f4), "x": np.arange(12, dtype=f4).reshape(4, 3)},
         {"a": np.ones(2, f4), "x": np.linspace(0, 1, 100, dtype=f4).reshape(50, 2)}]),
    "scan backwards along another axis": (
        "g (float[n] a, float[n, t] x) => (float[n] y, float[n, t] s) { y, s = Scan<num_scan_inputs=1, "
        "scan_input_axes=[1], scan_input_directions=[1], scan_output_axes=[1], scan_output_directions=[1], "
        "body = b (float[n] u, float[n] v) => (float[n] w, float[n] z) { w = Add(u, v) z = Mul(w, v) }>(a, x) }",
        [{"a": np.ones(3, f4), "x": np.arange(12, dtype=f4).reshape(3, 4)}]),
    "sequence that grows in a loop": (
        HEAD + "(float[k] y) { " + LOOP + "s0 = SequenceEmpty() s = Loop (m, c, s0) <body = "
        "b (int64 i, bool ci, seq(float[q]) v) => (bool co, seq(float[q]) w) { co = Identity(ci) "
        "f = Cast<to=1>(i) a = Add(x, f) w = SequenceInsert(v, a) }> y = ConcatFromSequence<axis=0>(s) }",
        [{"x": np.arange(4, dtype=f4), **COUNT}]),
}  # fmt: skip


def agree(text, feeds, make_model, run_model_once):
    import onnxruntime

    model = make_model(text, 17)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    peer = onnxruntime.InferenceSession(model.SerializeToString(), options)
    ours = run_model_once(model)
    for feed in feeds:
        for have, want in zip(ours(feed), peer.run(None, feed), strict=True):
            assert have.shape == want.shape
            np.testing.assert_allclose(have, want, rtol=1e-5)


@pytest.mark.peer
@pytest.mark.parametrize("name", CASES)
def test_agrees(name, make_model, run_model_once):
    agree(*CASES[name], make_model, run_model_once)


RECURRENT = {
    # attributes and inputs after x, w and r: which are there
    "plain": ("", ""),
    "bias": ("", "b"),
    "reverse": ('direction = "reverse", ', "b"),
    "both directions": ('direction = "bidirectional", ', "b"),
    "lengths": ('direction = "bidirectional", ', "blh"),
    "clip": ("clip = 0.3, ", "bh"),
}
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


@pytest.mark.peer
@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("name", RECURRENT)
def test_recurrent_layers_agree(kind, name, make_model, run_model_once):
    """One compilation serves every length and batch; the hidden size does not fill its blocks of units."""
    import onnxruntime

    attributes, given = RECURRENT[name]
    directions, hidden = (2 if "bidirectional" in attributes else 1), 20
    if kind == "GRU" and name in ("bias", "both directions"):
        attributes += "linear_before_reset = 1, "
    optional = ", ".join(letter if letter in given else "" for letter in "blh")
    text = (
        "g (float[t, n, 6] x, int32[n] l, float[d, n, k] h) => (float[a, b, c, e] y, float[f, i, j] z) { "
        f"y, z = {kind}<{attributes}hidden_size = {hidden}>(x, w, r, {optional}) }}"
    )
    rng = np.random.default_rng(3)
    gates = GATES[kind] * hidden
    shapes = {"w": (gates, 6), "r": (gates, hidden), "b": (2 * gates,)}
    weights = {
        letter: (0.4 * rng.standard_normal((directions, *shape))).astype(f4)
        for letter, shape in shapes.items()
        if letter != "b" or "b" in given
    }
    model = make_model(text, 17, weights)
    sizes = model.graph.input[2].type.tensor_type.shape.dim
    sizes[0].dim_value, sizes[2].dim_value = directions, hidden
    peer = onnxruntime.InferenceSession(model.SerializeToString())
    ours = run_model_once(model)
    for steps, batch in ((7, 1), (3, 5), (1, 4)):
        feed = {
            "x": rng.standard_normal((steps, batch, 6)).astype(f4),
            "l": rng.integers(1, steps + 1, batch).astype("int32"),
            "h": rng.standard_normal((directions, batch, hidden)).astype(f4),
        }
        for have, want in zip(ours(feed), peer.run(None, feed), strict=True):
            assert have.shape == want.shape
            np.testing.assert_allclose(have, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("direct", [True, False])
def test_threads_share_the_steps_of_a_recurrent_layer(kind, direct, make_model):
    """The whole batch in one tile: threads meet after each step, and give the bits of one thread."""
    from relaxvm.inference import InferenceSession

    hidden = 232  # enough for threads; does not fill its blocks of units
    attribute = "linear_before_reset = 1, " if kind == "GRU" and direct else ""
    text = (
        "g (float[t, n, 8] x, int32[n] l) => (float[a, b, c, e] y, float[f, i, j] z) "
        f"{{ y, z = {kind}<{attribute}hidden_size = {hidden}>(x, w, r, b, l) }}"
    )
    rng = np.random.default_rng(5)
    gates = GATES[kind] * hidden
    shapes = {"w": (1, gates, 8), "r": (1, gates, hidden), "b": (1, 2 * gates)}
    weights = {k: (0.1 * rng.standard_normal(s)).astype(f4) for k, s in shapes.items()}
    session = InferenceSession(make_model(text, 17, weights).SerializeToString(), cache_dir="")
    for batch in (1, 4, 5):
        feed = {
            "x": rng.standard_normal((9, batch, 8)).astype(f4),
            "l": rng.integers(1, 10, batch).astype("int32"),
        }
        results = []
        for threads in (1, 2, 5):
            session.num_threads = threads
            results.append(session.run(None, feed))
        for other in results[1:]:
            for have, want in zip(other, results[0], strict=True):
                np.testing.assert_array_equal(have, want)


def test_items_of_a_split_are_of_the_size_one(make_model, run_model_once):
    # As FastSpeech repeats each row by its own duration: the target's length is that of its three parts.
    text = """g (float[n, 4] x, int64[n] times) => (float[m, 4] y) {
        n = Shape<end=1>(x) ones = ConstantOfShape<value = int64[1] {1}>(n)
        rows = SplitToSequence(x, ones) counts = SplitToSequence(times, ones) none = SequenceEmpty<dtype=1>()
        zero = Constant<value_ints=[0]>() end = Squeeze(n, zero) on = Constant<value = bool {1}>()
        list = Loop(end, on, none) <body = b (int64 i, bool c, seq(float[a, 4]) l) => (bool k, seq(float[d, 4]) o) {
            k = Identity(c) row = SequenceAt(rows, i) count = SequenceAt(counts, i)
            four = Constant<value_ints=[4]>() to = Concat<axis=0>(count, four)
            wide = Expand(row, to) o = SequenceInsert(l, wide)
        }>
        y = ConcatFromSequence<axis=0>(list)
    }"""
    run = run_model_once(make_model(text, 17))
    for times in ([2, 1, 3], [1], [4, 4]):
        x = np.random.default_rng(0).standard_normal((len(times), 4), dtype="f4")
        np.testing.assert_array_equal(
            run({"x": x, "times": np.array(times)})[0], np.repeat(x, times, 0)
        )


def test_weights_that_a_loop_hands_on_are_not_looked_at_one_by_one(make_model, monkeypatch):
    import onnx

    from relaxvm.relax.frontend.onnx import from_onnx
    from relaxvm.relax.frontend.onnx.scalars import Scalars

    model = make_model(
        "g (float[n] x, int64 m, float[5000] w) => (float[n] y, float[5000] v) "
        "{ c = Constant<value = bool {1}>() y, v = Loop (m, c, x, w) <body = "
        "b (int64 i, bool ci, float[n] u, float[5000] h) => (bool co, float[n] z, float[5000] g) "
        "{ co = Identity(ci) z = Neg(u) g = Identity(h) }> }"
    )
    del model.graph.input[2]
    weight = np.arange(5000, dtype=f4)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    asked = []
    same = Scalars.same
    monkeypatch.setattr(Scalars, "same", lambda *args: asked.append(1) or same(*args))
    from_onnx(model)
    assert len(asked) < 5000
