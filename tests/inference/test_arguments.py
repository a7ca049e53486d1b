# SPDX-License-Identifier: Apache-2.0
"""What a caller feeds to a session is checked before anything runs."""

import numpy as np
import pytest

from relaxvm._session.arguments import Checker
from relaxvm._session.signature import ModelMetadata, NodeArg, Signature
from relaxvm.inference_errors import InvalidArgument


def checker(*inputs, outputs=("y",), initializers=()):
    return Checker(
        Signature(
            [NodeArg(name, "tensor(float)", shape, "float32") for name, shape in inputs],
            [NodeArg(name, "tensor(float)", [], "float32") for name in outputs],
            list(initializers),
            ModelMetadata({}, "", "", "", "", "", 0),
        )
    )


def zeros(*shape, dtype="f4"):
    return np.zeros(shape, dtype)


def test_takes_arrays_in_the_order_of_the_model():
    a, b = zeros(2), zeros(3)
    got = checker(("a", [None]), ("b", [None])).inputs({"b": b, "a": a})
    assert got[0] is a and got[1] is b


@pytest.mark.parametrize(
    ("feed", "message"),
    [
        ({}, r"no value for the inputs \['x'\]; the inputs are \['x'\]"),
        ({"x": None}, r"no value for the inputs \['x'\]"),
        ({"x": zeros(1, 3), "z": zeros(1)}, r"no input called 'z'; the inputs are \['x'\]"),
        ({"x": zeros(1, 3), "w": zeros(1)}, r"input 'w' is an initializer"),
        ({"x": zeros(3)}, r"'x' must have 2 dimensions \[\?, 3\], got 1: \[3\]"),
        (
            {"x": zeros(1, 4)},
            r"'x' must have shape \[\?, 3\], got \[1, 4\]: dimension 1 is 4, not 3",
        ),
        ({"x": zeros(1, 3, dtype="f8")}, "'x' must have element type float32, got float64"),
        ({"x": object()}, "'x' must be a NumPy array, got object"),
        ([zeros(1, 3)], "input_feed must be a dict from names to arrays, not list"),
    ],
)
def test_says_what_is_wrong_with_a_feed(feed, message):
    with pytest.raises(InvalidArgument, match=message):
        checker(("x", [None, 3]), initializers=["w"]).inputs(feed)


def test_equal_names_are_equal_sizes():
    both = checker(("a", ["n", 2]), ("b", ["n"]))
    with pytest.raises(
        InvalidArgument, match="dimension 0 of input 'b' is 4, but 'n' is 3 already"
    ):
        both.inputs({"a": zeros(3, 2), "b": zeros(4)})


@pytest.mark.parametrize("anonymous", [None, "", "?"])
def test_anonymous_dimensions_are_free(anonymous):
    both = checker(("a", [anonymous]), ("b", [anonymous]))
    assert len(both.inputs({"a": zeros(3), "b": zeros(4)})) == 2


def test_a_scalar_may_be_an_array_of_one_element(session):
    s = session("g (float[n] x, int64 k) => (float[n] y) { f = Cast<to=1>(k) y = Mul(x, f) }")
    (y,) = s.run(None, {"x": np.float32([1, 2]), "k": np.array([3])})
    np.testing.assert_array_equal(y, [3, 6])
    with pytest.raises(InvalidArgument, match="0 dimensions"):
        s.run(None, {"x": np.float32([1, 2]), "k": np.array([3, 4])})


def test_takes_memory_maps_and_other_arrays_of_a_class_of_their_own(session, tmp_path):
    s = session("g (float[n, 2] x) => (float[n, 2] y) { y = Neg(x) }")
    x = np.arange(6, dtype="f4").reshape(3, 2)
    np.save(tmp_path / "x.npy", x)
    for same in (np.load(tmp_path / "x.npy", mmap_mode="r"), np.ma.array(x)):
        (y,) = s.run(None, {"x": same})
        assert type(y) is np.ndarray
        np.testing.assert_array_equal(y, -x)


def test_takes_lists_scalars_and_foreign_byte_order():
    got = checker(("a", [None]), ("b", [])).inputs({"a": zeros(2, dtype=">f4"), "b": np.float32(3)})
    assert [a.dtype for a in got] == [np.dtype("f4")] * 2
    assert checker(("a", [None])).inputs({"a": [1.0, 2.0]})[0].dtype == np.float32


@pytest.mark.parametrize("names", [None, []])
def test_no_names_are_all_outputs(names):
    assert checker(("x", []), outputs=("p", "q")).outputs(names) == [0, 1]


def test_outputs_come_in_the_order_asked_for():
    assert checker(("x", []), outputs=("p", "q")).outputs(["q", "p", "q"]) == [1, 0, 1]


@pytest.mark.parametrize(
    ("names", "message"), [(["z"], "no output called 'z'"), ("p", "list of names")]
)
def test_says_what_is_wrong_with_output_names(names, message):
    with pytest.raises(InvalidArgument, match=message):
        checker(("x", []), outputs=("p", "q")).outputs(names)
