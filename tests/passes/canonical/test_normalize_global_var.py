# SPDX-License-Identifier: Apache-2.0
"""NormalizeGlobalVar: a function is called by its exported name."""

from pass_check import module

import relaxvm
from relaxvm.relax.transform import NormalizeGlobalVar


def test_callers_follow_the_new_name():
    mod = module(
        """
        @R.function
        def main(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            return Module.f(x)

        @R.function(private=True)
        def f(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            return R.exp(x)
        """
    )
    mod["f"] = mod["f"].with_attr("global_symbol", "g")
    expected = module(
        """
        @R.function
        def main(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            return Module.g(x)

        @R.function
        def g(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            return R.exp(x)
        """
    )
    relaxvm.ir.assert_structural_equal(NormalizeGlobalVar()(mod), expected)
