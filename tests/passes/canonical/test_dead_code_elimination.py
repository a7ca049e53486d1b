# SPDX-License-Identifier: Apache-2.0
"""DeadCodeElimination: what nobody uses goes, effects stay."""

import pytest
from pass_check import check_pass, module

from relaxvm.relax.transform import DeadCodeElimination


def test_removes_a_chain_that_leads_nowhere():
    check_pass(
        DeadCodeElimination(),
        before="""
        @R.function
        def main(x: R.Tensor((2,), "float32")):
            with R.dataflow():
                a = R.exp(x)
                b = R.exp(a)
                c = R.negative(x)
                R.output(b, c)
            return c
        """,
        after="""
        @R.function
        def main(x: R.Tensor((2,), "float32")):
            with R.dataflow():
                c = R.negative(x)
                R.output(c)
            return c
        """,
    )


def test_keeps_effects_and_what_they_need():
    check_pass(
        DeadCodeElimination(),
        before="""
        @R.function(pure=False)
        def main(x: R.Tensor((2,), "float32")):
            a = R.exp(x)
            _ = R.print(a, format="{}")
            b = R.negative(x)
            return x
        """,
        after="""
        @R.function(pure=False)
        def main(x: R.Tensor((2,), "float32")):
            a = R.exp(x)
            _ = R.print(a, format="{}")
            return x
        """,
    )


def test_keeps_a_cast_that_defines_a_size():
    check_pass(
        DeadCodeElimination(),
        before="""
        @R.function
        def main(x: R.Tensor(ndim=1, dtype="float32")):
            n = T.int64()
            y = R.match_cast(x, R.Tensor((n,), "float32"))
            z = R.ones((n,), "float32")
            return z
        """,
    )


def test_walks_into_branches():
    check_pass(
        DeadCodeElimination(),
        before="""
        @R.function
        def main(x: R.Tensor((2,), "float32"), c: R.Prim("bool")):
            a = R.exp(x)
            if c:
                unused = R.negative(a)
                r = R.add(x, x)
            else:
                r = R.negative(x)
            return r
        """,
        after="""
        @R.function
        def main(x: R.Tensor((2,), "float32"), c: R.Prim("bool")):
            if c:
                r = R.add(x, x)
            else:
                r = R.negative(x)
            return r
        """,
    )


def test_removes_private_functions_that_nobody_calls():
    check_pass(
        DeadCodeElimination(),
        before="""
        @R.function
        def main(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            unused = Module.b(x)
            return Module.a(x)

        @R.function(private=True)
        def a(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            return R.exp(x)

        @R.function(private=True)
        def b(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            return R.exp(x)
        """,
        after="""
        @R.function
        def main(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            return Module.a(x)

        @R.function(private=True)
        def a(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            return R.exp(x)
        """,
    )


def test_entry_that_does_not_exist_is_an_error():
    mod = module(
        """
        @R.function
        def main(x: R.Tensor((2,), "float32")):
            return x
        """
    )
    with pytest.raises(ValueError, match="no function named start"):
        DeadCodeElimination(entry_functions=["start"])(mod)
