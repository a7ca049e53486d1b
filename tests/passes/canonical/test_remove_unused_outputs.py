# SPDX-License-Identifier: Apache-2.0
"""RemoveUnusedOutputs: results that nobody takes."""

from pass_check import check_pass

from relaxvm.relax.transform import RemoveUnusedOutputs

F32 = 'R.Tensor((2,), "float32")'


def test_two_of_three():
    check_pass(
        RemoveUnusedOutputs(),
        before=f"""
        @R.function
        def main(a: {F32}):
            t = Module.f(a)
            x = t[0]
            z = t[2]
            y = R.add(x, z)
            return y

        @R.function(private=True)
        def f(a: {F32}) -> R.Tuple({F32}, {F32}, {F32}):
            b = R.exp(a)
            c = R.sin(b)
            return (a, b, c)
        """,
        after=f"""
        @R.function
        def main(a: {F32}):
            t = Module.f(a)
            x = t[0]
            z = t[1]
            y = R.add(x, z)
            return y

        @R.function(private=True)
        def f(a: {F32}) -> R.Tuple({F32}, {F32}):
            b = R.exp(a)
            c = R.sin(b)
            return (a, c)
        """,
    )


def test_a_single_one_is_no_tuple():
    check_pass(
        RemoveUnusedOutputs(),
        before=f"""
        @R.function
        def main(a: {F32}):
            with R.dataflow():
                t = Module.f(a)
                x = t[1]
                y = R.exp(x)
                R.output(y)
            return y

        @R.function(private=True)
        def f(a: {F32}) -> R.Tuple({F32}, {F32}):
            b = R.exp(a)
            t = (a, b)
            return t
        """,
        after=f"""
        @R.function
        def main(a: {F32}):
            with R.dataflow():
                t = Module.f(a)
                y = R.exp(t)
                R.output(y)
            return y

        @R.function(private=True)
        def f(a: {F32}) -> {F32}:
            b = R.exp(a)
            return b
        """,
    )


def test_callers_together_decide():
    check_pass(
        RemoveUnusedOutputs(),
        before=f"""
        @R.function
        def one(a: {F32}):
            t = Module.f(a)
            x = t[0]
            return x

        @R.function
        def two(a: {F32}):
            t = Module.f(a)
            x = t[1]
            return x

        @R.function(private=True)
        def f(a: {F32}) -> R.Tuple({F32}, {F32}):
            b = R.exp(a)
            return (a, b)
        """,
    )


def test_a_tuple_that_is_used_as_a_whole_stays():
    check_pass(
        RemoveUnusedOutputs(),
        before=f"""
        @R.function
        def main(a: {F32}):
            t = Module.f(a)
            return t

        @R.function(private=True)
        def f(a: {F32}) -> R.Tuple({F32}, {F32}):
            b = R.exp(a)
            return (a, b)
        """,
    )
