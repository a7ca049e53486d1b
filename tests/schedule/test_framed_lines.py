# SPDX-License-Identifier: Apache-2.0
"""Lines with a frame around (padding): lanes are asked where they are in the vectors that a border passes through alone."""

from __future__ import annotations

import numpy as np
import pytest

import relaxvm
from relaxvm import relax

op = relax.op
TARGETS = ["llvm", "llvm -mcpu=haswell", "llvm -mcpu=x86-64"]
# shape, padding before and after each axis
CASES = [
    ((2, 5, 7, 96), (0, 0, 1, 2, 2, 1, 0, 0)),
    ((1, 3, 4, 300), (0, 0, 0, 0, 1, 1, 33, 65)),
    ((2, 3, 4, 129), (1, 0, 0, 0, 0, 3, 0, 140)),
    ((1, 1, 3, 5), (0, 0, 0, 0, 0, 0, 200, 131)),
    ((3, 400), (0, 1, 70, 3)),
    ((2, 260), (0, 0, 0, 0)),
]


def build(shape, pads, dtype):
    x = relax.Var("x", relax.TensorType(shape, dtype))
    bb = relax.BlockBuilder()
    with bb.function("main", [x]):
        with bb.dataflow():
            y = bb.emit_output(op.nn.pad(x, list(pads), pad_value=7))
        bb.emit_func_output(y)
    return bb.get()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["uint8", "float32", "int16"])
@pytest.mark.parametrize("shape,pads", CASES)
def test_padding_lies_around_the_data(shape, pads, dtype, target):
    run = relaxvm.VirtualMachine(
        relaxvm.compile(build(shape, pads, dtype), target=target), relaxvm.cpu()
    )["main"]
    x = np.random.default_rng(0).integers(0, 100, shape).astype(dtype)
    want = np.pad(x, list(zip(pads[::2], pads[1::2])), constant_values=7)
    np.testing.assert_array_equal(run(relaxvm.runtime.tensor(x)).numpy(), want)


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_the_middle_of_a_line_is_copied_without_a_question(dtype):
    made = relax.transform.LegalizeOps()(build((1, 8, 40, 64), (0, 0, 1, 1, 1, 1, 0, 0), dtype))
    text = relax.transform.ScheduleTensorPrograms()(made).script()
    stores = [line for line in text.splitlines() if " = " in line and "x[" in line]
    assert any("if_then_else" not in line for line in stores)


# The condition reads wider numbers than what it chooses: vectors are as long as those of the widest.
@pytest.mark.parametrize("target", TARGETS)
def test_a_frame_of_wider_numbers(target):
    rows, depth = 3, 150
    rng = np.random.default_rng(0)
    x = rng.standard_normal((rows, depth)).astype("float32")
    first = np.array([0, 70, 150], "int64")
    program = f"""
from relaxvm.script import ir as I, relax as R, tirx as T


@I.ir_module
class Module:
    @T.prim_func
    def behind(x: T.Buffer(({rows}, {depth}), "float32"), first: T.Buffer(({rows},), "int64"),
               y: T.Buffer(({rows}, {depth}), "float32")):
        for i, j in T.grid({rows}, {depth}):
            with T.sblock("y"):
                v_i, v_j = T.axis.remap("SS", [i, j])
                y[v_i, v_j] = T.if_then_else(first[v_i] <= T.Cast("int64", v_j), x[v_i, v_j], T.float32(0))

    @R.function
    def main(x: R.Tensor(({rows}, {depth}), "float32"), first: R.Tensor(({rows},), "int64")):
        cls = Module
        y = R.call_tir(cls.behind, (x, first), out_ty=R.Tensor(({rows}, {depth}), "float32"))
        return y
"""
    run = relaxvm.VirtualMachine(
        relaxvm.compile(relaxvm.script.from_source(program), target=target), relaxvm.cpu()
    )["main"]
    want = np.where(np.arange(depth) >= first[:, None], x, 0)
    np.testing.assert_array_equal(run(*map(relaxvm.runtime.tensor, (x, first))).numpy(), want)
