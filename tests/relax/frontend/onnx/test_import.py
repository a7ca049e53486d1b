# SPDX-License-Identifier: Apache-2.0
"""Walking a graph: names, places, what is missing, what is optional."""

import re

import numpy as np
import pytest
from onnx import TensorProto, helper

from relaxvm.relax.frontend.onnx import InvalidModel, UnsupportedModel, from_onnx, registry
from relaxvm.relax.transform import DeadCodeElimination, FuseAttention


def test_unsupported_operators_are_reported_together(make_model):
    model = make_model(
        "g (float[n] x) => (float[n] y) { a = Foo(x) b = Bar(a) c = Foo(b) d = Exp(c) y = Baz(d) }"
    )
    model.graph.node[0].name = "first"
    model.graph.node[2].name = "third"
    with pytest.raises(UnsupportedModel) as e:
        from_onnx(model)
    text = str(e.value)
    assert "3 operators of this model cannot be imported" in text
    assert "Foo (opset 21): 2 nodes: 'first', 'third'" in text
    assert "Bar (opset 21): 1 node: '-> b'" in text and "Baz" in text


def test_nodes_that_no_output_needs_are_left_out(import_text):
    script = import_text("g (float[n] x) => (float[n] y) { a = Foo(x) y = Exp(x) }")
    assert "exp" in script


def test_nodes_may_stand_before_what_they_read(import_text):
    script = import_text(
        "g (float[n] x) => (float[n] y) { y = Add(b, c) b = Exp(a) c = Neg(b) a = Sqrt(x) }"
    )
    assert re.findall(r"R\.(exp|negative|sqrt|add)", script) == ["sqrt", "exp", "negative", "add"]


@pytest.mark.parametrize(("exponent", "products"), [(2, 1), (3, 2)])
def test_small_powers_are_products(import_text, exponent, products):
    graph = f"g (float[n, 4] x) => (float[n, 4] y) {{ e = Constant<value_float={exponent}.0>() y = Pow(x, e) }}"
    text = import_text(graph)
    assert text.count("R.multiply(") == products and "R.power" not in text


@pytest.mark.parametrize("mask", ["float", "bool"])
def test_attention_with_a_mask_is_found(make_model, mask):
    model = make_model(
        f"g (float[n, 2, s, 8] q, float[n, 2, t, 8] k, float[n, 2, t, 8] v, {mask}[s, t] m) => (float[n, 2, s, 8] y) "
        "{ y = Attention(q, k, v, m) }",
        opset=23,
    )
    text = DeadCodeElimination()(FuseAttention()(from_onnx(model))).script()
    assert "R.nn.attention_bias(" in text and "R.nn.softmax" not in text


def test_errors_name_the_node(make_model):
    model = make_model("g (float[2, 3] x) => (float[2, 3] y) { y = MatMul(x, x) }")
    model.graph.node[0].name = "product"
    with pytest.raises(InvalidModel, match=r"node 'product' \(MatMul\): "):
        from_onnx(model)


def test_bindings_carry_the_name_of_their_node(make_model):
    model = make_model("g (float[n] x) => (float[n] y) { a = HardSwish(x) y = Exp(a) }")
    model.graph.node[0].name, model.graph.node[1].name = "swish", "last"
    bindings = from_onnx(model)["main"].body.blocks[0].bindings
    names = {str(b.value.span.source_name) for b in bindings if b.value.span is not None}
    assert names == {"node 'swish' (HardSwish)", "node 'last' (Exp)"}
    assert all(b.span is not None for b in bindings[:-1])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("g (float[n] x) => (float[n] y) { y = Exp(z) }", "its input 'z' is made by no earlier node"),
        ("g (float[n] x) => (float[n] z) { y = Exp(x) }", "no node makes the output 'z'"),
        ("g (float[n] x) => (float[n] x2) { x = Exp(x) x2 = Exp(x) }", "its output 'x' exists already"),
        ("g (float[n] x) => (float[n] y) { y = Exp(x, x) }", "2 inputs, at most 1"),
        ("g (float[n] x) => (float[n] y) { y = Add(x) }", r"input 1 \('b'\) is required"),
        ("g (float[n] x) => (float[n] y) { y = Exp<depth = 3>(x) }", "attribute 'depth' is unknown"),
        ("g (float[n] x) => (float[n] y) { y = Softmax<axis = 1.5>(x) }", "'axis' must be of type INT"),
        ("g (float[n] x) => (float[n] y) { y = Concat(x, x) }", "attribute 'axis' is required"),
        ("g (float[n] x) => (float[n] y) { y = ArgMax<axis = 4>(x) }", "axis 4 is out of range"),
        ("g (float[2] x) => (float[5] y) { s = Constant<value = int64[1] {5}>() y = Reshape(x, s) }",
         r"shape \[2\] cannot have shape \[5\]"),
        ("g (float[0, 3] x) => (float[a, b] y) { s = Constant<value_ints = [0, -1]>() y = Reshape(x, s) }",
         r"shape \[0, -1\] has a 0 beside the -1.*give a number"),
        ("g (float[n] x) => (float[a] y, int64[a] i) { k = Constant<value_ints = [-1]>() y, i = TopK(x, k) }",
         "TopK.*k is -1, but it is a number of elements: give 0 or more"),
        ("g (float[6] x) => (float[a] y) { s = Constant<value_ints = [-1, 7]>() y, z = Split(x, s) }",
         r"Split.*the parts \[-1, 7\] are numbers of elements: give 0 or more for each"),
        ("g (float a, float[0] x) => (float y) { y = Scan<num_scan_inputs = 1, body = body (float p, float q)"
         " => (float r) { r = Add(p, q) }>(a, x) }", "Scan.*no elements to scan; give them 1 or more"),
        ("g (float[2] x) => (float[n] y) { y = SequenceConstruct(x) }", "is a sequence, not the tensor"),
        ("g (float[2] x) => (float[2] y) { y = Cast<to=1000>(x) }", r"node that makes 'y' .Cast.*1000"),
        ("g (float[n] x) => (int64[1] y) { s = Shape(x) y = Cast<to=1000>(s) }", r"node that makes 'y' .Cast.*1000"),
        ("g (float[2] x, float[3] z) => (float[n] y) { y = Add(x, z) }", "do not agree"),
        ("g (float[1, 1, 0, 4] x) => (float[a, b, c, d] y) { s = Constant<value = int64[4] {1, 1, 3, 4}>() "
         "y = Resize<mode = \"cubic\">(x, , , s) }", "axis 2 has no elements to make 3 of"),
    ],
)  # fmt: skip
def test_broken_models_say_what_is_wrong(make_model, text, message):
    with pytest.raises((InvalidModel, UnsupportedModel), match=message):
        from_onnx(make_model(text))


def test_unknown_domain_is_named(make_model):
    model = make_model("g (float[n] x) => (float[n] y) { y = Exp(x) }")
    model.graph.node[0].domain = "acme"
    with pytest.raises(InvalidModel, match="its domain 'acme' is not in the model's opset_import"):
        from_onnx(model)


def test_initializers_that_are_inputs_too_are_no_parameters(make_model):
    model = make_model(
        "g (float[n] x, float[1] w) => (float[n] y) { y = Add(x, w) }",
        initializers={"w": np.float32([2])},
    )
    assert [p.name_hint for p in from_onnx(model)["main"].params] == ["x"]


def test_weights_may_stay_parameters(make_model):
    model = make_model(
        "g (float[n] x) => (float[n] y) { y = Add(x, w) }", initializers={"w": np.float32([2])}
    )
    main = from_onnx(model, keep_params_in_input=True)["main"]
    assert [p.name_hint for p in main.params] == ["x", "w"]
    assert main.attrs["num_input"] == 1
    np.testing.assert_array_equal(main.attrs["params"][0].numpy(), np.float32([2]))


def test_two_initializers_of_one_name_are_refused(make_model):
    model = make_model(
        "g (float[n] x) => (float[n] y) { y = Add(x, w) }", initializers={"w": np.float32([2])}
    )
    model.graph.initializer.append(model.graph.initializer[0])
    with pytest.raises(InvalidModel, match="initializer 'w' is there twice"):
        from_onnx(model)


def test_names_become_identifiers(make_model):
    model = make_model("g (float[n] x) => (float[n] y) { y = Exp(x) }")
    model.graph.input[0].name = model.graph.node[0].input[0] = "1/a.b:0"
    assert from_onnx(model)["main"].params[0].name_hint == "input_1_a_b_0"
    assert from_onnx(model, sanitize_input_names=False)["main"].params[0].name_hint == "1/a.b:0"


def test_local_functions_are_expanded():
    exp = helper.make_node("Exp", ["a"], ["b"])
    twice = helper.make_function(
        "mine", "Twice", ["a"], ["c"], [exp, helper.make_node("Add", ["b", "b"], ["c"])],
        [helper.make_opsetid("", 21)],
    )  # fmt: skip
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n"]) for n in "xy"]
    graph = helper.make_graph(
        [helper.make_node("Twice", ["x"], ["y"], domain="mine")], "g", info[:1], info[1:]
    )
    model = helper.make_model(
        graph, functions=[twice],
        opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("mine", 1)],
    )  # fmt: skip
    script = from_onnx(model)["main"].script()
    assert "R.exp" in script and "R.add" in script


def test_newest_rule_that_is_not_too_new_is_taken():
    assert registry.find("", "Softmax", 12).function.__name__ == "softmax_1"
    assert registry.find("", "Softmax", 13).function.__name__ == "softmax"
    assert registry.find("", "HardSwish", 13) is None
    assert registry.find("ai.onnx", "Exp", 21) is registry.find("", "Exp", 21)


def test_every_rule_has_a_name_that_onnx_knows():
    """Misspelled names would never be found."""
    from onnx import defs

    # ONNX Runtime puts the last one into the empty domain.
    older = {"Upsample", "Scatter", "SimplifiedLayerNormalization"}
    known = {s.name for s in defs.get_all_schemas()} | older
    assert {r.name for r in registry.all_rules() if not r.domain} <= known


def test_one_output_is_a_tensor_and_several_are_a_tuple(import_text):
    assert "-> R.Tensor" in import_text("g (float[n] x) => (float[n] y) { y = Exp(x) }")
    assert "-> R.Tuple" in import_text(
        "g (float[n] x) => (float[n] y, float[n] z) { y = Exp(x) z = Exp(x) }"
    )
