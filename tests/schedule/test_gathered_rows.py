# SPDX-License-Identifier: Apache-2.0
"""Rows that 64-bit indices choose go by whole vectors of their own elements; elements that they choose by what indices fill."""

from __future__ import annotations

import re

import numpy as np
import pytest

import relaxvm
from relaxvm import relax
from relaxvm.relax import op

RNG = np.random.default_rng(0)


def taken(axis: int) -> relaxvm.IRModule:
    """sqrt(take(table, ids, axis))"""
    builder = relax.BlockBuilder()
    table = relax.Var("table", relax.TensorType((96, 96), "float32"))
    ids = relax.Var("ids", relax.TensorType((48,), "int64"))
    with builder.function("main", [table, ids]):
        with builder.dataflow():
            out = builder.emit(op.take(table, ids, axis=axis))
            out = builder.emit_output(builder.emit(op.sqrt(out)))
        builder.emit_func_output(out)
    return builder.get()


@pytest.mark.parametrize(("axis", "lanes"), [(0, 16), (1, 8)])
def test_lanes_of_a_gather(axis: int, lanes: int) -> None:
    target = "llvm -mcpu=skylake-avx512"
    text = relaxvm.compile(taken(axis), target=target, stop_after="scheduled").script()
    assert set(re.findall(r"T.vectorized\(T.int64\((\d+)\)\)", text)) == {str(lanes)}


@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=haswell"])
@pytest.mark.parametrize("axis", [0, 1])
def test_values_of_a_gather(axis: int, target: str) -> None:
    table = RNG.random((96, 96), dtype=np.float32)
    ids = RNG.integers(0, 96, 48)
    vm = relaxvm.VirtualMachine(relaxvm.compile(taken(axis), target=target), relaxvm.cpu())
    want = np.sqrt(table.take(ids, axis))
    np.testing.assert_allclose(vm["main"](table, ids).numpy(), want, rtol=1e-6)
