# SPDX-License-Identifier: Apache-2.0
"""FoldBatchnormToConv2D: batch_norm goes into the convolution before it."""

from pass_check import check_pass, module

from relaxvm.relax.transform import FoldBatchnormToConv2D

BEFORE = """
@R.function
def main(x: R.Tensor((1, 2, 8, 8), "float32"), w: R.Tensor((4, 2, 3, 3), "float32"),
         g: R.Tensor((4,), "float32"), b: R.Tensor((4,), "float32"), m: R.Tensor((4,), "float32"),
         v: R.Tensor((4,), "float32")):
    R.func_attr({"num_input": 1})
    with R.dataflow():
        c = R.nn.conv2d(x, w)
        n = R.nn.batch_norm(c, g, b, m, v, axis=AXIS)
        gv = n[0]
        R.output(gv)
    return gv
"""


def test_batch_norm_disappears():
    text = FoldBatchnormToConv2D()(module(BEFORE.replace("AXIS", "1"))).script()
    assert "batch_norm" not in text
    assert text.count("R.nn.conv2d") == 1


def test_other_axis_stays():
    given = BEFORE.replace("AXIS", "2").replace("R.Tensor((4,)", "R.Tensor((6,)")
    check_pass(FoldBatchnormToConv2D(), before=given)
