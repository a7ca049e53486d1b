# SPDX-License-Identifier: Apache-2.0
"""BundleModelParams: weights become one tuple."""

from pass_check import check_pass

from relaxvm.relax.transform import BundleModelParams


def test_each_weight_is_read_where_it_is_needed():
    check_pass(
        BundleModelParams("weights"),
        before="""
        @R.function
        def main(
            x: R.Tensor((2,), "float32"), v: R.Tensor((2,), "float32"), w: R.Tensor((2,), "float32")
        ) -> R.Tensor((2,), "float32"):
            R.func_attr({"num_input": 1})
            a: R.Tensor((2,), "float32") = R.add(x, w)
            b: R.Tensor((2,), "float32") = R.add(a, v)
            return b
        """,
        after="""
        @R.function
        def main(
            x: R.Tensor((2,), "float32"),
            weights: R.Tuple(R.Tensor((2,), "float32"), R.Tensor((2,), "float32")),
        ) -> R.Tensor((2,), "float32"):
            R.func_attr({"num_input": 1})
            w: R.Tensor((2,), "float32") = weights[1]
            a: R.Tensor((2,), "float32") = R.add(x, w)
            v: R.Tensor((2,), "float32") = weights[0]
            b: R.Tensor((2,), "float32") = R.add(a, v)
            return b
        """,
    )


def test_function_without_the_attribute_stays():
    check_pass(
        BundleModelParams(),
        before="""
        @R.function
        def main(x: R.Tensor((2,), "float32"), w: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            a: R.Tensor((2,), "float32") = R.add(x, w)
            return a
        """,
    )


def test_size_that_is_a_weight_is_read_first():
    check_pass(
        BundleModelParams(),
        before="""
        @R.function
        def main(x: R.Tensor((2,), "float32"), n: R.Prim("int64"), w: R.Tensor(("n",), "float32")) -> R.Tensor(
            (2,), "float32"
        ):
            R.func_attr({"num_input": 1})
            a: R.Tensor((), "float32") = R.sum(w)
            b: R.Tensor((2,), "float32") = R.add(x, a)
            return b
        """,
        after="""
        @R.function
        def main(
            x: R.Tensor((2,), "float32"), params: R.Tuple(R.Prim("int64"), R.Tensor(ndim=1, dtype="float32"))
        ) -> R.Tensor((2,), "float32"):
            R.func_attr({"num_input": 1})
            n: R.Prim("int64") = params[0]
            t: R.Tensor(ndim=1, dtype="float32") = params[1]
            w = R.match_cast(t, R.Tensor((n,), "float32"))
            a: R.Tensor((), "float32") = R.sum(w)
            b: R.Tensor((2,), "float32") = R.add(x, a)
            return b
        """,
    )
