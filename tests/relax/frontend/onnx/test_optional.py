# SPDX-License-Identifier: Apache-2.0
"""Optional values: inputs that may be None."""

import numpy as np
import pytest
from onnx import TensorProto, helper

import relaxvm
from relaxvm.relax.frontend.onnx import UnsupportedModel, from_onnx


def optional_of(text, make_model, *, is_list=False):
    """The model whose input `o`, an int64 in the text, is an optional tensor or sequence of floats."""
    model = make_model(text)
    inner = helper.make_tensor_type_proto(TensorProto.FLOAT, ["n"])
    inner = helper.make_sequence_type_proto(inner) if is_list else inner
    value = next(v for v in model.graph.input if v.name == "o")
    value.type.CopyFrom(helper.make_optional_type_proto(inner))
    return model


def main_of(model):
    return relaxvm.VirtualMachine(relaxvm.compile(from_onnx(model)), relaxvm.cpu())["main"]


@pytest.mark.parametrize("is_list", [False, True])
def test_element_is_there_or_not(is_list, make_model):
    text = "g (int64 o) => (bool y) { y = OptionalHasElement(o) }"
    main = main_of(optional_of(text, make_model, is_list=is_list))
    x = relaxvm.runtime.tensor(np.ones(3, "f4"))
    assert main([x] if is_list else x).numpy() == np.True_
    assert main(None).numpy() == np.False_


def test_element_is_taken_out(make_model):
    text = "g (int64 o) => (float[n] y) { x = OptionalGetElement(o) y = Neg(x) }"
    main = main_of(optional_of(text, make_model))
    np.testing.assert_array_equal(
        main(relaxvm.runtime.tensor(np.ones(3, "f4"))).numpy(), -np.ones(3)
    )
    with pytest.raises(Exception, match="None"):
        main(None)


def test_branch_runs_only_where_it_is(make_model):
    text = (
        "g (int64 o, float[k] d) => (float[m] y) { c = OptionalHasElement(o) y = If (c) "
        "<then_branch = t () => (float[m] p) { p = OptionalGetElement(o) }, "
        "else_branch = e () => (float[m] q) { q = Neg(d) }> }"
    )
    main = main_of(optional_of(text, make_model))
    x, d = (relaxvm.runtime.tensor(np.arange(n, dtype="f4")) for n in (3, 2))
    np.testing.assert_array_equal(main(x, d).numpy(), [0, 1, 2])
    np.testing.assert_array_equal(main(None, d).numpy(), [0, -1])


def test_sequence_is_taken_out(make_model):
    text = "g (int64 o) => (float[n] y) { s = OptionalGetElement(o) y = ConcatFromSequence<axis=0>(s) }"
    main = main_of(optional_of(text, make_model, is_list=True))
    parts = [relaxvm.runtime.tensor(np.full(n, n, "f4")) for n in (1, 2)]
    np.testing.assert_array_equal(main(parts).numpy(), [1, 2, 2])


def test_absent_value_is_known(make_model, import_text):
    text = import_text("g (float[n] x) => (bool y) { o = Optional() y = OptionalHasElement(o) }")
    assert "False" in text


def test_branches_that_make_optional_values_are_refused(make_model):
    text = (
        "g (bool c, int64 o) => (float[m] y) { z = If (c) <then_branch = t () => (float[m] p) { p = Identity(o) }, "
        "else_branch = e () => (float[m] q) { q = Optional() }> y = OptionalGetElement(z) }"
    )
    with pytest.raises(UnsupportedModel, match="optional values"):
        from_onnx(optional_of(text, make_model))
