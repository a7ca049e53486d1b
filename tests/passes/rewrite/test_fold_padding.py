# SPDX-License-Identifier: Apache-2.0
"""FoldPadding: zeros around a convolution's data are its own padding."""

import pytest
from pass_check import check_pass

from relaxvm.relax.transform import FoldPadding

PADDED = """
    @R.function
    def main(x: R.Tensor((1, 3, "h", 9), "float32"), w: R.Tensor((4, 3, 3, 3), "float32")) -> R.Tensor((1, 4, "h + 3", 9), "float32"):
        h = T.int64()
        a: R.Tensor((1, 3, h + 3, 11), "float32") = R.nn.pad(x, (0, 0, 0, 0, 1, 2, 2, 0), pad_value=0.0, pad_mode="constant")
        b: R.Tensor((1, 4, h + 3, 9), "float32") = R.nn.conv2d(a, w, padding=[1, 0, 1, 0])
        return b
"""


def test_padding_is_added() -> None:
    check_pass(
        FoldPadding(),
        before=PADDED,
        after="""
    @R.function
    def main(x: R.Tensor((1, 3, "h", 9), "float32"), w: R.Tensor((4, 3, 3, 3), "float32")) -> R.Tensor((1, 4, "h + 3", 9), "float32"):
        h = T.int64()
        b: R.Tensor((1, 4, h + 3, 9), "float32") = R.nn.conv2d(x, w, padding=[2, 2, 3, 0])
        return b
        """,
    )


@pytest.mark.parametrize(
    ("old", "new"), [("pad_value=0.0", "pad_value=1.0"), ('"constant"', '"reflect"')]
)
def test_other_values_stay(old: str, new: str) -> None:
    check_pass(FoldPadding(), before=PADDED.replace(old, new))


def test_channels_stay() -> None:
    check_pass(
        FoldPadding(),
        before="""
    @R.function
    def main(x: R.Tensor((1, 2, 8), "float32"), w: R.Tensor((4, 3, 3), "float32")) -> R.Tensor((1, 4, 6), "float32"):
        a: R.Tensor((1, 3, 8), "float32") = R.nn.pad(x, (0, 0, 0, 1, 0, 0), pad_value=0.0, pad_mode="constant")
        b: R.Tensor((1, 4, 6), "float32") = R.nn.conv1d(a, w)
        return b
        """,
    )


def test_what_is_cut_off_stays() -> None:
    check_pass(
        FoldPadding(),
        before="""
    @R.function
    def main(x: R.Tensor((1, 3, 8), "float32"), w: R.Tensor((4, 3, 3), "float32")) -> R.Tensor((1, 4, 6), "float32"):
        a: R.Tensor((1, 3, 8), "float32") = R.nn.pad(x, (0, 0, 0, 0, 1, -1), pad_value=0.0, pad_mode="constant")
        b: R.Tensor((1, 4, 6), "float32") = R.nn.conv1d(a, w)
        return b
        """,
    )
