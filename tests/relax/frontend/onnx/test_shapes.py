# SPDX-License-Identifier: Apache-2.0
"""The model's own shape arithmetic becomes expressions; no tensor is made for it."""

import numpy as np
import pytest

TENSORS = ("shape_to_tensor", "tensor_to_shape", "shape_of", "take", "concat")


@pytest.mark.parametrize(
    ("body", "shape"),
    [
        ("s = Shape(x) z = Reshape(x, s)", "(n, m)"),
        ("s = Shape(x) i = Constant<value = int64[1] {0}>() d = Gather(s, i) "
         "k = Constant<value = int64[1] {-1}>() t = Concat<axis=0>(d, k) z = Reshape(x, t)", "(n, m)"),
        ("s = Shape(x) i = Constant<value_int = 1>() d = Gather(s, i) e = Constant<value_int = 2>() "
         "h = Mul(d, e) a = Constant<value = int64[1] {0}>() u = Unsqueeze(h, a) z = Expand(o, u)",
         "(m * 2,)"),
        ("s = Shape<start=1>(x) f = Cast<to=1>(s) c = Constant<value_float = 0.5>() h = Mul(f, c) "
         "r = Floor(h) q = Cast<to=7>(r) z = Expand(o, q)", "(m // 2,)"),
        ("s = Shape<start=1>(x) f = Cast<to=1>(s) c = Constant<value_float = 0.5>() h = Mul(f, c) "
         "r = Ceil(h) q = Cast<to=7>(r) z = Expand(o, q)", "((m + 1) // 2,)"),
        ("s = Shape<start=1>(x) f = Cast<to=1>(s) c = Constant<value_float = 3.0>() h = Sub(f, c) "
         "l = Constant<value_float = 0.0>() r = Clip(h, l) q = Cast<to=7>(r) z = Expand(o, q)",
         "(T.max(m + -3, 0),)"),
        ("s = Shape<start=1>(x) l = Constant<value_int = 2>() u = Constant<value_int = 5>() "
         "r = Clip(s, l, u) z = Expand(o, r)", "(T.min(T.max(m, 2), 5),)"),
        ("s = Shape<start=1>(x) c = Constant<value = int64[1] {4}>() h = Sub(s, c) r = Relu(h) "
         "z = Expand(o, r)", "(T.max(m - 4, 0),)"),
        ("s = Shape<start=1>(x) f = Cast<to=1>(s) a = Constant<value = float[1] {9.0}>() b = Sqrt(a) "
         "h = Max(f, b) q = Cast<to=7>(h) z = Expand(o, q)", "(T.max(m, 3),)"),
        ("s = Size(x) a = Constant<value = int64[1] {0}>() u = Unsqueeze(s, a) z = Expand(o, u)",
         "(n * m,)"),
        ("s = Shape(x) p = ReduceProd<keepdims=1>(s) z = Expand(o, p)", "(n * m,)"),
    ],
)  # fmt: skip
def test_becomes_an_expression(import_text, body, shape):
    script = import_text(f"g (float[n, m] x, float[1] o) => (float[k] y) {{ {body} y = Exp(z) }}")
    assert f"R.Tensor({shape}" in script
    assert not any(name in script for name in TENSORS)


def test_padding_that_is_computed_from_known_sizes_is_a_constant(import_text):
    """TensorFlow's padding, computed in floating point from sizes that are known."""
    script = import_text(
        """g (float[n, 1, 15, 15] x, float[2, 1, 3, 3] w) => (float[n, 2, h, v] y) {
        s = Shape<start=2, end=3>(x) f = Cast<to=1>(s) two = Constant<value_float = 2.0>()
        d = Div(f, two) c = Ceil(d) one = Constant<value_float = 1.0>() e = Sub(c, one)
        m = Mul(e, two) three = Constant<value_float = 3.0>() a = Add(m, three) b = Sub(a, f)
        zero = Constant<value_float = 0.0>() p = Clip(b, zero) q = Cast<to=7>(p)
        none = Constant<value = int64[3] {0, 0, 0}>() pads = Concat<axis=0>(none, q, none, q)
        wide = Pad(x, pads) y = Conv<strides=[2, 2]>(wide, w) }"""
    )
    assert "pad_width=[0, 0, 0, 0, 0, 0, 2, 2]" in script
    assert not any(name in script for name in (*TENSORS, "ceil", "clip"))


def test_where_of_a_shape_that_is_never_negative(import_text):
    """What PyTorch writes for expand(-1, ...)."""
    script = import_text(
        "g (float[n, m] x) => (float[a, b] y) {"
        " s = Shape(x) c = Constant<value_int = -1>() e = Equal(s, c)"
        " k = Constant<value = int64[2] {1, 1}>() w = Where(e, k, s) z = Reshape(x, w) y = Exp(z) }"
    )
    assert "R.Tensor((n, m)" in script and not any(name in script for name in TENSORS)


HALVED = """g (float[n, 4, h] x) => (float[a, b, c, d] y) {
    first = Constant<value_ints = [0]>() end = Constant<value_ints = [9223372036854775807]>()
    axis = Constant<value_ints = [2]>() one = Constant<value_ints = [1]>() two = Constant<value_ints = [2]>()
    z = Slice(x, first, end, axis, two)
    h = Shape<start = 2>(x) less = Sub(h, one) half = Div(less, two) size = Add(half, one)
    n = Shape<start = 0, end = 1>(x) shape = Concat<axis = 0>(n, two, two, size) y = Reshape<allowzero = 1>(z, shape)
}"""


def test_a_size_that_is_divided_towards_zero_is_that_of_the_input(
    import_text, make_model, run_model_once
):
    """What PyTorch writes for the size of what it has cut or convolved; another one only where nothing is left."""
    assert "R.Tensor((n, 2, 2, (h + 1) // 2)" in import_text(HALVED)
    run = run_model_once(make_model(HALVED, 17))
    for h in (1, 2, 5, 8):
        x = np.arange(8 * h, dtype="f4").reshape(2, 4, h)
        np.testing.assert_array_equal(run({"x": x})[0], x[:, :, ::2].reshape(2, 2, 2, -1))


def test_what_depends_on_data_is_read_while_running(import_text):
    script = import_text(
        "g (float[n] x, int64[1] k) => (float[m] y) { z = Expand(x, k) y = Exp(z) }"
    )
    assert "tensor_to_shape" in script


def test_a_needed_relation_is_checked_at_run_time(import_text):
    script = import_text("g (float[n] a, float[m] b) => (float[k] y) { y = Add(a, b) }")
    assert "match_cast" in script


@pytest.mark.parametrize("use", ["y = Div(x, z)", "y = Div(z, x)", "k = Shape(x) y = Expand(z, k)"])
@pytest.mark.parametrize("size", [0, 1, 5])
def test_the_last_element_of_an_axis_goes_with_all_of_them(size, use, make_model, run_model_once):
    text = (
        "g (float[b, n] x) => (float[b, m] y) {"
        " a = Constant<value_ints=[-1]>() e = Constant<value_ints=[9223372036854775807]>()"
        f" i = Constant<value_ints=[1]>() z = Slice(x, a, e, i) {use} }}"
    )
    x = np.arange(1, 2 * size + 1, dtype="f4").reshape(2, size)
    last = x[:, -1:]
    want = {"Div(x, z)": x / last, "Div(z, x)": last / x}.get(use[4:], 0 * x + last)
    (y,) = run_model_once(make_model(text))({"x": x})
    np.testing.assert_allclose(y, want, rtol=1e-6)


def test_no_check_where_names_are_equal(import_text):
    script = import_text("g (float[n] a, float[n] b) => (float[n] y) { y = Add(a, b) }")
    assert "match_cast" not in script


@pytest.mark.parametrize("size", [0, 1, 2, 5])
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("pads", [(-3, 4), (4, -3), (-1, 1)])
def test_removed_elements_that_are_not_there_come_off_the_other_side(
    size, known, pads, make_model, run_model_once
):
    n = size if known else "n"
    text = f"g (float[{n}] x) => (float[m] y) {{ p = Constant<value_ints=[{pads[0]},{pads[1]}]>() y = Pad(x, p) }}"
    x = np.arange(1, size + 1, dtype="f4")
    total = max(size + sum(pads), 0)
    want = [x[i - pads[0]] if 0 <= i - pads[0] < size else 0 for i in range(total)]
    (y,) = run_model_once(make_model(text))({"x": x})
    np.testing.assert_array_equal(y, np.float32(want))


WITH_LOOP = (
    "t = Constant<value = bool {1}>() k = Constant<value_int=3>() y = Loop<body = body"
    " (int64 i, bool c, float[d, 3] s) => (bool c2, float[e, 3] s2)"
    " { c2 = Identity(c) q = Add(x, z) s2 = Add(s, q) }>(k, t, x)"
)
WITH_IF = (
    "s = ReduceSum<keepdims=0>(x) f = Constant<value_float=0.0>() l = Less(s, f)"
    " y = If<then_branch = then () => (float[k, 3] u) { u = Sub(x, z) },"
    " else_branch = other () => (float[k, 3] v) { v = Mul(z, x) }>(l)"
)
TO_THREE = "c = Constant<value_ints=[3]>() e = Expand(x, c) y = Sub(e, z)"


@pytest.mark.parametrize(
    ("x", "z", "body", "want"),
    [
        ("a", "b", "y = Add(x, z)", lambda x, z: x + z),
        ("a", "b", "s = Shape(z) y = Expand(x, s)", lambda x, z: x + 0 * z),
        ("a", "b", "s = Shape(z) i = Cast<to=1>(s) j = Cast<to=7>(i) y = Expand(x, j)",
         lambda x, z: x + 0 * z),
        ("a", "3", TO_THREE, lambda x, z: x - z),
        ("a", "3", "y = Sub(x, z)", lambda x, z: x - z),
        ("a p", "b q", "e = Exp(x) s = Add(e, z) t = Mul(x, s) y = Sub(t, z)",
         lambda x, z: x * (np.exp(x) + z) - z),
        ("a 3", "b 3", "r = Relu(z) d = Add(x, x) y = Max(d, r, x)",
         lambda x, z: np.maximum(np.maximum(x + x, x), np.maximum(z, 0))),
        ("a 3 2", "b 2 4", "y = MatMul(x, z)", lambda x, z: x @ z),
        ("a 3", "b 3", WITH_LOOP, lambda x, z: x + 3 * (x + z)),
        ("a 3", "b 3", WITH_IF, lambda x, z: x - z if x.sum() < 0 else x * z),
    ],
)  # fmt: skip
def test_a_size_that_is_1_while_running_broadcasts(x, z, body, want, make_model, run_model_once):
    x, z = x.split(), z.split()
    result = ", ".join("uvw"[: len(x)])
    text = (
        f"g (float[{', '.join(x)}] x, float[{', '.join(z)}] z) => (float[{result}] y) {{ {body} }}"
    )
    run, rng = run_model_once(make_model(text)), np.random.default_rng(0)
    for a, b in [(3, 3), (3, 1), (1, 3), (1, 1), (0, 1), (1, 0)]:
        if z == ["3"] and a == 0:
            continue
        sizes = {"a": a, "b": b, "p": b, "q": a}
        feed = [rng.standard_normal([int(sizes.get(d, d)) for d in s]).astype("f4") for s in (x, z)]
        (y,) = run(dict(zip("xz", feed)))
        np.testing.assert_allclose(y, want(*feed), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("x", [["a", "3"], ["3", "a"]])
def test_an_operand_with_fewer_dimensions_takes_the_sizes_of_the_other(
    x, make_model, run_model_once
):
    """A mask of one batch goes with scores of several; what makes these stays fused with the sum."""
    z = ["1" if d == "3" else "b" for d in x]
    text = f"g (float[{', '.join(x)}] x, float[{', '.join(z)}] z) => (float[k, l] y) {{ y = Add(x, z) }}"
    run = run_model_once(make_model(text))
    shape = lambda dims, size: [int(d) if d.isdigit() else size for d in dims]
    for b in (5, 1):
        feed = {"x": np.ones(shape(x, 5), "f4"), "z": np.full(shape(z, b), 2, "f4")}
        np.testing.assert_array_equal(run(feed)[0], feed["x"] + feed["z"])


def test_the_first_row_of_another_tensor_broadcasts(make_model, run_model_once):
    """What PyTorch writes for index_add: the shape of zeros[0:1], whose first size is min(n, 1)."""
    run = run_model_once(
        make_model("""g (float[n, 2] x, float[m, 2] z) => (float[a, 2] y, float[b, 2] u) {
        zero = Constant<value = int64[1] {0}>() one = Constant<value = int64[1] {1}>()
        r = Slice(x, zero, one) s = Shape(r) y = Expand(z, s) u = Add(r, z) }""")
    )
    for n, m in [(5, 3), (1, 3), (5, 1), (1, 1)]:
        x, z = np.arange(2 * n, dtype="f4").reshape(n, 2), np.ones((m, 2), "f4")
        y, u = run({"x": x, "z": z})
        np.testing.assert_array_equal(y, z)
        np.testing.assert_array_equal(u, x[:1] + z)


def test_sizes_that_do_not_broadcast_are_refused_while_running(make_model, run_model_once):
    run = run_model_once(make_model("g (float[a] x, float[b] z) => (float[c] y) { y = Add(x, z) }"))
    with pytest.raises(RuntimeError, match="node that makes 'y' .Add.*to be 3, but it is 4"):
        run({"x": np.ones(3, "f4"), "z": np.ones(4, "f4")})


def test_the_depth_of_a_recurrent_layer_is_that_of_its_weights(make_model):
    """The product with a matrix of known sizes has a kernel for them."""
    from relaxvm.relax.frontend.onnx import from_onnx

    weights = {"w": np.ones((1, 16, 5), "f4"), "r": np.ones((1, 16, 4), "f4")}
    text = "g (float[t, n, d] x) => (float[t, 1, n, 4] y) { y = LSTM<hidden_size=4>(x, w, r) }"
    script = from_onnx(make_model(text, initializers=weights))["main"].script()
    assert 'R.Tensor((t, n, 5), dtype="float32")' in script
