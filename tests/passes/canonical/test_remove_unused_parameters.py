# SPDX-License-Identifier: Apache-2.0
"""RemoveUnusedParameters: parameters that a body does not use."""

from pass_check import check_pass

from relaxvm.relax.transform import RemoveUnusedParameters

F32 = 'R.Tensor((2,), "float32")'


def test_unused_parameter_and_its_arguments_go():
    check_pass(
        RemoveUnusedParameters(),
        before=f"""
        @R.function
        def main(a: {F32}, b: {F32}, c: R.Any):
            y = Module.f(c, a, b)
            return y

        @R.function(private=True)
        def f(p: R.Any, q: {F32}, r: {F32}) -> {F32}:
            y = R.exp(q)
            return y
        """,
        after=f"""
        @R.function
        def main(a: {F32}, b: {F32}, c: R.Any):
            y = Module.f(a)
            return y

        @R.function(private=True)
        def f(q: {F32}) -> {F32}:
            y = R.exp(q)
            return y
        """,
    )


def test_what_is_only_handed_on_goes_too():
    check_pass(
        RemoveUnusedParameters(),
        before=f"""
        @R.function
        def main(a: {F32}, b: {F32}):
            y = Module.f(a, b)
            return y

        @R.function(private=True)
        def f(p: {F32}, q: {F32}) -> {F32}:
            y = Module.g(p, q)
            return y

        @R.function(private=True)
        def g(p: {F32}, q: {F32}) -> {F32}:
            y = R.exp(p)
            return y
        """,
        after=f"""
        @R.function
        def main(a: {F32}, b: {F32}):
            y = Module.f(a)
            return y

        @R.function(private=True)
        def f(p: {F32}) -> {F32}:
            y = Module.g(p)
            return y

        @R.function(private=True)
        def g(p: {F32}) -> {F32}:
            y = R.exp(p)
            return y
        """,
    )


def test_a_size_that_only_it_gave_comes_as_a_shape():
    check_pass(
        RemoveUnusedParameters(),
        before="""
        @R.function
        def main(a: R.Tensor(("k", 3), "float32")) -> R.Tensor(("k",), "float32"):
            k = T.int64()
            y: R.Tensor((k,), "float32") = Module.f(a)
            return y

        @R.function(private=True)
        def f(p: R.Tensor(("n", "m"), "float32")) -> R.Tensor(("n",), "float32"):
            n = T.int64()
            y = R.zeros(R.shape([n]), "float32")
            return y
        """,
        after="""
        @R.function
        def main(a: R.Tensor(("k", 3), "float32")) -> R.Tensor(("k",), "float32"):
            k = T.int64()
            y: R.Tensor((k,), "float32") = Module.f(R.shape([k]))
            return y

        @R.function(private=True)
        def f(param_n: R.Shape(["n"])) -> R.Tensor(("n",), "float32"):
            n = T.int64()
            y = R.zeros(R.shape([n]), "float32")
            return y
        """,
    )


def test_a_size_that_a_caller_does_not_know_keeps_the_parameter():
    check_pass(
        RemoveUnusedParameters(),
        before="""
        @R.function
        def main(a: R.Tensor(ndim=1, dtype="float32")) -> R.Tensor(ndim=1, dtype="float32"):
            y: R.Tensor(ndim=1, dtype="float32") = Module.f(a)
            return y

        @R.function(private=True)
        def f(p: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
            n = T.int64()
            y = R.zeros(R.shape([n]), "float32")
            return y
        """,
    )


def test_exported_functions_keep_theirs():
    check_pass(
        RemoveUnusedParameters(),
        before=f"""
        @R.function
        def main(a: {F32}, b: {F32}):
            y = R.exp(a)
            return y
        """,
    )
