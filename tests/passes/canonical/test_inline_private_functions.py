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
