# SPDX-License-Identifier: Apache-2.0
"""AttachAttrLayoutFreeBuffers: which arguments of a tensor program are weights or constants."""

from pass_check import check_pass, module

from relaxvm.relax.transform import AttachAttrLayoutFreeBuffers

PROGRAM = """
@T.prim_func(private=True, s_tir=True)
def %s(a: T.Buffer((2, 2), "float32"), b: T.Buffer((2, 2), "float32"), c: T.Buffer((2, 2), "float32")):
    %s
    for i, j in T.grid(2, 2):
        with T.sblock("c"):
            vi, vj = T.axis.remap("SS", [i, j])
            c[vi, vj] = a[vi, vj] + b[vi, vj]
"""


def program(name: str, free: str = "") -> str:
    attrs = f'T.func_attr({{"layout_free_buffers": {free}}})' if free else "pass"
    return PROGRAM % (name, attrs)


def test_each_kind_of_call_gets_its_program():
    check_pass(
        AttachAttrLayoutFreeBuffers(),
        before=program("f")
        + """
@R.function
def main(x: R.Tensor((2, 2), "float32"), w: R.Tensor((2, 2), "float32")) -> R.Tensor((2, 2), "float32"):
    R.func_attr({"num_input": 1})
    cls = Module
    with R.dataflow():
        a = R.call_tir(cls.f, (x, w), out_ty=R.Tensor((2, 2), "float32"))
        b = R.call_tir(cls.f, (a, x), out_ty=R.Tensor((2, 2), "float32"))
        c = R.call_tir(cls.f, (w, R.const([[1, 2], [3, 4]], "float32")), out_ty=R.Tensor((2, 2), "float32"))
        d = R.call_tir(cls.f, (b, w), out_ty=R.Tensor((2, 2), "float32"))
        e = R.call_tir(cls.f, (c, d), out_ty=R.Tensor((2, 2), "float32"))
        R.output(e)
    return e
""",
        after=program("f1", "[1]")
        + program("f2", "[]")
        + program("f3", "[0, 1]")
        + """
@R.function
def main(x: R.Tensor((2, 2), "float32"), w: R.Tensor((2, 2), "float32")) -> R.Tensor((2, 2), "float32"):
    R.func_attr({"num_input": 1})
    cls = Module
    with R.dataflow():
        a = R.call_tir(cls.f1, (x, w), out_ty=R.Tensor((2, 2), "float32"))
        b = R.call_tir(cls.f2, (a, x), out_ty=R.Tensor((2, 2), "float32"))
        c = R.call_tir(cls.f3, (w, R.const([[1, 2], [3, 4]], "float32")), out_ty=R.Tensor((2, 2), "float32"))
        d = R.call_tir(cls.f1, (b, w), out_ty=R.Tensor((2, 2), "float32"))
        e = R.call_tir(cls.f2, (c, d), out_ty=R.Tensor((2, 2), "float32"))
        R.output(e)
    return e
""",
    )


def test_parameters_are_no_weights_without_num_input():
    check_pass(
        AttachAttrLayoutFreeBuffers(),
        before=program("f")
        + """
@R.function
def main(x: R.Tensor((2, 2), "float32"), w: R.Tensor((2, 2), "float32")):
    cls = Module
    a = R.call_tir(cls.f, (x, w), out_ty=R.Tensor((2, 2), "float32"))
    return a
""",
        after=program("f1", "[]")
        + """
@R.function
def main(x: R.Tensor((2, 2), "float32"), w: R.Tensor((2, 2), "float32")):
    cls = Module
    a = R.call_tir(cls.f1, (x, w), out_ty=R.Tensor((2, 2), "float32"))
    return a
""",
    )


def test_an_exported_program_stays_and_the_copy_is_private():
    exported = program("f").replace("private=True, ", "")
    given = module(
        exported
        + """
@R.function
def main(x: R.Tensor((2, 2), "float32")):
    cls = Module
    a = R.call_tir(cls.f, (x, x), out_ty=R.Tensor((2, 2), "float32"))
    return a
"""
    )
    result = AttachAttrLayoutFreeBuffers()(given)
    assert "layout_free_buffers" not in result["f"].attrs
    assert "global_symbol" not in result["f1"].attrs


def test_a_module_without_calls_of_programs_stays():
    given = module(
        """
@R.function
def main(x: R.Tensor((2, 2), "float32")):
    a = R.add(x, x)
    return x
"""
    )
    assert AttachAttrLayoutFreeBuffers()(given).same_as(given)
