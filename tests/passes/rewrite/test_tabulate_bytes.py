# SPDX-License-Identifier: Apache-2.0
"""TabulateBytes: functions of bytes are read from tables of 256 values."""

import numpy as np
import pytest
from pass_check import check_pass

import relaxvm
from relaxvm import relax
from relaxvm.relax import op
from relaxvm.relax.transform import TabulateBytes
from relaxvm.transform import PassContext


def steps(b, x, scale, zero, dtype, function):
    """quantize(function(dequantize(x)))"""
    number = lambda v, t="float32": relax.const(np.array(v, t))
    wide = b.emit(op.subtract(b.emit(op.astype(x, "int32")), number(zero, "int32")))
    real = b.emit(op.multiply(b.emit(op.astype(wide, "float32")), number(scale)))
    moved = b.emit(op.round(b.emit(op.divide(b.emit(function(b, real)), number([[0.02]])))))
    moved = b.emit(op.add(moved, number(zero)))
    limits = np.iinfo(dtype)
    clipped = b.emit(op.clip(moved, float(limits.min), float(limits.max)))
    return b.emit(op.astype(clipped, dtype))


def module(dtype, rows, columns, function):
    b = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([rows, columns], dtype))
    with b.function("main", [x]):
        with b.dataflow():
            y = b.emit_output(steps(b, x, 0.03, 7, dtype, function))
        b.emit_func_output(y)
    return b.get()


FUNCTIONS = {
    "silu": lambda b, x: op.multiply(x, b.emit(op.sigmoid(x))),
    "erf": lambda b, x: op.erf(x),
    "sigmoid of tanh": lambda b, x: op.sigmoid(b.emit(op.tanh(x))),
}


@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=haswell"])
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_table_has_the_results_of_the_calls(name, dtype, target):
    made = module(dtype, 37, 256, FUNCTIONS[name])
    assert "rvm.byte_table" in TabulateBytes()(made).script()
    x = np.resize(np.arange(256).astype("uint8").view(dtype), (37, 256))

    def run():
        vm = relaxvm.VirtualMachine(relaxvm.compile(made, target=target), relaxvm.cpu())
        return vm["main"](relaxvm.runtime.tensor(x)).numpy()

    have = run()
    assert len(np.unique(have)) > 10
    with PassContext(disabled_pass=["TabulateBytes"]):
        np.testing.assert_array_equal(have, run())


@pytest.mark.parametrize("columns", [1, 5, 64, 67, 200])
def test_any_number_of_elements(columns):
    rows = relaxvm.tirx.Var("n", "int64")
    run = relaxvm.VirtualMachine(
        relaxvm.compile(module("int8", rows, columns, FUNCTIONS["silu"])), relaxvm.cpu()
    )["main"]
    every = np.arange(256).astype("int8").repeat(columns).reshape(256, columns)
    line = run(relaxvm.runtime.tensor(every)).numpy()[:, 0]
    values = np.random.default_rng(0).integers(-128, 128, (3, columns)).astype("int8")
    for n in (0, 1, 3):
        have = run(relaxvm.runtime.tensor(values[:n])).numpy()
        np.testing.assert_array_equal(have, line[values[:n].astype("uint8")])


def test_one_rounding_alone_stays():
    check_pass(
        TabulateBytes(),
        before="""
        @R.function
        def main(x: R.Tensor((4, 8), "uint8")):
            with R.dataflow():
                a = R.astype(x, "float32")
                b = R.multiply(a, R.const(0.5, "float32"))
                c = R.round(b)
                gv = R.astype(c, "uint8")
                R.output(gv)
            return gv
        """,
    )


def test_bytes_that_meet_other_bytes_stay():
    check_pass(
        TabulateBytes(),
        before="""
        @R.function
        def main(x: R.Tensor((4, 8), "uint8"), y: R.Tensor((4, 8), "uint8")):
            with R.dataflow():
                a = R.astype(x, "float32")
                b = R.astype(y, "float32")
                c = R.add(R.sigmoid(a), R.exp(b))
                gv = R.astype(c, "uint8")
                R.output(gv)
            return gv
        """,
    )


def test_a_number_in_another_shape_is_a_number():
    def function(b, x):
        third = b.emit(op.permute_dims(relax.const(np.full((1, 1), 3.0, "float32")), [1, 0]))
        return op.sigmoid(b.emit(op.divide(x, third)))

    assert "rvm.byte_table" in TabulateBytes()(module("uint8", 4, 8, function)).script()


def test_bytes_in_another_shape_are_other_bytes():
    def main(b, x):
        first = steps(b, x, 0.03, 7, "uint8", FUNCTIONS["silu"])
        return b.emit(op.reshape(first, []))

    b = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([1, 1], "uint8"))
    with b.function("main", [x]):
        with b.dataflow():
            y = b.emit_output(main(b, x))
        b.emit_func_output(y)
    vm = relaxvm.VirtualMachine(relaxvm.compile(b.get()), relaxvm.cpu())
    assert vm["main"](relaxvm.runtime.tensor(np.full((1, 1), 200, "uint8"))).shape == ()
