# SPDX-License-Identifier: Apache-2.0
"""Normalize: nested expressions get variables, expressions get types."""

from pass_check import module

import relaxvm
from relaxvm import relax
from relaxvm.relax.transform import Normalize


def test_nested_call_gets_a_variable():
    x = relax.Var("x", relax.TensorType((2,), "float32"))
    nested = relax.op.exp(relax.op.negative(x))
    mod = relaxvm.IRModule(
        {"main": relax.Function([x], nested, None).with_attr("global_symbol", "main")}
    )
    expected = module(
        """
        @R.function
        def main(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            gv: R.Tensor((2,), "float32") = R.negative(x)
            gv1: R.Tensor((2,), "float32") = R.exp(gv)
            return gv1
        """
    )
    relaxvm.ir.assert_structural_equal(Normalize()(mod), expected)
