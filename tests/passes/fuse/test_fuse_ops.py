# SPDX-License-Identifier: Apache-2.0
"""FuseOps: calls that run as one program become a function of their own.  Which ones: tests/passes/fuse/fuse_test.cc."""

from fused_programs import ADD_ONE, TWICE
from pass_check import check_pass, module

from relaxvm.relax.transform import FuseOps

CHAIN = """
@R.function
def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
    with R.dataflow():
        a = R.call_tir(Module.add_one, (x,), out_ty=R.Tensor((4,), "float32"))
        gv = R.call_tir(Module.twice, (a,), out_ty=R.Tensor((4,), "float32"))
        R.output(gv)
    return gv
"""


def test_group_becomes_a_primitive_function():
    check_pass(
        FuseOps(),
        before=CHAIN + ADD_ONE + TWICE,
        after="""
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            with R.dataflow():
                gv: R.Tensor((4,), "float32") = Module.fused_add_one_twice(x)
                R.output(gv)
            return gv

        @R.function(private=True)
        def fused_add_one_twice(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            R.func_attr({"Primitive": 1})
            with R.dataflow():
                a = R.call_tir(Module.add_one, (x,), out_ty=R.Tensor((4,), "float32"))
                gv = R.call_tir(Module.twice, (a,), out_ty=R.Tensor((4,), "float32"))
                R.output(gv)
            return gv
        """
        + ("\n" + ADD_ONE + TWICE).replace("\n", "\n        "),
    )


def test_level_zero_fuses_nothing():
    check_pass(FuseOps(fuse_opt_level=0), before=CHAIN + ADD_ONE + TWICE)


def test_calls_outside_of_dataflow_blocks_stay():
    check_pass(
        FuseOps(),
        before="""
@R.function
def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
    a = R.call_tir(Module.add_one, (x,), out_ty=R.Tensor((4,), "float32"))
    gv = R.call_tir(Module.twice, (a,), out_ty=R.Tensor((4,), "float32"))
    return gv
"""
        + ADD_ONE
        + TWICE,
    )


def test_equal_groups_get_names_of_their_own():
    mod = module(
        """
@R.function
def main(x: R.Tensor((4,), "float32")):
    with R.dataflow():
        a = R.call_tir(Module.add_one, (x,), out_ty=R.Tensor((4,), "float32"))
        b = R.call_tir(Module.twice, (a,), out_ty=R.Tensor((4,), "float32"))
        c = R.call_tir(Module.add_one, (b,), out_ty=R.Tensor((4,), "float32"))
        d = R.call_tir(Module.twice, (c,), out_ty=R.Tensor((4,), "float32"))
        R.output(b, d)
    return (b, d)
"""
        + ADD_ONE
        + TWICE
    )
    names = {str(v.name_hint) for v in FuseOps()(mod).get_global_vars()}
    assert names == {"main", "add_one", "twice", "fused_add_one_twice", "fused_add_one_twice1"}
