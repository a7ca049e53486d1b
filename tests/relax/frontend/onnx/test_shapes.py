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
        ("s = Size(x) a = Constant<value = int64[1] {0}>() u = Unsqueeze(s, a) z = Expand(o, u)",
         "(n * m,)"),
        ("s = Shape(x) p = ReduceProd<keepdims=1>(s) z = Expand(o, p)", "(n * m,)"),
    ],
)  # fmt: skip
def test_becomes_an_expression(import_text, body, shape):
    script = import_text(f"g (float[n, m] x, float[1] o) => (float[k] y) {{ {body} y = Exp(z) }}")
    assert f"R.Tensor({shape}" in script
    assert not any(name in script for name in TENSORS)


def test_where_of_a_shape_that_is_never_negative(import_text):
    """What PyTorch writes for expand(-1, ...)."""
    script = import_text(
        "g (float[n, m] x) => (float[a, b] y) {"
        " s = Shape(x) c = Constant<value_int = -1>() e = Equal(s, c)"
        " k = Constant<value = int64[2] {1, 1}>() w = Where(e, k, s) z = Reshape(x, w) y = Exp(z) }"
    )
    assert "R.Tensor((n, m)" in script and not any(name in script for name in TENSORS)


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
