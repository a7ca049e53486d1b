# SPDX-License-Identifier: Apache-2.0
"""RemoveRedundantReshape: the last of several reshapes stays."""

from pass_check import check_pass

from relaxvm.relax.transform import RemoveRedundantReshape


def test_last_reshape_reads_the_first_value():
    check_pass(
        RemoveRedundantReshape(),
        before="""
        @R.function
        def main(x: R.Tensor((2, 3), "float32")) -> R.Tensor((3, 2), "float32"):
            with R.dataflow():
                a: R.Tensor((6,), "float32") = R.reshape(x, R.shape([6]))
                b: R.Tensor((3, 2), "float32") = R.reshape(a, R.shape([3, 2]))
                R.output(b)
            return b
        """,
        after="""
        @R.function
        def main(x: R.Tensor((2, 3), "float32")) -> R.Tensor((3, 2), "float32"):
            with R.dataflow():
                b: R.Tensor((3, 2), "float32") = R.reshape(x, R.shape([3, 2]))
                R.output(b)
            return b
        """,
    )


def test_reshape_that_changes_something_stays():
    check_pass(
        RemoveRedundantReshape(),
        before="""
        @R.function
        def main(x: R.Tensor((2, 3), "float32")) -> R.Tensor((6,), "float32"):
            a: R.Tensor((6,), "float32") = R.reshape(x, R.shape([6]))
            return a
        """,
    )
