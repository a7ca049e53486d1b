# SPDX-License-Identifier: Apache-2.0
"""StaticPlanBlockMemory: tensors take over storages of tensors that nobody reads any more."""

import pytest
from pass_check import check_pass, module

from relaxvm.relax.transform import StaticPlanBlockMemory

PROGRAM = """
    @T.prim_func(private=True)
    def f(A: T.Buffer((T.int64(8),), "float32"), B: T.Buffer((T.int64(8),), "float32")):
        for i in range(T.int64(8)):
            B[i] = A[i] + T.float32(1)
"""


def test_third_tensor_takes_the_storage_of_the_first():
    check_pass(
        StaticPlanBlockMemory(),
        before=PROGRAM
        + """
    @R.function
    def main(x: R.Tensor((8,), "float32")) -> R.Tensor((8,), "float32"):
        R.func_attr({"relax.force_pure": True})
        a: R.Tensor((8,), "float32") = R.builtin.alloc_tensor(R.shape([8]), R.dtype("float32"), R.prim_value(0))
        _1: R.Tuple() = Module.f(x, a)
        b: R.Tensor((8,), "float32") = R.builtin.alloc_tensor(R.shape([8]), R.dtype("float32"), R.prim_value(0))
        _2: R.Tuple() = Module.f(a, b)
        c: R.Tensor((8,), "float32") = R.builtin.alloc_tensor(R.shape([8]), R.dtype("float32"), R.prim_value(0))
        _3: R.Tuple() = Module.f(b, c)
        d: R.Tensor((8,), "float32") = R.builtin.alloc_tensor(R.shape([8]), R.dtype("float32"), R.prim_value(0))
        _4: R.Tuple() = Module.f(c, d)
        return d
    """,
        after=PROGRAM
        + """
    @R.function
    def main(x: R.Tensor((8,), "float32")) -> R.Tensor((8,), "float32"):
        R.func_attr({"relax.force_pure": True})
        s: R.Any = R.memory.alloc_storage(R.shape([32]), R.prim_value(0), R.str("global"), R.dtype("float32"))
        a: R.Tensor((8,), "float32") = R.memory.alloc_tensor(s, R.prim_value(0), R.shape([8]), R.dtype("float32"))
        _1: R.Tuple() = Module.f(x, a)
        t: R.Any = R.memory.alloc_storage(R.shape([32]), R.prim_value(0), R.str("global"), R.dtype("float32"))
        b: R.Tensor((8,), "float32") = R.memory.alloc_tensor(t, R.prim_value(0), R.shape([8]), R.dtype("float32"))
        _2: R.Tuple() = Module.f(a, b)
        c: R.Tensor((8,), "float32") = R.memory.alloc_tensor(s, R.prim_value(0), R.shape([8]), R.dtype("float32"))
        _3: R.Tuple() = Module.f(b, c)
        d: R.Tensor((8,), "float32") = R.builtin.alloc_tensor(R.shape([8]), R.dtype("float32"), R.prim_value(0))
        _4: R.Tuple() = Module.f(c, d)
        return d
    """,
    )


def test_what_a_branch_reads_keeps_its_allocation():
    check_pass(
        StaticPlanBlockMemory(),
        before=PROGRAM
        + """
    @R.function
    def main(x: R.Tensor((8,), "float32"), c: R.Prim("bool")) -> R.Tensor((8,), "float32"):
        R.func_attr({"relax.force_pure": True})
        a: R.Tensor((8,), "float32") = R.builtin.alloc_tensor(R.shape([8]), R.dtype("float32"), R.prim_value(0))
        _1: R.Tuple() = Module.f(x, a)
        if c:
            y: R.Tensor((8,), "float32") = a
        else:
            y: R.Tensor((8,), "float32") = x
        return y
    """,
    )


def plan(attrs: str) -> str:
    return StaticPlanBlockMemory()(
        module(
            f"""
            @R.function
            def main(s: R.Shape(["n"])) -> R.Tensor(("n",), "float32"):
                R.func_attr({{"relax.force_pure": True, {attrs}}})
                n = T.int64()
                a: R.Tensor((n,), "float32") = R.builtin.alloc_tensor(R.shape([n]), R.dtype("float32"), R.prim_value(0))
                _1: R.Tuple() = R.call_packed("fill", a, ty_args=(R.Tuple(),))
                b: R.Tensor((n,), "float32") = R.builtin.alloc_tensor(R.shape([n]), R.dtype("float32"), R.prim_value(0))
                _2: R.Tuple() = R.call_packed("copy", a, b, ty_args=(R.Tuple(),))
                return b
            """
        )
    )["main"].script()


def test_bounded_size_is_reserved_at_its_largest():
    assert "R.shape([80])" in plan('"tir_var_upper_bound": {"n": 20}')


def test_symbolic_results_get_a_storage_when_asked():
    text = plan('"tir_var_upper_bound": {"n": 20}, "relax.memory_plan_dynamic_func_output": True')
    assert text.count("memory.alloc_storage") == 2
    assert "memory_plan_dynamic_func_output" not in text


def test_bound_must_be_a_number():
    with pytest.raises(TypeError, match="must be an integer"):
        plan('"tir_var_upper_bound": {"n": [4]}')
