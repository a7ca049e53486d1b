# SPDX-License-Identifier: Apache-2.0
"""SplitLayoutRewritePreproc: what brings weights into another layout becomes a program of its own."""

import numpy as np
from pass_check import check_pass, module

import relaxvm
from relaxvm import relax
from relaxvm.relax.transform import SplitLayoutRewritePreproc

PREPARE = """
            for i, j in T.grid(4, 6):
                with T.sblock("prepare"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    %s
                    W_t[vj, vi] = W[vi, vj]
"""
USE = """
            for i, j in T.grid(4, 6):
                with T.sblock("use"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    Y[vi, vj] = X[vi, vj] * W_t[vj, vi]%s
"""
MARK = 'T.sblock_attr({"meta_schedule.layout_rewrite_preproc": True})'
WHOLE = (
    """
        @T.prim_func(private=True, s_tir=True)
        def f(X: T.Buffer((4, 6), "float32"), W: T.Buffer((4, 6), "float32"), Y: T.Buffer((4, 6), "float32")):
            T.func_attr({"layout_free_buffers": [1], "tirx.noalias": True})
            W_t = T.sblock_alloc_buffer((6, 4), "float32")
"""
    + PREPARE % MARK
    + USE
)
MAIN = """
        @R.function
        def main(x: R.Tensor((4, 6), "float32"), w: R.Tensor((4, 6), "float32")) -> R.Tensor((4, 6), "float32"):
            cls = Module
            with R.dataflow():
                y = R.call_tir(cls.f, (x, w), out_ty=R.Tensor((4, 6), "float32"))
                R.output(y)
            return y
"""
PREPACK = (
    """
        @T.prim_func(private=True, s_tir=True)
        def f_weight_prepack(W: T.Buffer((4, 6), "float32"), W_t: T.Buffer((6, 4), "float32")):
            T.func_attr({"tirx.noalias": True})
"""
    + PREPARE % "pass"
)


def test_weight_gives_way_to_its_prepared_form():
    check_pass(
        SplitLayoutRewritePreproc(),
        before=WHOLE % "" + MAIN,
        after=PREPACK
        + """
        @T.prim_func(private=True, s_tir=True)
        def f_prepacked(X: T.Buffer((4, 6), "float32"), W_t: T.Buffer((6, 4), "float32"), Y: T.Buffer((4, 6), "float32")):
            T.func_attr({"tirx.noalias": True})
"""
        + USE % ""
        + """
        @R.function
        def main(x: R.Tensor((4, 6), "float32"), w: R.Tensor((4, 6), "float32")) -> R.Tensor((4, 6), "float32"):
            cls = Module
            with R.dataflow():
                lv = R.call_tir(cls.f_weight_prepack, (w,), out_ty=R.Tensor((6, 4), "float32"))
                lv1 = R.call_tir(cls.f_prepacked, (x, lv), out_ty=R.Tensor((4, 6), "float32"))
                y: R.Tensor((4, 6), "float32") = lv1
                R.output(y)
            return y
""",
    )


def test_weight_that_is_read_later_too_stays_an_argument():
    given = module(WHOLE % " + W[vi, vj]" + MAIN)
    result = SplitLayoutRewritePreproc()(given)
    assert [p.name for p in result["f_prepacked"].params] == ["X", "W", "W_t", "Y"]
    x = np.arange(24, dtype="f4").reshape(4, 6)
    w = np.linspace(-1, 1, 24, dtype="f4").reshape(4, 6)
    vm = relax.VirtualMachine(relaxvm.compile(result), relaxvm.cpu())
    got = vm["main"](relaxvm.runtime.tensor(x), relaxvm.runtime.tensor(w)).numpy()
    np.testing.assert_allclose(got, x * w + w, rtol=1e-6)


def test_several_weights_are_prepared_by_one_program():
    prepare_both = PREPARE % MARK + (PREPARE % MARK).replace("W", "V")
    given = module(
        """
        @T.prim_func(private=True, s_tir=True)
        def f(V: T.Buffer((4, 6), "float32"), X: T.Buffer((4, 6), "float32"), W: T.Buffer((4, 6), "float32"), Y: T.Buffer((4, 6), "float32")):
            W_t = T.sblock_alloc_buffer((6, 4), "float32")
            V_t = T.sblock_alloc_buffer((6, 4), "float32")
"""
        + prepare_both
        + USE % " - V_t[vj, vi]"
        + """
        @R.function
        def main(x: R.Tensor((4, 6), "float32"), w: R.Tensor((4, 6), "float32")) -> R.Tensor((4, 6), "float32"):
            cls = Module
            y = R.call_tir(cls.f, (w, x, w), out_ty=R.Tensor((4, 6), "float32"))
            return y
"""
    )
    result = SplitLayoutRewritePreproc()(given)
    assert [p.name for p in result["f_weight_prepack"].params] == ["V", "W", "W_t", "V_t"]
    assert [p.name for p in result["f_prepacked"].params] == ["V_t", "X", "W_t", "Y"]
    x = np.arange(24, dtype="f4").reshape(4, 6)
    w = np.linspace(-1, 1, 24, dtype="f4").reshape(4, 6)
    vm = relax.VirtualMachine(relaxvm.compile(result), relaxvm.cpu())
    got = vm["main"](relaxvm.runtime.tensor(x), relaxvm.runtime.tensor(w)).numpy()
    np.testing.assert_allclose(got, x * w - w, rtol=1e-6)


def test_preparation_of_what_the_program_computed_stays():
    check_pass(
        SplitLayoutRewritePreproc(),
        before="""
        @T.prim_func(private=True, s_tir=True)
        def f(X: T.Buffer((4, 6), "float32"), Y: T.Buffer((4, 6), "float32")):
            W = T.sblock_alloc_buffer((4, 6), "float32")
            W_t = T.sblock_alloc_buffer((6, 4), "float32")
            for i, j in T.grid(4, 6):
                with T.sblock("square"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    W[vi, vj] = X[vi, vj] * X[vi, vj]
"""
        + PREPARE % MARK
        + USE % ""
        + MAIN.replace("(x, w)", "(x,)"),
    )
