# SPDX-License-Identifier: Apache-2.0
"""EliminateCommonSubexpr: equal values are computed once."""

from pass_check import check_pass

from relaxvm.relax.transform import EliminateCommonSubexpr


def test_second_computation_becomes_an_alias():
    check_pass(
        EliminateCommonSubexpr(),
        before="""
        @R.function
        def main(x: R.Tensor((2, "n"), "float32")):
            with R.dataflow():
                a = R.exp(x)
                b = R.exp(x)
                gv = R.add(a, b)
                R.output(gv)
            return gv
        """,
        after="""
        @R.function
        def main(x: R.Tensor((2, "n"), "float32")):
            with R.dataflow():
                a = R.exp(x)
                b = a
                gv = R.add(a, a)
                R.output(gv)
            return gv
        """,
    )


def test_attributes_tell_values_apart():
    check_pass(
        EliminateCommonSubexpr(),
        before="""
        @R.function
        def main(x: R.Tensor((2, 3), "float32")):
            a = R.sum(x, axis=[0], keepdims=True)
            b = R.sum(x, axis=[1], keepdims=True)
            return R.add(a, b)
        """,
    )


def test_effects_and_allocations_stay():
    check_pass(
        EliminateCommonSubexpr(),
        before="""
        @R.function(pure=False)
        def main(x: R.Tensor((2,), "float32")):
            a = R.call_packed("next_random", ty_args=[R.Tensor((2,), "float32")])
            b = R.call_packed("next_random", ty_args=[R.Tensor((2,), "float32")])
            c = R.builtin.alloc_tensor(R.shape([2]), R.dtype("float32"), R.prim_value(0))
            d = R.builtin.alloc_tensor(R.shape([2]), R.dtype("float32"), R.prim_value(0))
            return (a, b, c, d)
        """,
    )


def test_value_before_a_branch_serves_inside():
    check_pass(
        EliminateCommonSubexpr(),
        before="""
        @R.function
        def main(x: R.Tensor((2,), "float32"), c: R.Prim("bool")):
            a = R.exp(x)
            if c:
                b = R.exp(x)
                r = R.add(b, b)
            else:
                r = R.negative(x)
            return R.add(a, r)
        """,
        after="""
        @R.function
        def main(x: R.Tensor((2,), "float32"), c: R.Prim("bool")):
            a = R.exp(x)
            if c:
                b = a
                r = R.add(a, a)
            else:
                r = R.negative(x)
            return R.add(a, r)
        """,
    )


def test_value_inside_a_branch_does_not_serve_after_it():
    check_pass(
        EliminateCommonSubexpr(),
        before="""
        @R.function
        def main(x: R.Tensor((2,), "float32"), c: R.Prim("bool")):
            if c:
                b = R.exp(x)
                r = R.add(b, b)
            else:
                r = R.negative(x)
            d = R.exp(x)
            return R.add(d, r)
        """,
    )


def test_inner_variable_serves_inside_its_block_and_the_output_outside():
    check_pass(
        EliminateCommonSubexpr(),
        before="""
        @R.function
        def main(x: R.Tensor((2,), "float32")):
            with R.dataflow():
                a = R.exp(x)
                b = R.exp(x)
                c = R.add(a, b)
                R.output(b, c)
            d = R.exp(x)
            return (b, c, d)
        """,
        after="""
        @R.function
        def main(x: R.Tensor((2,), "float32")):
            with R.dataflow():
                a = R.exp(x)
                b = a
                c = R.add(a, a)
                R.output(b, c)
            d = b
            return (b, c, b)
        """,
    )


def test_call_only_leaves_tuples():
    check_pass(
        EliminateCommonSubexpr(call_only=True),
        before="""
        @R.function
        def main(x: R.Tensor((2,), "float32")):
            a = (x, x)
            b = (x, x)
            return (a, b)
        """,
    )
