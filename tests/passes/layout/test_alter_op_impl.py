# SPDX-License-Identifier: Apache-2.0
"""AlterOpImpl: tensor programs are replaced by others, whose buffers may lie in other layouts."""

import numpy as np
import pytest
from pass_check import check_pass, module

import relaxvm
from relaxvm import relax
from relaxvm.relax.transform import AlterOpImpl, DeadCodeElimination

ADD = """
        @T.prim_func(private=True, s_tir=True)
        def add(a: T.Buffer((16,), "float32"), b: T.Buffer((16,), "float32"), c: T.Buffer((16,), "float32")):
            T.func_attr({"operator_name": "relax.add"})
            for i in range(16):
                with T.sblock("c"):
                    v = T.axis.spatial(16, i)
                    c[v] = a[v] + b[v]
"""
ADD_2D = """
        @T.prim_func(private=True, s_tir=True)
        def relax_add_replacement(a: T.Buffer((4, %(n)d), "float32"), b: T.Buffer((4, %(n)d), "float32"), c: T.Buffer((4, %(n)d), "float32")):
            T.func_attr({"operator_name": "relax.add"})
            for i, j in T.grid(4, %(n)d):
                with T.sblock("c"):
                    u, v = T.axis.remap("SS", [i, j])
                    c[u, v] = a[u, v] + b[u, v]
"""
MAIN = """
        @R.function
        def main(x: R.Tensor((16,), "float32"), y: R.Tensor((16,), "float32")) -> R.Tensor((16,), "float32"):
            cls = Module
            with R.dataflow():
                z = R.call_tir(cls.add, (x, y), out_ty=R.Tensor((16,), "float32"))
                R.output(z)
            return z
"""


def replacement(text: str):
    return next(iter(module(text).functions.values()))


def altered(programs, layouts):
    """The pass, and what removes the programs that are replaced."""
    return lambda mod: DeadCodeElimination()(AlterOpImpl(programs, layouts)(mod))


def test_layouts_change_around_the_call():
    tile = lambda i: (i // 4, i % 4)
    check_pass(
        altered({"relax.add": replacement(ADD_2D % {"n": 4})}, {"relax.add": [tile, tile, tile]}),
        before=ADD + MAIN,
        after=ADD_2D % {"n": 4}
        + """
        @R.function
        def main(x: R.Tensor((16,), "float32"), y: R.Tensor((16,), "float32")) -> R.Tensor((16,), "float32"):
            cls = Module
            with R.dataflow():
                lv: R.Tensor((4, 4), "float32") = R.layout_transform(x, index_map=lambda i: (i // 4, i % 4))
                lv1: R.Tensor((4, 4), "float32") = R.layout_transform(y, index_map=lambda i: (i // 4, i % 4))
                lv2 = R.call_tir(cls.relax_add_replacement, (lv, lv1), out_ty=R.Tensor((4, 4), "float32"))
                z: R.Tensor((16,), "float32") = R.layout_transform(lv2, index_map=lambda i, j: (i * 4 + j,))
                R.output(z)
            return z
""",
    )


def test_padding_is_taken_off():
    tile = lambda i: (i // 5, i % 5)
    check_pass(
        altered(
            {"relax.add": replacement(ADD_2D % {"n": 5})},
            {"relax.add": [tile, None, tile]},
        ),
        before=ADD + MAIN.replace("y: R.Tensor((16,)", "y: R.Tensor((4, 5)"),
        after=ADD_2D % {"n": 5}
        + """
        @T.prim_func(private=True, s_tir=True)
        def remove_pad(var_input: T.handle, var_output: T.handle):
            T.func_attr({"operator_name": "remove_pad", "tirx.noalias": True})
            p0 = T.int64()
            input = T.match_buffer(var_input, (p0,))
            i0 = T.int64()
            output = T.match_buffer(var_output, (i0,))
            for ax0 in range(i0):
                with T.sblock("output"):
                    v_ax0 = T.axis.spatial(i0, ax0)
                    output[v_ax0] = input[v_ax0]

        @R.function
        def main(x: R.Tensor((16,), "float32"), y: R.Tensor((4, 5), "float32")) -> R.Tensor((16,), "float32"):
            cls = Module
            with R.dataflow():
                lv: R.Tensor((4, 5), "float32") = R.layout_transform(x, index_map=lambda i: (i // 5, i % 5))
                lv2 = R.call_tir(cls.relax_add_replacement, (lv, y), out_ty=R.Tensor((4, 5), "float32"))
                lv3: R.Tensor((20,), "float32") = R.layout_transform(lv2, index_map=lambda i, j: (i * 5 + j,))
                z = R.call_tir(cls.remove_pad, (lv3,), out_ty=R.Tensor((16,), "float32"))
                R.output(z)
            return z
""",
    )


def test_several_results_come_back_one_by_one():
    split = """
        @T.prim_func(private=True, s_tir=True)
        def %s(a: T.Buffer((16,), "float32"), b: T.Buffer(%s, "float32"), c: T.Buffer((16,), "float32")):
            T.func_attr({"operator_name": "my.split"})
            for i in range(16):
                with T.sblock("b"):
                    v = T.axis.spatial(16, i)
                    b[%s] = a[v]
                    c[v] = a[v]
"""
    old, new = (
        split % ("f", "(16,)", "v"),
        split % ("my_split_replacement", "(2, 8)", "v // 8, v % 8"),
    )
    check_pass(
        altered(
            {"my.split": replacement(new)}, {"my.split": [None, lambda i: (i // 8, i % 8), None]}
        ),
        before=old
        + """
        @R.function
        def main(x: R.Tensor((16,), "float32")):
            cls = Module
            z = R.call_tir(cls.f, (x,), out_ty=[R.Tensor((16,), "float32"), R.Tensor((16,), "float32")])
            return z
""",
        after=new
        + """
        @R.function
        def main(x: R.Tensor((16,), "float32")):
            cls = Module
            lv = R.call_tir(cls.my_split_replacement, (x,), out_ty=[R.Tensor((2, 8), "float32"), R.Tensor((16,), "float32")])
            lv1: R.Tensor((2, 8), "float32") = lv[0]
            lv2: R.Tensor((16,), "float32") = R.layout_transform(lv1, index_map=lambda i, j: (i * 8 + j,))
            lv3: R.Tensor((16,), "float32") = lv[1]
            z = (lv2, lv3)
            return z
""",
    )


def test_without_layouts_only_the_program_changes():
    negative = ADD.replace("a[v] + b[v]", "a[v] - b[v]")
    check_pass(
        altered({"relax.add": replacement(negative)}, {"relax.add": []}),
        before=ADD + MAIN,
        after=negative.replace("def add", "def relax_add_replacement")
        + MAIN.replace("cls.add", "cls.relax_add_replacement"),
    )


def test_result_is_the_same():
    tile = lambda i: (i // 5, i % 5)
    given = module(ADD + MAIN)
    new = replacement(ADD_2D % {"n": 5})
    result = AlterOpImpl({"relax.add": new}, {"relax.add": [tile] * 3})(given)
    x, y = np.arange(16, dtype="f4"), np.linspace(0, 1, 16, dtype="f4")
    vm = relax.VirtualMachine(relaxvm.compile(result), relaxvm.cpu())
    got = vm["main"](relaxvm.runtime.tensor(x), relaxvm.runtime.tensor(y)).numpy()
    np.testing.assert_array_equal(got, x + y)


def test_other_operators_stay():
    given = module(ADD + MAIN)
    new = replacement(ADD_2D % {"n": 4})
    assert AlterOpImpl({"relax.subtract": new}, {"relax.subtract": []})(given).same_as(given)


@pytest.mark.parametrize(
    "layouts, message",
    [
        ({}, "op_buffer_transforms says nothing of relax.add"),
        (
            {"relax.add": [None]},
            "has 1 layouts for relax.add, whose replacement has 3 parameters and whose call has 3 tensors",
        ),
        (
            {"relax.add": [None, None, lambda i: (i * i,)]},
            "the layout of a result of type .* has 1 indices and no way back",
        ),
    ],
)
def test_layouts_that_do_not_fit_are_an_error(layouts, message):
    given = module(ADD + MAIN)
    new = replacement(ADD_2D % {"n": 4})
    with pytest.raises(ValueError, match=message):
        AlterOpImpl({"relax.add": new}, layouts)(given)


def test_a_layout_is_a_map_or_a_function():
    with pytest.raises(TypeError, match="a layout is an IndexMap"):
        AlterOpImpl({}, {"relax.add": ["NCHW"]})
