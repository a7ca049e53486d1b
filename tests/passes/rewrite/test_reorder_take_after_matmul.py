# SPDX-License-Identifier: Apache-2.0
"""ReorderTakeAfterMatmul: results are picked instead of weights."""

from pass_check import check_pass

from relaxvm.relax.transform import ReorderTakeAfterMatmul


def test_columns_are_picked_from_the_result():
    check_pass(
        ReorderTakeAfterMatmul(),
        before="""
        @R.function
        def main(
            x: R.Tensor((1, 4), "float32"), table: R.Tensor((4, 9), "float32"), picks: R.Tensor((3,), "int64")
        ) -> R.Tensor((1, 3), "float32"):
            w: R.Tensor((4, 3), "float32") = R.take(table, picks, axis=1)
            y: R.Tensor((1, 3), "float32") = R.matmul(x, w)
            return y
        """,
        after="""
        @R.function
        def main(
            x: R.Tensor((1, 4), "float32"), table: R.Tensor((4, 9), "float32"), picks: R.Tensor((3,), "int64")
        ) -> R.Tensor((1, 3), "float32"):
            all: R.Tensor((1, 9), "float32") = R.matmul(x, table)
            y: R.Tensor((1, 3), "float32") = R.take(all, picks, axis=1)
            return y
        """,
    )


def test_pick_along_the_contracted_axis_stays():
    check_pass(
        ReorderTakeAfterMatmul(),
        before="""
        @R.function
        def main(
            x: R.Tensor((1, 3), "float32"), table: R.Tensor((9, 4), "float32"), picks: R.Tensor((3,), "int64")
        ) -> R.Tensor((1, 4), "float32"):
            w: R.Tensor((3, 4), "float32") = R.take(table, picks, axis=0)
            y: R.Tensor((1, 4), "float32") = R.matmul(x, w)
            return y
        """,
    )
