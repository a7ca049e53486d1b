# SPDX-License-Identifier: Apache-2.0
"""ExpandMatmulOfSum: each term on its own."""

from pass_check import check_pass

from relaxvm.relax.transform import ExpandMatmulOfSum

BEFORE = """
    @R.function
    def main(
        x: R.Tensor((2, 3), "float32"), a: R.Tensor((3, 4), "float32"), b: R.Tensor((3, 4), "float32")
    ) -> R.Tensor((2, 4), "float32"):
        R.func_attr({"num_input": NUM})
        s: R.Tensor((3, 4), "float32") = R.add(a, b)
        y: R.Tensor((2, 4), "float32") = R.matmul(x, s)
        return y
    """


def test_sum_of_an_input_is_expanded():
    check_pass(
        ExpandMatmulOfSum(),
        before=BEFORE.replace("NUM", "2"),
        after="""
        @R.function
        def main(
            x: R.Tensor((2, 3), "float32"), a: R.Tensor((3, 4), "float32"), b: R.Tensor((3, 4), "float32")
        ) -> R.Tensor((2, 4), "float32"):
            R.func_attr({"num_input": 2})
            s: R.Tensor((2, 4), "float32") = R.matmul(x, a)
            t: R.Tensor((2, 4), "float32") = R.matmul(x, b)
            y: R.Tensor((2, 4), "float32") = R.add(s, t)
            return y
        """,
    )


def test_sum_of_weights_stays():
    check_pass(ExpandMatmulOfSum(), before=BEFORE.replace("NUM", "1"))
