# SPDX-License-Identifier: Apache-2.0
"""LazySetOutput: results are given away as soon as they are there."""

import numpy as np
from pass_check import check_pass

import relaxvm
from relaxvm import relax
from relaxvm.relax.transform import LazyGetInput, LazySetOutput
from relaxvm.script import ir as I
from relaxvm.script import relax as R

SET = 'put: R.Callable([R.Prim("int64"), R.Any], R.Tuple(), purity=False)'


def test_result_leaves_right_after_it_is_made():
    check_pass(
        LazySetOutput(),
        before="""
        @R.function
        def main(a: R.Tensor((4,), "float32")):
            c: R.Tensor((4,), "float32") = R.exp(a)
            d: R.Tensor((4,), "float32") = R.log(c)
            out = (d, a, c)
            return out
        """,
        after=f"""
        @R.function(pure=False)
        def main(a: R.Tensor((4,), "float32"), {SET}) -> R.Tuple():
            _: R.Tuple() = put(R.prim_value(1), a)
            c: R.Tensor((4,), "float32") = R.exp(a)
            _1: R.Tuple() = put(R.prim_value(2), c)
            d: R.Tensor((4,), "float32") = R.log(c)
            _2: R.Tuple() = put(R.prim_value(0), d)
            return R.tuple()
        """,
    )


def test_single_result_is_number_0():
    check_pass(
        LazySetOutput(),
        before="""
        @R.function
        def main(a: R.Tensor((4,), "float32")):
            c: R.Tensor((4,), "float32") = R.exp(a)
            return c
        """,
        after=f"""
        @R.function(pure=False)
        def main(a: R.Tensor((4,), "float32"), {SET}) -> R.Tuple():
            c: R.Tensor((4,), "float32") = R.exp(a)
            _: R.Tuple() = put(R.prim_value(0), c)
            return R.tuple()
        """,
    )


def test_runs_with_both():
    @I.ir_module
    class Module:
        @R.function
        def main(a: R.Tensor((2, 3), "float32"), b: R.Tensor((3,), "float32")):
            with R.dataflow():
                c = R.permute_dims(a)
                d = R.add(b, R.const(1.0, "float32"))
                out = (c, d)
                R.output(out)
            return out

    module = LazySetOutput()(LazyGetInput()(Module))
    vm = relax.VirtualMachine(relaxvm.compile(module), relaxvm.cpu())
    weights = [np.arange(6, dtype="f4").reshape(2, 3), np.ones(3, "f4")]
    asked, given = [], {}

    def get(index, name):
        asked.append((index, name))
        return relaxvm.runtime.tensor(weights[index])

    def put(index, value):
        given[index] = value.numpy()

    vm["main"](get, put)
    assert asked == [(0, "a"), (1, "b")]
    np.testing.assert_array_equal(given[0], weights[0].T)
    np.testing.assert_array_equal(given[1], weights[1] + 1)
