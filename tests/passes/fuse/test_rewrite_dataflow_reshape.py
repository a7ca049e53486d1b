# SPDX-License-Identifier: Apache-2.0
"""RewriteDataflowReshape: programs that keep row-major order become reshapes."""

from fused_programs import ADD_ONE, RESHAPE
from pass_check import check_pass

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
