# SPDX-License-Identifier: Apache-2.0
"""FoldScaleAxis: a factor for each channel goes into the weight."""

from pass_check import check_pass

from relaxvm.relax.transform import FoldScaleAxis


def test_factor_goes_into_the_weight():
    check_pass(
        FoldScaleAxis(),
        before="""
        @R.function
        def main(x: R.Tensor((1, 2, 8, 8), "float32"), w: R.Tensor((4, 2, 3, 3), "float32"),
                 s: R.Tensor((1, 4, 1, 1), "float32")):
            R.func_attr({"num_input": 1})
            with R.dataflow():
                c = R.nn.conv2d(x, w)
                gv = R.multiply(c, s)
                R.output(gv)
            return gv
        """,
        after="""
        @R.function
        def main(x: R.Tensor((1, 2, 8, 8), "float32"), w: R.Tensor((4, 2, 3, 3), "float32"),
                 s: R.Tensor((1, 4, 1, 1), "float32")):
            R.func_attr({"num_input": 1})
            with R.dataflow():
                c = R.nn.conv2d(x, w)
                t: R.Tensor((4, 1, 1, 1), "float32") = R.reshape(s, R.shape([4, 1, 1, 1]))
                u = R.multiply(w, t)
                gv = R.nn.conv2d(x, u)
                R.output(gv)
            return gv
        """,
    )


def test_bias_is_scaled_as_well():
    check_pass(
        FoldScaleAxis(),
        before="""
        @R.function
        def main(x: R.Tensor((1, 2, 8, 8), "float32"), w: R.Tensor((4, 2, 3, 3), "float32"),
                 b: R.Tensor((4, 1, 1), "float32"), s: R.Tensor((4, 1, 1), "float32")):
            R.func_attr({"num_input": 1})
            with R.dataflow():
                c = R.nn.conv2d(x, w)
                d = R.add(c, b)
                gv = R.multiply(s, d)
                R.output(gv)
            return gv
        """,
        after="""
        @R.function
        def main(x: R.Tensor((1, 2, 8, 8), "float32"), w: R.Tensor((4, 2, 3, 3), "float32"),
                 b: R.Tensor((4, 1, 1), "float32"), s: R.Tensor((4, 1, 1), "float32")):
            R.func_attr({"num_input": 1})
            with R.dataflow():
                c = R.nn.conv2d(x, w)
                d = R.add(c, b)
                bs = R.multiply(b, s)
                t: R.Tensor((4, 1, 1, 1), "float32") = R.reshape(s, R.shape([4, 1, 1, 1]))
                u = R.multiply(w, t)
                v = R.nn.conv2d(x, u)
                gv = R.add(v, bs)
                R.output(gv)
            return gv
        """,
    )


def test_convolution_that_is_used_elsewhere_stays():
    check_pass(
        FoldScaleAxis(),
        before="""
        @R.function
        def main(x: R.Tensor((1, 2, 8, 8), "float32"), w: R.Tensor((4, 2, 3, 3), "float32"),
                 s: R.Tensor((1, 4, 1, 1), "float32")):
            R.func_attr({"num_input": 1})
            with R.dataflow():
                c = R.nn.conv2d(x, w)
                gv = R.multiply(c, s)
                gv1 = R.add(c, gv)
                R.output(gv1)
            return gv1
        """,
    )


def test_factor_that_comes_at_run_time_stays():
    check_pass(
        FoldScaleAxis(),
        before="""
        @R.function
        def main(x: R.Tensor((1, 2, 8, 8), "float32"), w: R.Tensor((4, 2, 3, 3), "float32"),
                 s: R.Tensor((1, 4, 1, 1), "float32")):
            with R.dataflow():
                c = R.nn.conv2d(x, w)
                gv = R.multiply(c, s)
                R.output(gv)
            return gv
        """,
    )
