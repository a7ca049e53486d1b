# SPDX-License-Identifier: Apache-2.0
"""Inputs that a model does not allow are refused while running; those beside them are not."""

import numpy as np
import pytest

INTS = "s = Constant<value_ints=[{}]>()"
SCAN = (
    "z = Constant<value_float=0.0>() t, y = Scan<num_scan_inputs=2, body = body"
    " (float a, float p, float q) => (float b, float o) { b = Add(a, p) o = Mul(b, q) }>(z, x, w)"
)


def of_sizes(*sizes):
    return [{"x": np.arange(n, dtype="f4")} for n in sizes]


def with_axes(*axes):
    x = np.arange(6, dtype="f4").reshape(2, 3)
    return [{"x": x, "a": np.array([axis])} for axis in axes]


def of_two_sizes(*sizes):
    return [{"x": np.ones(a, "f4"), "w": np.ones(b, "f4")} for a, b in sizes]


@pytest.mark.parametrize(
    ("signature", "body", "good", "bad"),
    [
        ("(float[n] x) => (float[a] y)", "s = Constant<value_int=2>() y = Gather(x, s)",
         of_sizes(3, 5), of_sizes(2, 0)),
        ("(float[n] x) => (float[a] y)", INTS.format("1, -3") + " y = Gather(x, s)",
         of_sizes(3, 5), of_sizes(2, 0)),
        ("(float[n] x) => (float[a] y, int64[a] i)", INTS.format(3) + " y, i = TopK(x, s)",
         of_sizes(3, 5), of_sizes(2, 0)),
        ("(float[n] x, int64[1] a) => (float[k] y, int64[k] i)", "y, i = TopK(x, a)",
         [{"x": np.ones(3, "f4"), "a": np.array([n])} for n in (0, 3)],
         [{"x": np.ones(3, "f4"), "a": np.array([n])} for n in (4, 9)]),
        ("(float[n] x) => (float[a] y)", INTS.format("2, 3") + " y, z = Split(x, s)",
         of_sizes(5), of_sizes(4, 6, 0)),
        ("(float[n] x) => (float[a] y)", "y, z, w = Split<num_outputs=3>(x)",
         of_sizes(3, 5), of_sizes(1)),
        ("(float[n, m] x, int64[1] a) => (float[k] y)", "y = ReduceSum<keepdims=0>(x, a)",
         with_axes(0, -1), with_axes(2, -3)),
        ("(float[n, m] x, int64[1] a) => (float[k, l, m] y)", "y = Unsqueeze(x, a)",
         with_axes(2, -3), with_axes(3, -4)),
        ("(float[n, m] x, int64[1] a) => (float[k, l] y)",
         INTS.format(1) + " e = Constant<value_ints=[2]>() y = Slice(x, s, e, a)",
         with_axes(0, -1), with_axes(2, -3)),
        ("(float[n] x) => (float[k, l] y)",
         "t = Squeeze(x) v = Transpose<perm=[0]>(t) k = Constant<value_ints=[2, -1]>()"
         " y = Reshape(v, k)", of_sizes(4, 6), of_sizes(1)),
        ("(float[n] x, float[m] w) => (float t, float[k] y)", SCAN,
         of_two_sizes((3, 3), (1, 1)), of_two_sizes((3, 2), (2, 3), (1, 0), (0, 0))),
    ],
)  # fmt: skip
def test_what_a_node_does_not_take(signature, body, good, bad, make_model, run_model_once):
    run = run_model_once(make_model(f"g {signature} {{ {body} }}"))
    for feed in good:
        run(feed)
    for feed in bad:
        with pytest.raises(RuntimeError, match="match_cast"):
            run(feed)


def test_parts_of_equal_size_before_the_last_could_be_smaller(make_model, run_model_once):
    model = make_model("g (float[n] x) => (float[a] y) { y, z = Split(x) }", 17)
    run = run_model_once(model)
    np.testing.assert_array_equal(run({"x": np.float32([1, 2, 3, 4])})[0], [1, 2])
    with pytest.raises(RuntimeError, match="Split.*expected to be 6, but it is 5"):
        run({"x": np.zeros(5, "f4")})


@pytest.mark.parametrize(
    ("signature", "body", "good", "bad", "message"),
    [
        ("(float[n] x, int64[1] a) => (float[k] y, int64[k] i)", "y, i = TopK(x, a)", [0], [-2],
         "TopK.*match_cast of 'k_must_not_be_negative'.* but it is -2"),
        ("(float[n] x, int64[2] a) => (float[k] y)", "y, z = Split(x, a)", [2, 1], [-1, 4],
         "Split.*match_cast of 'split_must_not_be_negative'.* but it is -1"),
        ("(float[n] x, int64[1] a) => (float[k] y)", "y = ConstantOfShape(a)", [0], [-3],
         "ConstantOfShape.*match_cast of 'shape_must_not_be_negative'.* but it is -3"),
    ],
)  # fmt: skip
def test_sizes_from_data_are_not_negative(
    signature, body, good, bad, message, make_model, run_model_once
):
    run = run_model_once(make_model(f"g {signature} {{ {body} }}", 17))
    x = np.arange(3, dtype="f4")
    (y, *_) = run({"x": x, "a": np.array(good)})
    assert y.shape == (good[0],)
    with pytest.raises(RuntimeError, match=message):
        run({"x": x, "a": np.array(bad)})


def test_a_loop_of_a_negative_number_of_rounds_has_none(make_model, run_model_once):
    model = make_model(
        "g (float[n] x, int64 m) => (float[n] y) { y = Loop<body = body (int64 i, bool go, float[n] a)"
        " => (bool on, float[n] b) { on = Identity(go) b = Add(a, a) }>(m, , x) }"
    )
    run, x = run_model_once(model), np.float32([1, 2])
    for rounds, factor in ((-5, 1), (0, 1), (2, 4)):
        np.testing.assert_array_equal(run({"x": x, "m": np.array(rounds)})[0], x * factor)


@pytest.mark.parametrize("size", [1, 2, 3, 7])
@pytest.mark.parametrize("known", [True, False])
def test_a_border_that_wraps_may_be_longer_than_its_axis(size, known, make_model, run_model_once):
    n = size if known else "n"
    model = make_model(
        f"g (float[{n}, 2] x) => (float[m, 5] y) {{"
        ' p = Constant<value_ints=[6, 0, 3, 3]>() y = Pad<mode="wrap">(x, p) }'
    )
    x = np.arange(2 * size, dtype="f4").reshape(size, 2)
    (y,) = run_model_once(model)({"x": x})
    np.testing.assert_array_equal(y, np.pad(x, [(6, 3), (0, 3)], mode="wrap"))
