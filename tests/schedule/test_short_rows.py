# SPDX-License-Identifier: Apache-2.0
"""Reductions over and of short rows: any number of rows, any length."""

from __future__ import annotations

import numpy as np
import pytest

import relaxvm
from relaxvm import relax

op = relax.op
RNG = np.random.default_rng(0)
TARGETS = ["llvm", "llvm -mcpu=haswell", "llvm -mcpu=x86-64"]


def run(make, args, shapes=None, target="llvm"):
    bb = relax.BlockBuilder()
    shapes = shapes or [a.shape for a in args]
    params = [
        relax.Var(f"x{i}", relax.TensorType(s, str(a.dtype)))
        for i, (a, s) in enumerate(zip(args, shapes))
    ]
    with bb.function("main", params):
        bb.emit_func_output(bb.emit(make(*params)))
    vm = relax.VirtualMachine(relaxvm.compile(bb.get(), target=target), relaxvm.cpu())
    return vm["main"](*(relaxvm.runtime.tensor(a) for a in args)).numpy()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
@pytest.mark.parametrize("shape", [(16, 16), (17, 9), (3, 21, 33), (40, 64), (5, 24), (7, 16, 60)])
def test_values(target, dtype, shape):
    x = (RNG.standard_normal(shape) * 100).astype(dtype)
    for ours, theirs in ((op.sum, np.sum), (op.max, np.max), (op.min, np.min)):
        got = run(lambda a, f=ours: f(a, axis=-1), [x], target=target)
        np.testing.assert_allclose(got, theirs(x, axis=-1), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("rows", [1, 15, 16, 50])
def test_number_of_rows_known_at_run_time(rows):
    x = RNG.standard_normal((rows, 40), dtype="float32")
    n = relaxvm.tirx.Var("n", "int64")
    got = run(lambda a: op.sqrt(op.abs(op.sum(a, axis=-1))), [x], [(n, 40)])
    np.testing.assert_allclose(got, np.sqrt(np.abs(x.sum(-1))), rtol=1e-4, atol=1e-4)


def test_equal_rows_have_equal_results():
    """Also those that two vectors of results have in common, and those in other lanes."""
    x = np.tile(RNG.standard_normal((1, 50), dtype="float32"), (37, 1))
    got = run(lambda a: op.sum(a, axis=-1), [x])
    np.testing.assert_array_equal(got, np.full(37, got[0]))


@pytest.mark.parametrize("target", TARGETS)
def test_dot_products(target):
    a = RNG.standard_normal((3, 1, 50), dtype="float32")
    b = RNG.standard_normal((3, 45, 50), dtype="float32")
    got = run(lambda x, y: op.einsum([x, y], "bmk,bnk->bmn"), [a, b], target=target)
    np.testing.assert_allclose(got, np.einsum("bmk,bnk->bmn", a, b), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("shape", [(16, 3), (100, 3), (1003, 5), (37, 1, 2), (8, 8), (4, 50, 2)])
def test_rows_shorter_than_a_vector(target, shape):
    x = (RNG.standard_normal(shape) * 100).astype("float32")
    for ours, theirs in ((op.sum, np.sum), (op.max, np.max), (op.mean, np.mean)):
        got = run(lambda a, f=ours: f(a, axis=-2), [x], target=target)
        np.testing.assert_allclose(got, theirs(x, axis=-2), rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize("rows", [1, 15, 16, 50])
def test_number_of_short_rows_known_at_run_time(rows):
    x = RNG.standard_normal((rows, 3), dtype="float32")
    y = RNG.standard_normal((rows, 3), dtype="float32")
    n = relaxvm.tirx.Var("n", "int64")
    got = run(lambda a, b: op.sum(op.multiply(a, b), axis=0), [x, y], [(n, 3), (n, 3)])
    np.testing.assert_allclose(got, (x * y).sum(0), rtol=1e-4, atol=1e-4)
