# SPDX-License-Identifier: Apache-2.0
"""Axes whose parts are runs of memory although the formula walks the whole axis: by vectors."""

from __future__ import annotations

import numpy as np
import pytest

import relaxvm
from relaxvm import relax
from relaxvm.relax import op


def heads_to_channels(heads: int, side: int, depth: int) -> relaxvm.IRModule:
    """Results of attention, as an image of all heads' channels: last, as convolutions have them."""
    x = relax.Var("x", relax.TensorType([heads, side * side, depth], "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            turned = builder.emit(op.permute_dims(x, [0, 2, 1]))
            image = builder.emit(op.reshape(turned, [1, heads * depth, side, side]))
            last = builder.emit(op.permute_dims(image, [0, 2, 3, 1]))
            out = builder.emit_output(op.add(last, relax.const(1.0, "float32")))
        builder.emit_func_output(out)
    return builder.get()


@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=haswell"])
@pytest.mark.parametrize(("heads", "side", "depth"), [(4, 16, 128), (3, 5, 32), (2, 7, 24), (3, 4, 5)])  # fmt: skip
def test_values(heads: int, side: int, depth: int, target: str) -> None:
    built = relaxvm.compile(heads_to_channels(heads, side, depth), target)
    x = np.random.default_rng(0).random((heads, side * side, depth), dtype="float32")
    got = relax.VirtualMachine(built, relaxvm.cpu())["main"](relaxvm.runtime.tensor(x)).numpy()
    want = x.transpose(1, 0, 2).reshape(1, side, side, heads * depth) + 1
    np.testing.assert_array_equal(got, want)


def test_the_parts_are_vectors() -> None:
    module = heads_to_channels(4, 16, 128)
    text = relaxvm.compile(module, "llvm -mcpu=haswell", stop_after="scheduled").script()
    assert "T.vectorized" in text and "%" not in text.split("T.parallel")[1]
