# SPDX-License-Identifier: Apache-2.0
"""ReorderPermuteDimsAfterConcat: equal permutations become one."""

from pass_check import check_pass

from relaxvm.relax.transform import ReorderPermuteDimsAfterConcat


def test_axis_of_the_concat_moves_with_the_permutation():
    check_pass(
        ReorderPermuteDimsAfterConcat(),
        before="""
        @R.function
        def main(x: R.Tensor((2, 3), "float32"), y: R.Tensor((4, 3), "float32")) -> R.Tensor((3, 6), "float32"):
            a: R.Tensor((3, 2), "float32") = R.permute_dims(x)
            b: R.Tensor((3, 4), "float32") = R.permute_dims(y, axes=[1, 0])
            c: R.Tensor((3, 6), "float32") = R.concat((a, b), axis=1)
            return c
        """,
        after="""
        @R.function
        def main(x: R.Tensor((2, 3), "float32"), y: R.Tensor((4, 3), "float32")) -> R.Tensor((3, 6), "float32"):
            a: R.Tensor((6, 3), "float32") = R.concat((x, y), axis=0)
            c: R.Tensor((3, 6), "float32") = R.permute_dims(a)
            return c
        """,
    )


def test_different_permutations_stay():
    check_pass(
        ReorderPermuteDimsAfterConcat(),
        before="""
        @R.function
        def main(x: R.Tensor((2, 2), "float32"), y: R.Tensor((2, 2), "float32")) -> R.Tensor((2, 4), "float32"):
            a: R.Tensor((2, 2), "float32") = R.permute_dims(x)
            b: R.Tensor((2, 2), "float32") = R.permute_dims(y, axes=[0, 1])
            c: R.Tensor((2, 4), "float32") = R.concat((a, b), axis=1)
            return c
        """,
    )
