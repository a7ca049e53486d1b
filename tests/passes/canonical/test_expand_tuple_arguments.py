# SPDX-License-Identifier: Apache-2.0
"""ExpandTupleArguments: fields in place of tuples."""

from pass_check import check_pass

from relaxvm.relax.transform import ExpandTupleArguments


def test_fields_of_fields():
    check_pass(
        ExpandTupleArguments(),
        before="""
        @R.function
        def main(a: R.Tensor((2,), "float32"), b: R.Tensor((3,), "float32")):
            y = Module.f((a, (b, a)), b)
            return y

        @R.function(private=True)
        def f(
            t: R.Tuple(R.Tensor((2,), "float32"), R.Tuple(R.Tensor((3,), "float32"), R.Tensor((2,), "float32"))),
            c: R.Tensor((3,), "float32"),
        ) -> R.Tensor((3,), "float32"):
            u = t[1]
            v = u[0]
            y = R.add(v, c)
            return y
        """,
        after="""
        @R.function
        def main(a: R.Tensor((2,), "float32"), b: R.Tensor((3,), "float32")):
            y = Module.f(a, b, a, b)
            return y

        @R.function(private=True)
        def f(
            t0: R.Tensor((2,), "float32"),
            t1: R.Tensor((3,), "float32"),
            t2: R.Tensor((2,), "float32"),
            c: R.Tensor((3,), "float32"),
        ) -> R.Tensor((3,), "float32"):
            y = R.add(t1, c)
            return y
        """,
    )


def test_a_tuple_that_is_a_variable_is_taken_apart_in_front_of_the_call():
    check_pass(
        ExpandTupleArguments(),
        before="""
        @R.function
        def main(t: R.Tuple(R.Tensor((2,), "float32"), R.Tensor((3,), "float32"))):
            with R.dataflow():
                y = Module.f(t)
                R.output(y)
            return y

        @R.function(private=True)
        def f(t: R.Tuple(R.Tensor((2,), "float32"), R.Tensor((3,), "float32"))) -> R.Tensor((3,), "float32"):
            y = t[1]
            return y
        """,
        after="""
        @R.function
        def main(t: R.Tuple(R.Tensor((2,), "float32"), R.Tensor((3,), "float32"))):
            with R.dataflow():
                p = t[0]
                q = t[1]
                y = Module.f(p, q)
                R.output(y)
            return y

        @R.function(private=True)
        def f(p: R.Tensor((2,), "float32"), q: R.Tensor((3,), "float32")) -> R.Tensor((3,), "float32"):
            return q
        """,
    )


def test_recursion():
    check_pass(
        ExpandTupleArguments(),
        before="""
        @R.function
        def main(a: R.Tensor((2,), "float32"), c: R.Tensor((), "bool")):
            y = Module.f((a, a), c)
            return y

        @R.function(private=True)
        def f(
            t: R.Tuple(R.Tensor((2,), "float32"), R.Tensor((2,), "float32")), c: R.Tensor((), "bool")
        ) -> R.Tensor((2,), "float32"):
            if c:
                x = t[0]
                r = Module.f((x, x), c)
            else:
                r = t[1]
            return r
        """,
        after="""
        @R.function
        def main(a: R.Tensor((2,), "float32"), c: R.Tensor((), "bool")):
            y = Module.f(a, a, c)
            return y

        @R.function(private=True)
        def f(
            p: R.Tensor((2,), "float32"), q: R.Tensor((2,), "float32"), c: R.Tensor((), "bool")
        ) -> R.Tensor((2,), "float32"):
            if c:
                r = Module.f(p, p, c)
            else:
                r = q
            return r
        """,
    )


def test_exported_functions_and_values_keep_their_parameters():
    check_pass(
        ExpandTupleArguments(),
        before="""
        @R.function
        def main(t: R.Tuple(R.Tensor((2,), "float32"))):
            y = R.make_closure(Module.f, (t,))
            return y

        @R.function(private=True)
        def f(t: R.Tuple(R.Tensor((2,), "float32"))) -> R.Tensor((2,), "float32"):
            y = t[0]
            return y
        """,
    )
