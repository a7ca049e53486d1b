# SPDX-License-Identifier: Apache-2.0
"""AttachGlobalSymbol: every function is exported under its name."""

from pass_check import check_pass

from relaxvm.relax.transform import AttachGlobalSymbol


def test_private_function_is_exported():
    check_pass(
        AttachGlobalSymbol(),
        before="""
        @R.function(private=True)
        def f(x: R.Tensor((2,), "float32")):
            return x
        """,
        after="""
        @R.function
        def f(x: R.Tensor((2,), "float32")):
            return x
        """,
    )
