# SPDX-License-Identifier: Apache-2.0
"""FuseTIR: a group becomes one program, results in between become temporaries."""

from fused_programs import ADD_ONE, TWICE
from pass_check import check_pass

from relaxvm.relax.transform import FuseTIR


def test_bodies_stand_one_after_another():
    check_pass(
        FuseTIR(),
        before="""
@R.function
def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
    with R.dataflow():
        gv: R.Tensor((4,), "float32") = Module.fused(x)
        R.output(gv)
    return gv

@R.function(private=True)
def fused(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
    R.func_attr({"Primitive": True})
    with R.dataflow():
        a = R.call_tir(Module.add_one, (x,), out_ty=R.Tensor((4,), "float32"))
        gv = R.call_tir(Module.twice, (a,), out_ty=R.Tensor((4,), "float32"))
        R.output(gv)
    return gv
"""
        + ADD_ONE
        + TWICE,
        after="""
@R.function
def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
    with R.dataflow():
        gv = R.call_tir(Module.fused, (x,), out_ty=R.Tensor((4,), "float32"))
        R.output(gv)
    return gv

@T.prim_func(private=True, s_tir=True)
def fused(x: T.Buffer((T.int64(4),), "float32"), y: T.Buffer((T.int64(4),), "float32")):
    T.func_attr({"tirx.noalias": True})
    a = T.alloc_buffer((T.int64(4),), "float32")
    for i in range(T.int64(4)):
        with T.sblock("add_one"):
            vi = T.axis.spatial(T.int64(4), i)
            a[vi] = x[vi] + T.float32(1)
    for i in range(T.int64(4)):
        with T.sblock("twice"):
            vi = T.axis.spatial(T.int64(4), i)
            y[vi] = a[vi] * T.float32(2)
""",
    )


def test_function_with_other_work_is_left_alone():
    check_pass(
        FuseTIR(),
        before="""
@R.function
def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
    gv: R.Tensor((4,), "float32") = Module.group(x)
    return gv

@R.function(private=True)
def group(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
    R.func_attr({"Primitive": True})
    with R.dataflow():
        a = R.exp(x)
        gv = R.call_tir(Module.twice, (a,), out_ty=R.Tensor((4,), "float32"))
        R.output(gv)
    return gv
"""
        + TWICE,
    )
