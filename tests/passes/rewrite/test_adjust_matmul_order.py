# SPDX-License-Identifier: Apache-2.0
"""AdjustMatmulOrder: the order with less work."""

from pass_check import check_pass

from relaxvm.relax.transform import AdjustMatmulOrder

LEFT = """
    @R.function
    def main(
        x: R.Tensor((1, 64), "float32"), a: R.Tensor((64, 8), "float32"), b: R.Tensor((8, 64), "float32")
    ) -> R.Tensor((1, 64), "float32"):
        t: R.Tensor((1, 8), "float32") = R.matmul(x, a)
        y: R.Tensor((1, 64), "float32") = R.matmul(t, b)
        return y
    """
RIGHT = """
    @R.function
    def main(
        x: R.Tensor((1, 64), "float32"), a: R.Tensor((64, 8), "float32"), b: R.Tensor((8, 64), "float32")
    ) -> R.Tensor((1, 64), "float32"):
        t: R.Tensor((64, 64), "float32") = R.matmul(a, b)
        y: R.Tensor((1, 64), "float32") = R.matmul(x, t)
        return y
    """


def with_weights(program: str) -> str:
    head = '-> R.Tensor((1, 64), "float32"):'
    return program.replace(head, head + '\n        R.func_attr({"num_input": 1})')


def test_few_rows_go_first():
    check_pass(AdjustMatmulOrder(), before=RIGHT, after=LEFT)


def test_best_order_stays():
    check_pass(AdjustMatmulOrder(), before=LEFT)


def test_product_of_weights_is_computed_once():
    check_pass(AdjustMatmulOrder(), before=with_weights(LEFT), after=with_weights(RIGHT))


def test_transposed_product_is_taken_apart():
    check_pass(
        AdjustMatmulOrder(),
        before="""
        @R.function
        def main(
            x: R.Tensor((1, 64), "float32"), a: R.Tensor((8, 64), "float32"), b: R.Tensor((64, 8), "float32")
        ) -> R.Tensor((1, 64), "float32"):
            p: R.Tensor((64, 64), "float32") = R.matmul(b, a)
            t: R.Tensor((64, 64), "float32") = R.permute_dims(p)
            y: R.Tensor((1, 64), "float32") = R.matmul(x, t)
            return y
        """,
        after="""
        @R.function
        def main(
            x: R.Tensor((1, 64), "float32"), a: R.Tensor((8, 64), "float32"), b: R.Tensor((64, 8), "float32")
        ) -> R.Tensor((1, 64), "float32"):
            s: R.Tensor((64, 8), "float32") = R.permute_dims(a)
            u: R.Tensor((1, 8), "float32") = R.matmul(x, s)
            t: R.Tensor((8, 64), "float32") = R.permute_dims(b)
            y: R.Tensor((1, 64), "float32") = R.matmul(u, t)
            return y
        """,
    )


def test_batches_count_as_rows():
    check_pass(
        AdjustMatmulOrder(),
        before="""
        @R.function
        def main(x: R.Tensor((2, 4, 8), "float32"), a: R.Tensor((8, 2), "float32"), b: R.Tensor((2, 8), "float32")):
            w = R.matmul(a, b)
            y = R.matmul(x, w)
            return y
        """,
        after="""
        @R.function
        def main(x: R.Tensor((2, 4, 8), "float32"), a: R.Tensor((8, 2), "float32"), b: R.Tensor((2, 8), "float32")):
            w = R.matmul(x, a)
            y = R.matmul(w, b)
            return y
        """,
    )
