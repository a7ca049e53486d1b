# SPDX-License-Identifier: Apache-2.0
"""LazyGetInput: weights are asked for right before their first use."""

from pass_check import check_pass

import relaxvm
from relaxvm.relax.transform import LazyGetInput
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.script import tirx as T

GET = 'get: R.Callable([R.Prim("int64"), R.Any], R.Any, purity=True)'


def test_weight_is_read_before_its_first_use():
    check_pass(
        LazyGetInput(),
        before="""
        @R.function
        def main(a: R.Tensor((4,), "float32"), b: R.Tensor((4,), "float32")):
            c: R.Tensor((4,), "float32") = R.exp(b)
            d: R.Tensor((4,), "float32") = R.add(c, a)
            e: R.Tensor((4,), "float32") = R.add(d, b)
            return e
        """,
        after=f"""
        @R.function
        def main({GET}):
            b_any: R.Any = get(R.prim_value(1), R.str("b"))
            b: R.Tensor((4,), "float32") = R.match_cast(b_any, R.Tensor((4,), "float32"))
            c: R.Tensor((4,), "float32") = R.exp(b)
            a_any: R.Any = get(R.prim_value(0), R.str("a"))
            a: R.Tensor((4,), "float32") = R.match_cast(a_any, R.Tensor((4,), "float32"))
            d: R.Tensor((4,), "float32") = R.add(c, a)
            e: R.Tensor((4,), "float32") = R.add(d, b)
            return e
        """,
    )


def test_inputs_stay_parameters_and_tell_their_sizes():
    check_pass(
        LazyGetInput(),
        before="""
        @R.function
        def main(x: R.Tensor(("n",), "float32"), w: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
            R.func_attr({"num_input": 1})
            n = T.int64()
            y: R.Tensor((n,), "float32") = R.add(x, w)
            return y
        """,
        after=f"""
        @R.function
        def main(x: R.Tensor(("n",), "float32"), {GET}) -> R.Tensor(("n",), "float32"):
            R.func_attr({{"num_input": 2}})
            n = T.int64()
            w_any: R.Any = get(R.prim_value(0), R.str("w"))
            w: R.Tensor((n,), "float32") = R.match_cast(w_any, R.Tensor((n,), "float32"))
            y: R.Tensor((n,), "float32") = R.add(x, w)
            return y
        """,
    )


def test_weight_of_a_branch_is_read_in_it():
    check_pass(
        LazyGetInput(),
        before="""
        @R.function
        def main(c: R.Tensor((), "bool"), w: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            R.func_attr({"num_input": 1})
            if c:
                y1: R.Tensor((4,), "float32") = R.exp(w)
                y: R.Tensor((4,), "float32") = y1
            else:
                y2: R.Tensor((4,), "float32") = R.log(w)
                y: R.Tensor((4,), "float32") = y2
            return y
        """,
        after=f"""
        @R.function
        def main(c: R.Tensor((), "bool"), {GET}) -> R.Tensor((4,), "float32"):
            R.func_attr({{"num_input": 2}})
            if c:
                w1_any: R.Any = get(R.prim_value(0), R.str("w"))
                w1: R.Tensor((4,), "float32") = R.match_cast(w1_any, R.Tensor((4,), "float32"))
                y1: R.Tensor((4,), "float32") = R.exp(w1)
                y: R.Tensor((4,), "float32") = y1
            else:
                w2_any: R.Any = get(R.prim_value(0), R.str("w"))
                w2: R.Tensor((4,), "float32") = R.match_cast(w2_any, R.Tensor((4,), "float32"))
                y2: R.Tensor((4,), "float32") = R.log(w2)
                y: R.Tensor((4,), "float32") = y2
            return y
        """,
    )


def test_a_weight_does_not_leave_its_dataflow_block():
    check_pass(
        LazyGetInput(),
        before="""
        @R.function
        def main(a: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            with R.dataflow():
                b: R.Tensor((4,), "float32") = R.exp(a)
                c: R.Tensor((4,), "float32") = R.add(b, a)
                R.output(c)
            d: R.Tensor((4,), "float32") = R.add(c, a)
            return d
        """,
        after=f"""
        @R.function
        def main({GET}) -> R.Tensor((4,), "float32"):
            with R.dataflow():
                a_any: R.Any = get(R.prim_value(0), R.str("a"))
                a: R.Tensor((4,), "float32") = R.match_cast(a_any, R.Tensor((4,), "float32"))
                b: R.Tensor((4,), "float32") = R.exp(a)
                c: R.Tensor((4,), "float32") = R.add(b, a)
                R.output(c)
            again_any: R.Any = get(R.prim_value(0), R.str("a"))
            again: R.Tensor((4,), "float32") = R.match_cast(again_any, R.Tensor((4,), "float32"))
            d: R.Tensor((4,), "float32") = R.add(c, again)
            return d
        """,
    )


def test_private_functions_stay():
    check_pass(
        LazyGetInput(),
        before="""
        @R.function(private=True)
        def main(a: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            c: R.Tensor((4,), "float32") = R.exp(a)
            return c
        """,
    )


def test_the_type_of_the_body_names_no_size_that_it_reads_itself():
    @I.ir_module
    class Mod:
        @R.function
        def main(s: R.Shape(["n"])):
            n = T.int64()
            z = R.zeros(R.shape([n]), "float32")
            return z

    after = LazyGetInput()(Mod)
    relaxvm.ir.assert_structural_equal(after, relaxvm.script.from_source(after.script()))
