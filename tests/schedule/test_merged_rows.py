# SPDX-License-Identifier: Apache-2.0
"""Rows of several axes that lie evenly in memory are counted by one axis, which takes no divisions."""

from __future__ import annotations

import numpy as np
import pytest

import relaxvm
from relaxvm import relax
from relaxvm.relax import op

RNG = np.random.default_rng(0)


def module(mask: bool) -> relaxvm.IRModule:
    """softmax(x) or softmax(x + mask), where each of the second axis has a mask of its own; all sizes are open."""
    a, b, c, n = (relaxvm.tirx.Var(name, "int64") for name in "abcn")
    x = relax.Var("x", relax.TensorType([a, b, c, n], "float32"))
    m = relax.Var("m", relax.TensorType([1, b, 1, n], "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, m] if mask else [x]):
        builder.emit_func_output(builder.emit(op.nn.softmax(op.add(x, m) if mask else x, axis=-1)))
    return builder.get()


@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=haswell"])
@pytest.mark.parametrize("mask", [False, True])
def test_values(mask: bool, target: str) -> None:
    vm = relaxvm.VirtualMachine(relaxvm.compile(module(mask), target=target), relaxvm.cpu())
    for shape in [
        (2, 3, 5, 7),
        (1, 1, 1, 1),
        (3, 1, 4, 64),
        (1, 5, 1, 130),
        (0, 2, 2, 9),
        (2, 2, 0, 9),
    ]:
        x = RNG.standard_normal(shape).astype("float32")
        m = RNG.standard_normal((1, shape[1], 1, shape[3])).astype("float32")
        e = (x + m if mask else x).astype("float64")
        e = np.exp(e - e.max(-1, keepdims=True, initial=-np.inf))
        results = []
        for threads in (1, 3):
            vm.set_num_threads(threads)
            arrays = [relaxvm.runtime.tensor(v) for v in ([x, m] if mask else [x])]
            results.append(vm["main"](*arrays).numpy())
        np.testing.assert_allclose(results[0], e / e.sum(-1, keepdims=True), rtol=1e-5, atol=1e-7)
        np.testing.assert_array_equal(*results)


@pytest.mark.parametrize("mask", [False, True])
def test_finding_a_row_takes_no_division_where_memory_is_even(mask: bool) -> None:
    text = relaxvm.compile(
        module(mask), target="llvm -mcpu=haswell", stop_after="scheduled"
    ).script()
    assert ("rest" in text) == mask
