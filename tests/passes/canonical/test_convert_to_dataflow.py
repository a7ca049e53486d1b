# SPDX-License-Identifier: Apache-2.0
"""ConvertToDataflow: runs of pure bindings become dataflow blocks."""

from pass_check import check_pass

from relaxvm.relax.transform import ConvertToDataflow


def test_run_of_pure_bindings():
    check_pass(
        ConvertToDataflow(),
        before="""
        @R.function
        def main(x: R.Tensor((2,), "float32")):
            a = R.exp(x)
            b = R.add(a, a)
            return b
        """,
        after="""
        @R.function
        def main(x: R.Tensor((2,), "float32")):
            with R.dataflow():
                a = R.exp(x)
                b = R.add(a, a)
                R.output(b)
            return b
        """,
    )


def test_effect_divides_runs_and_short_runs_stay():
    check_pass(
        ConvertToDataflow(),
        before="""
        @R.function(pure=False)
        def main(x: R.Tensor((2,), "float32")):
            a = R.exp(x)
            _ = R.print(a, format="{}")
            b = R.add(a, a)
            c = R.negative(b)
            return c
        """,
        after="""
        @R.function(pure=False)
        def main(x: R.Tensor((2,), "float32")):
            a = R.exp(x)
            _ = R.print(a, format="{}")
            with R.dataflow():
                b = R.add(a, a)
                c = R.negative(b)
                R.output(c)
            return c
        """,
    )


def test_min_size_one_takes_single_bindings_and_branches():
    check_pass(
        ConvertToDataflow(min_size=1),
        before="""
        @R.function
        def main(x: R.Tensor((2,), "float32"), c: R.Prim("bool")):
            if c:
                r = R.exp(x)
            else:
                r = R.negative(x)
            return r
        """,
        after="""
        @R.function
        def main(x: R.Tensor((2,), "float32"), c: R.Prim("bool")):
            if c:
                with R.dataflow():
                    gv = R.exp(x)
                    R.output(gv)
                r = gv
            else:
                with R.dataflow():
                    gv1 = R.negative(x)
                    R.output(gv1)
                r = gv1
            return r
        """,
    )


def test_pure_bindings_join_the_block_beside_them():
    check_pass(
        ConvertToDataflow(),
        before="""
        @R.function
        def main(x: R.Tensor((2,), "float32")):
            with R.dataflow():
                a = R.exp(x)
                R.output(a)
            b = R.negative(a)
            return b
        """,
        after="""
        @R.function
        def main(x: R.Tensor((2,), "float32")):
            with R.dataflow():
                a = R.exp(x)
                b = R.negative(a)
                R.output(b)
            return b
        """,
    )
