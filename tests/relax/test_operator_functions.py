# SPDX-License-Identifier: Apache-2.0
"""The Python functions of operators: arguments that are left out, order of attributes, compositions."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

import relaxvm
from relaxvm import relax
from relaxvm.ir import assert_structural_equal
from relaxvm.relax import op
from relaxvm.script import relax as R


def tensor(shape: tuple[int, ...], dtype: str = "float32") -> Any:
    return relax.Var("x", relax.TensorType(shape, dtype))


def run(call: Any, *inputs: Any) -> Any:
    params = relax.analysis.free_vars(call)
    bb = relax.BlockBuilder()
    with bb.function("main", params):
        bb.emit_func_output(bb.emit(call))
    vm = relaxvm.VirtualMachine(relaxvm.compile(bb.get()), relaxvm.cpu())
    return vm["main"](*[relaxvm.runtime.tensor(x) for x in inputs])


def test_argument_behind_one_that_is_left_out_keeps_its_place() -> None:
    x = tensor((2, 3))
    bb = relax.BlockBuilder()
    assert bb.normalize(op.unique(x, axis=0)).ty.ndim == 2
    both = bb.normalize(op.unique(x, return_counts=True)).ty
    assert len(both.fields) == 2
    assert_structural_equal(
        op.unique(x, return_counts=True), op.unique(x, True, False, False, True)
    )
    view = bb.normalize(op.memory.view(x, dtype="int32")).ty
    assert_structural_equal(view, relax.TensorType((2, 3), "int32"))


def test_axis_of_quantize_comes_before_the_dtype() -> None:
    data, scale, zero = tensor((2, 3)), tensor((3,)), tensor((3,), "int8")
    call = op.quantize(data, scale, zero, 1, "uint8")
    assert (int(call.attrs.axis), str(call.attrs.out_dtype)) == (1, "uint8")
    back = op.dequantize(tensor((2, 3), "int8"), scale, zero, 1, "float16")
    assert (int(back.attrs.axis), str(back.attrs.out_dtype)) == (1, "float16")


def test_mode_of_pad_comes_before_the_value() -> None:
    call = op.nn.pad(tensor((2, 3)), (1, 1, 0, 0), "reflect", 2.0)
    assert (str(call.attrs.pad_mode), float(call.attrs.pad_value)) == ("reflect", 2.0)


def test_attention_with_a_bias_is_attention_bias() -> None:
    q, bias = tensor((2, 4, 3, 8)), tensor((2, 3, 4, 4))
    assert op.nn.attention(q, q, q, bias, scale=0.5).op.name == "relax.nn.attention_bias"
    assert op.nn.attention(q, q, q, causal_mask="TopLeft").op.name == "relax.nn.attention"


def test_masked_fill_puts_a_number_where_the_mask_is_true() -> None:
    x = np.arange(6, dtype="float32").reshape(2, 3)
    call = op.masked_fill(tensor((2, 3)), relax.Var("m", R.Tensor((2, 3), "bool")), -1.0)
    mask = x > 2
    order = [p.ty.dtype for p in relax.analysis.free_vars(call)]
    inputs = [mask if str(d) == "bool" else x for d in order]
    np.testing.assert_array_equal(run(call, *inputs).numpy(), np.where(mask, -1, x))


def test_relu6_stays_between_0_and_6() -> None:
    x = np.array([-1, 3, 9], "float32")
    np.testing.assert_array_equal(run(op.nn.relu6(tensor((3,))), x).numpy(), [0, 3, 6])


def test_comparison_of_two_dtypes_compares_values() -> None:
    x, y = np.array([1.5, 2, -1], "float32"), np.array([2, 2, -1], "int64")
    call = op.less(tensor((3,)), relax.Var("y", R.Tensor((3,), "int64")))
    np.testing.assert_array_equal(run(call, x, y).numpy(), x < y)


def test_logic_of_numbers_asks_for_zero() -> None:
    x, y = np.array([0, 2, -1], "int32"), np.array([1, 0, 5], "int32")
    call = op.logical_and(tensor((3,), "int32"), relax.Var("y", R.Tensor((3,), "int32")))
    np.testing.assert_array_equal(run(call, x, y).numpy(), [0, 0, 1])
    negated = op.logical_not(relax.Var("x", R.Tensor((3,), "int32")))
    np.testing.assert_array_equal(run(negated, x).numpy(), [1, 0, 0])


def test_groups_of_operators_are_modules() -> None:
    assert importlib.import_module("relaxvm.relax.op.nn") is op.nn
    assert importlib.util.find_spec("relaxvm.relax.op.nn") is not None
