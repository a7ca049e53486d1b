# SPDX-License-Identifier: Apache-2.0
"""FastMathTransform, and the functions of topi that it calls."""

import math

import numpy as np
import pytest

import relaxvm
from relaxvm import relax, te, topi
from relaxvm.relax.transform import FastMathTransform
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.script import tirx as T


def run(mod, *arrays):
    vm = relax.VirtualMachine(relaxvm.compile(mod), relaxvm.cpu())
    return vm["main"](*[relaxvm.runtime.tensor(a) for a in arrays]).numpy()


def program(op, dtype="float32", shape=(4, 8), **attrs):
    builder = relax.BlockBuilder()
    x = relax.Var("x", R.Tensor(shape, dtype))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_output(op(x, **attrs))
        builder.emit_func_output(y)
    return builder.get()


@I.ir_module
class Chain:
    @R.function
    def main(x: R.Tensor(("n", 8), "float32")):
        n = T.int64()
        with R.dataflow():
            a: R.Tensor((n, 8), "float32") = R.exp(x)
            b: R.Tensor((n, 8), "float32") = R.erf(a)
            c: R.Tensor((n, 8), "float32") = R.tanh(b)
            d: R.Tensor((n, 8), "float32") = R.log(c)
            e: R.Tensor((n, 8), "float32") = R.nn.softmax(d, axis=0)
            R.output(e)
        return e


def test_operators_become_calls_of_the_fast_programs():
    result = FastMathTransform()(Chain)
    called = [
        str(b.value.args[0].name_hint)
        if str(b.value.op.name) == "relax.call_tir"
        else str(b.value.op.name)
        for b in result["main"].body.blocks[0].bindings
    ]
    assert called == ["fast_exp", "fast_erf", "fast_tanh", "relax.log", "fast_softmax"]


def test_other_modules_stay():
    mod = program(relax.op.sqrt)
    assert relaxvm.ir.structural_equal(FastMathTransform()(mod), mod)


def test_tensors_of_unknown_shape_keep_their_operators():
    @I.ir_module
    class Unknown:
        @R.function
        def main(x: R.Tensor(ndim=2, dtype="float32")):
            y = R.exp(x)
            return y

    assert relaxvm.ir.structural_equal(FastMathTransform()(Unknown), Unknown)


X = np.concatenate([np.linspace(-20, 20, 4001), np.linspace(-1, 1, 999)]).astype("f4")


@pytest.mark.parametrize(
    "op, exact, tolerance",
    [
        (relax.op.exp, np.exp, {"rtol": 2e-6}),
        (relax.op.erf, np.vectorize(math.erf), {"atol": 1e-6}),
        (relax.op.tanh, np.tanh, {"atol": 1e-6}),
    ],
)
def test_values_are_close(op, exact, tolerance):
    mod = FastMathTransform()(program(op, shape=X.shape))
    np.testing.assert_allclose(run(mod, X), exact(X.astype("f8")), **{"rtol": 0, **tolerance})


def test_exp_beyond_the_range_of_floats():
    mod = FastMathTransform()(program(relax.op.exp, shape=(4,)))
    y = run(mod, np.array([-200, -88, 88, np.inf], "f4"))
    np.testing.assert_allclose(y[:3], [0, np.exp(-88.0), np.exp(88.0)], rtol=2e-6, atol=1e-37)
    assert y[3] == np.inf


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_softmax_along_each_axis(axis):
    x = np.random.default_rng(0).standard_normal((4, 8), "f4") * 10
    mod = FastMathTransform()(program(relax.op.nn.softmax, axis=axis))
    e = np.exp(x.astype("f8"))
    np.testing.assert_allclose(run(mod, x), e / e.sum(axis, keepdims=True), rtol=2e-6)


@pytest.mark.parametrize("dtype", ["float16", "float64"])
@pytest.mark.parametrize("op, exact", [(relax.op.exp, np.exp), (relax.op.tanh, np.tanh)])
def test_other_element_types_stay_exact(dtype, op, exact):
    x = np.linspace(-3, 3, 32).astype(dtype).reshape(4, 8)
    y = run(FastMathTransform()(program(op, dtype)), x)
    np.testing.assert_allclose(y, exact(x.astype("f8")), rtol=1e-3 if dtype == "float16" else 1e-14)


def test_an_axis_that_is_not_there_is_an_error():
    with pytest.raises(ValueError, match="axis 2 is out of range for 2 dimensions"):
        topi.nn.fast_softmax(te.placeholder((4, 8)), axis=2)
