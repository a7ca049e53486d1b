# SPDX-License-Identifier: Apache-2.0
"""PermuteBeforeResize: the smaller image is permuted."""

from pass_check import check_pass

from relaxvm.relax.transform import PermuteBeforeResize

ENLARGED = """
    @R.function
    def main(x: R.Tensor(("n", "h", "w", 5), "float32")) -> R.Tensor(("n", 5, "2 * h", "2 * w"), "float32"):
        n = T.int64()
        h = T.int64()
        w = T.int64()
        a: R.Tensor((n, 2 * h, 2 * w, 5), "float32") = R.image.resize2d(x, R.shape([2 * h, 2 * w]), layout="NHWC", method="METHOD")
        b: R.Tensor((n, 2 * h, 2 * w, 5), "float32") = R.sigmoid(a)
        c: R.Tensor((n, 5, 2 * h, 2 * w), "float32") = R.permute_dims(b, axes=[0, 3, 1, 2])
        return c
"""


def test_rows_of_an_enlarged_image() -> None:
    check_pass(
        PermuteBeforeResize(),
        before=ENLARGED.replace("METHOD", "linear"),
        after="""
    @R.function
    def main(x: R.Tensor(("n", "h", "w", 5), "float32")) -> R.Tensor(("n", 5, "2 * h", "2 * w"), "float32"):
        n = T.int64()
        h = T.int64()
        w = T.int64()
        p: R.Tensor((n, 5, h, w), "float32") = R.permute_dims(x, axes=[0, 3, 1, 2])
        a: R.Tensor((n, 5, 2 * h, 2 * w), "float32") = R.image.resize2d(p, R.shape([2 * h, 2 * w]), layout="NCHW", method="linear")
        c: R.Tensor((n, 5, 2 * h, 2 * w), "float32") = R.sigmoid(a)
        return c
        """,
    )


def test_copied_pixels_stay_as_they_are() -> None:
    check_pass(PermuteBeforeResize(), before=ENLARGED.replace("METHOD", "nearest_neighbor"))


def test_a_smaller_result_is_permuted_itself() -> None:
    check_pass(
        PermuteBeforeResize(),
        before="""
    @R.function
    def main(x: R.Tensor((1, 8, 8, 5), "float32")) -> R.Tensor((1, 5, 4, 16), "float32"):
        a: R.Tensor((1, 4, 16, 5), "float32") = R.image.resize2d(x, R.shape([4, 16]), layout="NHWC", method="linear")
        c: R.Tensor((1, 5, 4, 16), "float32") = R.permute_dims(a, axes=[0, 3, 1, 2])
        return c
        """,
    )


def test_pixels_stay_pixels() -> None:
    check_pass(
        PermuteBeforeResize(),
        before="""
    @R.function
    def main(x: R.Tensor((1, 3, 8, 8), "float32")) -> R.Tensor((1, 16, 16, 3), "float32"):
        a: R.Tensor((1, 3, 16, 16), "float32") = R.image.resize2d(x, R.shape([16, 16]), layout="NCHW", method="linear")
        c: R.Tensor((1, 16, 16, 3), "float32") = R.permute_dims(a, axes=[0, 2, 3, 1])
        return c
        """,
    )
