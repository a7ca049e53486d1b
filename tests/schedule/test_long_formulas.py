# SPDX-License-Identifier: Apache-2.0
"""Elementary functions along rows of any length: several vectors together, then one by one, then a part of one."""

from __future__ import annotations

import numpy as np
import pytest

import relaxvm
from relaxvm import relax

TARGETS = ["llvm", "llvm -mcpu=haswell", "llvm -mcpu=x86-64"]


def _run(target: str, emit, x: np.ndarray, shape: list) -> np.ndarray:
    b = relax.BlockBuilder()
    param = relax.Var("x", relax.TensorType(shape, "float32"))
    with b.function("main", [param]):
        with b.dataflow():
            out = b.emit_output(emit(param))
        b.emit_func_output(out)
    vm = relaxvm.VirtualMachine(relaxvm.compile(b.get(), target=target), relaxvm.cpu())
    return vm["main"](relaxvm.runtime.tensor(x)).numpy()


def _expected_softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x.astype("float64") - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("width", [1, 7, 8, 31, 33, 40, 67, 96, 129])
def test_known_width(target: str, width: int) -> None:
    x = np.random.default_rng(width).uniform(-20, 20, (3, width)).astype("float32")
    got = _run(target, lambda v: relax.op.tanh(relax.op.exp(v)), x, [3, width])
    np.testing.assert_allclose(got, np.tanh(np.exp(x.astype("float64"))), rtol=1e-6)
    got = _run(target, lambda v: relax.op.nn.softmax(v), x, [3, width])
    np.testing.assert_allclose(got, _expected_softmax(x), rtol=1e-5, atol=1e-30)


@pytest.mark.parametrize("target", TARGETS)
def test_any_width(target: str) -> None:
    n = relaxvm.tirx.Var("n", "int64")
    b = relax.BlockBuilder()
    param = relax.Var("x", relax.TensorType([2, n], "float32"))
    with b.function("main", [param]):
        with b.dataflow():
            out = b.emit_output(relax.op.nn.silu(param))
        b.emit_func_output(out)
    vm = relaxvm.VirtualMachine(relaxvm.compile(b.get(), target=target), relaxvm.cpu())
    for width in (0, 1, 5, 8, 9, 31, 32, 63, 64, 100, 131):
        x = np.random.default_rng(width).uniform(-30, 30, (2, width)).astype("float32")
        got = vm["main"](relaxvm.runtime.tensor(x)).numpy()
        wide = x.astype("float64")
        np.testing.assert_allclose(got, wide / (1 + np.exp(-wide)), rtol=1e-6)


@pytest.mark.parametrize("target", TARGETS)
def test_one_rare_lane_leaves_its_neighbours(target: str) -> None:
    x = np.linspace(-3, 3, 64, dtype="float32")[None]
    rare = [np.inf, -np.inf, np.nan, 88.5, 89.5, -88.0, -100.0, -104.5, 1e30, -0.0]
    usual = np.exp(x.astype("float64"))
    for at, value in enumerate(rare):
        y = x.copy()
        y[0, 5 * at] = value
        want = usual.copy()
        with np.errstate(over="ignore"):
            want[0, 5 * at] = np.exp(np.float64(y[0, 5 * at])).astype("float32")
        got = _run(target, lambda v: relax.op.exp(v), y, [1, 64])
        np.testing.assert_allclose(got, want, rtol=3e-7, atol=1.5e-45)
        got = _run(target, lambda v: relax.op.sigmoid(v), y, [1, 64])
        with np.errstate(over="ignore"):
            true = 1 / (1 + np.exp(-y.astype("float64")))
        np.testing.assert_allclose(got, true.astype("float32"), rtol=3e-7, atol=1.5e-45)
