# SPDX-License-Identifier: Apache-2.0
"""BindSymbolicVars: sizes become numbers."""

import pytest
from pass_check import check_pass, module

from relaxvm.relax.transform import BindSymbolicVars

BEFORE = """
@R.function
def main(x: R.Tensor(("n", "m"), "float32")) -> R.Tensor(("n * m",), "float32"):
    n = T.int64()
    m = T.int64()
    y: R.Tensor((n * m,), "float32") = R.reshape(x, R.shape([n * m]))
    return y
"""


def test_size_by_name():
    check_pass(
        BindSymbolicVars({"n": 4}),
        before=BEFORE,
        after="""
        @R.function
        def main(x: R.Tensor((4, "m"), "float32")) -> R.Tensor(("4 * m",), "float32"):
            m = T.int64()
            y: R.Tensor((4 * m,), "float32") = R.reshape(x, R.shape([4 * m]))
            return y
        """,
    )


def test_all_sizes_of_one_function():
    check_pass(
        BindSymbolicVars({"n": 4, "m": 3}, "main"),
        before=BEFORE,
        after="""
        @R.function
        def main(x: R.Tensor((4, 3), "float32")) -> R.Tensor((12,), "float32"):
            y: R.Tensor((12,), "float32") = R.reshape(x, R.shape([12]))
            return y
        """,
    )


def test_unknown_size_is_an_error():
    with pytest.raises(RuntimeError, match="no function has a size named k"):
        BindSymbolicVars({"k": 4})(module(BEFORE))
