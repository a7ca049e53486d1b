# SPDX-License-Identifier: Apache-2.0
"""Pictures made of planes are quantized, padded and turned to pixels in one go: what a quantized network does first."""

from __future__ import annotations

import numpy as np
import pytest

import relaxvm
from relaxvm import relax, tirx

op = relax.op
RNG = np.random.default_rng(0)
TARGETS = ["llvm", "llvm -mcpu=haswell", "llvm -mcpu=x86-64"]
# planes, planes that padding adds, size, padding before and after the rows, the columns
CASES = [
    (3, 1, (9, 37), (1, 1, 1, 1)),
    (3, 1, (4, 64), (0, 2, 3, 0)),
    (1, 1, (5, 33), (2, 0, 0, 5)),
    (2, 2, (3, 40), (0, 0, 0, 0)),
    (4, 0, (3, 35), (1, 1, 2, 2)),
    (3, 1, (2, 3), (1, 1, 1, 1)),
]


def build(planes, extra, height, width, pads):
    params = [relax.Var("x", relax.TensorType((2, planes, height, width), "float32"))]
    up, down, left, right = pads
    bb = relax.BlockBuilder()
    with bb.function("main", params):
        steps = op.add(op.round(op.divide(params[0], relax.const(0.03, "float32"))), relax.const(7.0, "float32"))  # fmt: skip
        small = op.astype(op.clip(steps, 0.0, 255.0), "uint8")
        padded = op.nn.pad(small, [0, 0, 0, 0, up, down, left, right], pad_value=7)
        padded = op.nn.pad(padded, [0, 0, 0, extra, 0, 0, 0, 0], pad_value=9)
        bb.emit_func_output(bb.emit(op.permute_dims(padded, [0, 2, 3, 1])))
    return bb.get()


def reference(x, extra, pads):
    up, down, left, right = pads
    steps = np.clip(np.round(x / np.float32(0.03)) + np.float32(7), 0, 255).astype("uint8")
    steps = np.pad(steps, ((0, 0), (0, 0), (up, down), (left, right)), constant_values=7)
    steps = np.pad(steps, ((0, 0), (0, extra), (0, 0), (0, 0)), constant_values=9)
    return steps.transpose(0, 2, 3, 1)


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("target", TARGETS)
def test_values(case, target):
    planes, extra, size, pads = case
    x = RNG.standard_normal((2, planes, *size), dtype="float32")
    vm = relax.VirtualMachine(
        relaxvm.compile(build(planes, extra, *size, pads), target=target), relaxvm.cpu()
    )
    got = vm["main"](relaxvm.runtime.tensor(x)).numpy()
    np.testing.assert_array_equal(got, reference(x, extra, pads))


def test_size_known_at_run_time():
    h, w = tirx.Var("h", "int64"), tirx.Var("w", "int64")
    pads = (1, 2, 3, 1)
    vm = relax.VirtualMachine(relaxvm.compile(build(3, 1, h, w, pads)), relaxvm.cpu())
    for size in ((9, 37), (1, 1), (3, 16), (0, 40), (5, 0)):
        x = RNG.standard_normal((2, 3, *size), dtype="float32")
        got = vm["main"](relaxvm.runtime.tensor(x)).numpy()
        np.testing.assert_array_equal(got, reference(x, 1, pads))
