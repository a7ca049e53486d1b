# SPDX-License-Identifier: Apache-2.0
"""InlinePrivateFunctions: calls become bodies."""

from pass_check import check_pass, module

from relaxvm.relax.transform import CanonicalizeBindings, InlinePrivateFunctions


def test_body_stands_where_the_call_was():
    mod = InlinePrivateFunctions()(
        module(
            """
            @R.function
            def main(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
                with R.dataflow():
                    y: R.Tensor((2,), "float32") = Module.f(x)
                    z: R.Tensor((2,), "float32") = Module.f(y)
                    R.output(z)
                return z

            @R.function(private=True)
            def f(a: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
                b: R.Tensor((2,), "float32") = R.exp(a)
                return b
            """
        )
    )
    assert [str(v.name_hint) for v in mod.get_global_vars()] == ["main"]
    assert CanonicalizeBindings()(mod).script().count("R.exp") == 2


def test_recursion_stays():
    check_pass(
        InlinePrivateFunctions(),
        before="""
        @R.function
        def main(x: R.Tensor((2,), "float32"), c: R.Prim("bool")) -> R.Tensor((2,), "float32"):
            y: R.Tensor((2,), "float32") = Module.f(x, c)
            return y

        @R.function(private=True)
        def f(x: R.Tensor((2,), "float32"), c: R.Prim("bool")) -> R.Tensor((2,), "float32"):
            if c:
                r: R.Tensor((2,), "float32") = Module.f(x, c)
            else:
                r: R.Tensor((2,), "float32") = x
            return r
        """,
    )


def test_a_plain_body_splits_no_plain_block():
    check_pass(
        InlinePrivateFunctions(),
        before="""
        @R.function
        def main(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            y: R.Tensor((2,), "float32") = R.sin(x)
            z: R.Tensor((2,), "float32") = Module.f(y)
            r: R.Tensor((2,), "float32") = R.cos(z)
            return r

        @R.function(private=True)
        def f(a: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            b: R.Tensor((2,), "float32") = R.exp(a)
            return b
        """,
        after="""
        @R.function
        def main(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            y: R.Tensor((2,), "float32") = R.sin(x)
            z: R.Tensor((2,), "float32") = R.exp(y)
            r: R.Tensor((2,), "float32") = R.cos(z)
            return r
        """,
    )


def test_outputs_of_the_body_are_none_within_the_callers_block():
    check_pass(
        InlinePrivateFunctions(),
        before="""
        @R.function
        def main(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            with R.dataflow():
                y: R.Tensor((2,), "float32") = Module.f(x)
                z: R.Tensor((2,), "float32") = R.cos(y)
                R.output(z)
            return z

        @R.function(private=True)
        def f(a: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            with R.dataflow():
                b: R.Tensor((2,), "float32") = R.exp(a)
                R.output(b)
            return b
        """,
        after="""
        @R.function
        def main(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            with R.dataflow():
                y: R.Tensor((2,), "float32") = R.exp(x)
                z: R.Tensor((2,), "float32") = R.cos(y)
                R.output(z)
            return z
        """,
    )


def test_the_result_of_a_body_may_leave_the_callers_block():
    check_pass(
        InlinePrivateFunctions(),
        before="""
        @R.function
        def main(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            with R.dataflow():
                y: R.Tensor((2,), "float32") = Module.f(x)
                R.output(y)
            return y

        @R.function(private=True)
        def f(a: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            with R.dataflow():
                b: R.Tensor((2,), "float32") = R.exp(a)
                R.output(b)
            return b
        """,
        after="""
        @R.function
        def main(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            with R.dataflow():
                y: R.Tensor((2,), "float32") = R.exp(x)
                R.output(y)
            return y
        """,
    )
