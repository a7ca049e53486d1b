# SPDX-License-Identifier: Apache-2.0
"""VMShapeLower: sizes are stored, computed once and read back; values are checked where they enter."""

from __future__ import annotations

import re

import pytest

import relaxvm
from relaxvm.relax import transform
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.script import tirx as T


def lowered(mod: relaxvm.IRModule) -> str:
    return transform.VMShapeLower()(mod).script()


def test_static_function_needs_no_heap() -> None:
    @I.ir_module
    class Mod:
        @R.function
        def main(x: R.Tensor((2, 3), "float32")):
            return R.shape([2, 3])

    text = lowered(Mod)
    assert "alloc_shape_heap" not in text
    assert re.search(
        r'match_shape", x, R\.null_value\(\), R\.prim_value\(2\), R\.prim_value\(0\), R\.prim_value\(2\)',
        text,
    )


def test_equal_expressions_have_one_slot_and_are_computed_once() -> None:
    @I.ir_module
    class Mod:
        @R.function
        def main(x: R.Tensor(("n", "m"), "float32")):
            n = T.int64()
            m = T.int64()
            return (R.shape([n * m, n]), R.shape([n * m, m]), R.shape([n * m, n]))

    text = lowered(Mod)
    assert text.count("= n * m") == 1
    assert text.count("vm.builtin.make_shape") == 2
    assert "R.prim_value(3),), ty_args" in text  # n, m, n * m


def test_expression_in_a_parameter_is_compared_after_its_variables_are_known() -> None:
    @I.ir_module
    class Mod:
        @R.function
        def main(x: R.Tensor(("n * 2",), "float32"), y: R.Tensor(("n",), "float32")):
            return x

    text = lowered(Mod)
    assert text.index("shape_func(shape_heap)") < text.rindex('match_shape", x')


def test_sizes_of_a_branch_are_known_in_it() -> None:
    @I.ir_module
    class Mod:
        @R.function
        def main(c: R.Tensor((), "bool"), x: R.Tensor(dtype="float32", ndim=1)):
            k = T.int64()
            if c:
                y = R.match_cast(x, R.Tensor((k,), "float32"))
                r = R.shape([k * 2])
            else:
                r = R.shape([3])
            return r

    text = lowered(Mod)
    assert text.index("if c") < text.index("shape_func(shape_heap)") < text.index("else:")


def test_size_that_nothing_defines_is_an_error() -> None:
    n = relaxvm.tirx.Var("n", "int64")
    x = relaxvm.relax.Var("x", relaxvm.relax.TensorType([4], "float32"))
    body = relaxvm.relax.SeqExpr([], relaxvm.relax.ShapeExpr([n]))
    mod = relaxvm.IRModule(
        {"main": relaxvm.relax.Function([x], body, relaxvm.relax.ShapeType(ndim=1))}
    )
    with pytest.raises(
        ValueError, match="function 'main': the symbolic size 'n' .* nothing defines it"
    ):
        transform.VMShapeLower()(mod)


def test_running_it_twice_changes_nothing() -> None:
    @I.ir_module
    class Mod:
        @R.function
        def main(x: R.Tensor(("n",), "float32")):
            n = T.int64()
            return R.shape([n + 1])

    once = transform.VMShapeLower()(Mod)
    assert transform.VMShapeLower()(once).same_as(once)


def test_division_by_a_size_of_zero_gives_zero() -> None:
    @I.ir_module
    class Mod:
        @R.function
        def main(x: R.Tensor(("n", "m"), "float32")):
            n = T.int64()
            m = T.int64()
            return R.shape([n // m, n % m])

    import numpy as np

    vm = relaxvm.VirtualMachine(relaxvm.compile(Mod), relaxvm.cpu())
    assert tuple(vm["main"](relaxvm.runtime.tensor(np.zeros((7, 2), "float32")))) == (3, 1)
    assert tuple(vm["main"](relaxvm.runtime.tensor(np.zeros((7, 0), "float32")))) == (0, 0)


def test_relax_form_has_one_heap_and_plain_stores() -> None:
    @I.ir_module
    class Mod:
        @R.function
        def main(x: R.Tensor(("n", "m"), "float32")):
            n = T.int64()
            m = T.int64()
            return R.shape([n * m, 2])

    after = transform.VMShapeLower(emit_err_ctx=False)(Mod)
    assert "shapes_lowered" not in after.script()
    program = after["shape_func"]
    assert dict(program.attrs) == {"tirx.is_host_func": True}
    assert [int(d) for d in program.params[0].ty.shape] == [3]
    text = after["main"].script()
    assert text.count("alloc_shape_heap") == 1
    assert 'R.str("")' in text and "parameter" not in text


def test_relax_form_of_static_sizes_binds_no_heap() -> None:
    @I.ir_module
    class Mod:
        @R.function
        def main(x: R.Tensor((2, 3), "float32"), w: R.Tensor((3,), "float32")):
            R.func_attr({"num_input": 1})
            return x

    bindings = transform.VMShapeLower(emit_err_ctx=False)(Mod)["main"].body.blocks[0].bindings
    heap = bindings[0]
    assert heap.var.name == "shape_heap" and "null_value" in str(heap.value)
    # The weight is taken on trust: x has its kind and its sizes checked, nothing else is.
    assert [b.value.op.global_symbol for b in bindings[1:]] == [
        "vm.builtin.check_tensor_info",
        "vm.builtin.match_shape",
    ]
    assert bindings[2].value.args[1].same_as(heap.var)
