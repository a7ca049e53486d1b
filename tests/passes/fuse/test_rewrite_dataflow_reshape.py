# SPDX-License-Identifier: Apache-2.0
"""RewriteDataflowReshape: programs that keep row-major order become reshapes."""

import numpy as np
import pytest
from fused_programs import ADD_ONE, RESHAPE
from pass_check import check_pass

import relaxvm
from relaxvm import relax, tirx
from relaxvm.relax.transform import RewriteDataflowReshape

BODY = """
@R.function
def main(x: R.Tensor((4,), "float32")) -> R.Tensor((2, 2), "float32"):
    {block}
        y = R.call_tir(Module.reshape, (x,), out_ty=R.Tensor((2, 2), "float32")){output}
    return y
"""


def test_call_becomes_a_reshape():
    check_pass(
        RewriteDataflowReshape(),
        before=BODY.format(block="with R.dataflow():", output="\n        R.output(y)") + RESHAPE,
        after="""
@R.function
def main(x: R.Tensor((4,), "float32")) -> R.Tensor((2, 2), "float32"):
    with R.dataflow():
        y: R.Tensor((2, 2), "float32") = R.reshape(x, R.shape([2, 2]))
        R.output(y)
    return y
"""
        + RESHAPE,
    )


def test_call_outside_of_a_dataflow_block_stays():
    check_pass(
        RewriteDataflowReshape(),
        before=BODY.format(block="if True:", output="").replace("    if True:\n        ", "    ")
        + RESHAPE,
    )


def test_other_programs_stay():
    check_pass(
        RewriteDataflowReshape(),
        before="""
@R.function
def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
    with R.dataflow():
        y = R.call_tir(Module.add_one, (x,), out_ty=R.Tensor((4,), "float32"))
        R.output(y)
    return y
"""
        + ADD_ONE,
    )


def windows(columns):
    """An image cut into windows of 2 x 2 pixels, where only the running program knows that they fit."""
    n, h, w = (tirx.Var(name, "int64") for name in "nhw")
    x = relax.Var("x", relax.TensorType([n, h, w, 4], "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            shape = [n, h // 2, 2, w // 2, 2, 4] if columns else [h // 2, 2, n, w // 2, 8]
            out = builder.emit_output(relax.op.reshape(x, shape))
        builder.emit_func_output(out)
    return builder.get()


@pytest.mark.parametrize("columns", [True, False])
def test_sizes_that_are_checked_when_it_runs(columns):
    lowered = relax.transform.LegalizeOps()(windows(columns))
    assert "assert " in lowered.script()
    rewritten = RewriteDataflowReshape()(lowered)["main"].script()
    assert "R.reshape(" in rewritten and "R.call_tir" not in rewritten
    vm = relax.VirtualMachine(relaxvm.compile(windows(columns)), relaxvm.cpu())
    x = np.arange(2 * 6 * 4 * 4, dtype="float32").reshape(2, 6, 4, 4)
    y = vm["main"](relaxvm.runtime.tensor(x)).numpy()
    np.testing.assert_array_equal(y, x.reshape(y.shape))
    with pytest.raises(ValueError, match="the numbers of elements differ"):
        vm["main"](relaxvm.runtime.tensor(np.zeros((2, 5, 4, 4), "float32")))
