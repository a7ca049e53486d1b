# SPDX-License-Identifier: Apache-2.0
"""SpecializePrimFuncBasedOnCallSite: buffers get the memory scopes of their arguments' devices."""

from pass_check import check_pass, module

from relaxvm.relax.transform import SpecializePrimFuncBasedOnCallSite

DEVICES = 'I.module_global_infos({"vdevice": [I.vdevice("null", 0, "global.texture"), I.vdevice("null", 0)]})'
PROGRAM = """
@T.prim_func(private=True, s_tir=True)
def %(name)s(a: T.Buffer((2, 3), "float32"%(a)s), b: T.Buffer((2, 3), "float32"%(b)s)):
    %(attr)s
    for i, j in T.grid(2, 3):
        with T.sblock("b"):
            vi, vj = T.axis.remap("SS", [i, j])
            b[vi, vj] = a[vi, vj] + T.float32(1)
"""
TEXTURE, GLOBAL = '"null:0"', '"null:1"'


def program(name: str, a: str = "", b: str = "", scoped: bool = False) -> str:
    return PROGRAM % {
        "name": name,
        "a": a and f', scope="{a}"',
        "b": b and f', scope="{b}"',
        "attr": 'T.func_attr({"scoped": 1})' if scoped else "pass",
    }


def main(first: str, second: str) -> str:
    return f"""
@R.function
def main(x: R.Tensor((2, 3), "float32", {TEXTURE}), z: R.Tensor((2, 3), "float32")):
    cls = Module
    a = R.call_tir(cls.{first}, (x,), out_ty=R.Tensor((2, 3), "float32", {TEXTURE}))
    b = R.call_tir(cls.{second}, (a,), out_ty=R.Tensor((2, 3), "float32", {GLOBAL}))
    c = R.call_tir(cls.{first}, (a,), out_ty=R.Tensor((2, 3), "float32", {TEXTURE}))
    return (b, c)
"""


def test_scopes_follow_arguments_and_results():
    check_pass(
        SpecializePrimFuncBasedOnCallSite(),
        before=DEVICES + program("f") + main("f", "f"),
        after=DEVICES
        + program("f", "global.texture", "global.texture", scoped=True)
        + program("f1", "global.texture", scoped=True)
        + main("f", "f1"),
    )


def test_values_without_device_leave_the_scopes():
    call = """
@R.function
def main(z: R.Tensor((2, 3), "float32")):
    cls = Module
    c = R.call_tir(cls.f, (z,), out_ty=R.Tensor((2, 3), "float32"))
    return c
"""
    check_pass(
        SpecializePrimFuncBasedOnCallSite(),
        before=program("f", "shared") + call,
        after=program("f", "shared", scoped=True) + call,
    )


def test_a_second_run_changes_nothing():
    once = SpecializePrimFuncBasedOnCallSite()(module(DEVICES + program("f") + main("f", "f")))
    assert SpecializePrimFuncBasedOnCallSite()(once).same_as(once)
