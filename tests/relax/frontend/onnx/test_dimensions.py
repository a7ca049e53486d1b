# SPDX-License-Identifier: Apache-2.0
"""Dimensions of inputs: equal real names are one variable, anonymous ones new at each place."""

import pytest
from onnx import TensorProto, helper

from relaxvm.relax.frontend.onnx import InvalidModel, UnsupportedModel, from_onnx


def imported(shapes, **options):
    """The shapes of the parameters of a model with inputs of these shapes."""
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items()]
    nodes = [helper.make_node("Exp", [n], [n + "_y"]) for n in shapes]
    outputs = [helper.make_tensor_value_info(n + "_y", TensorProto.FLOAT, None) for n in shapes]
    model = helper.make_model(helper.make_graph(nodes, "g", infos, outputs))
    return [list(p.ty.shape.values) for p in from_onnx(model, **options)["main"].params]


def test_equal_names_are_one_variable():
    (a,), (b,) = imported({"x": ["n"], "y": ["n"]})
    assert a.same_as(b)


@pytest.mark.parametrize("anonymous", ["", "?", None, -1])
def test_anonymous_dimensions_differ_at_each_place(anonymous):
    (a, b), (c,) = imported({"x": [anonymous, anonymous], "y": [anonymous]})
    assert not a.same_as(b) and not a.same_as(c) and not b.same_as(c)


def test_different_names_stay_different_when_they_are_written_alike():
    ((a, b),) = imported({"x": ["a.b", "a_b"]})
    assert not a.same_as(b) and str(a) != str(b)


def test_numbers_stay_numbers():
    ((a, b),) = imported({"x": [3, 0]})
    assert (a.value, b.value) == (3, 0)


def test_shape_dict_replaces_dimensions():
    (a, b), (c,) = imported({"x": ["n", "m"], "y": ["n"]}, shape_dict={"x": [2, "k"]})
    assert a.value == 2 and str(b) == "k" and str(c) == "n"


@pytest.mark.parametrize(
    ("shapes", "message"),
    [({"z": [1]}, "has no input 'z'"), ({"x": [1.5]}, "a dimension is an int")],
)
def test_says_what_is_wrong_with_shape_dict(shapes, message):
    with pytest.raises(InvalidModel, match=message):
        imported({"x": ["n"]}, shape_dict=shapes)


def test_unknown_rank_asks_for_a_shape():
    info = helper.make_tensor_value_info("x", TensorProto.FLOAT, None)
    node = helper.make_node("Exp", ["x"], ["y"])
    model = helper.make_model(
        helper.make_graph([node], "g", [info], [helper.make_tensor_value_info("y", 1, None)])
    )
    with pytest.raises(UnsupportedModel, match="give its shape in shape_dict"):
        from_onnx(model)
