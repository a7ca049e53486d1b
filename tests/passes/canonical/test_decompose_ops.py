# SPDX-License-Identifier: Apache-2.0
"""DecomposeOps: composite operators become simpler ones."""

from pass_check import check_pass, module

from relaxvm.relax.transform import DecomposeOps

BEFORE = """
@R.function
def main(x: R.Tensor((1, 3, 4, 4), "float32"), g: R.Tensor((3,), "float32"), b: R.Tensor((3,), "float32"),
         m: R.Tensor((3,), "float32"), v: R.Tensor((3,), "float32")):
    with R.dataflow():
        y = R.nn.batch_norm(x, g, b, m, v, axis=1, training={training})
        gv = y[0]
        R.output(gv)
    return gv
"""


def test_batch_norm_becomes_a_scale_and_a_shift():
    text = DecomposeOps()(module(BEFORE.format(training=False))).script()
    assert "batch_norm" not in text
    assert "R.rsqrt" in text


def test_batch_norm_of_training_stays():
    check_pass(DecomposeOps(), before=BEFORE.format(training=True))


def test_other_function_stays():
    check_pass(
        DecomposeOps("other"),
        before=BEFORE.format(training=False)
        + """
@R.function
def other(x: R.Tensor((1,), "float32")):
    return x
""",
    )
