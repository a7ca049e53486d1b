# SPDX-License-Identifier: Apache-2.0
"""Convolutions of pictures whose height and width are unknown: tiles of pixels go on from one line to the next, so that a
small picture fills them as well as a large one."""

from __future__ import annotations

import numpy as np
import pytest

import relaxvm
from relaxvm import relax
from relaxvm.relax import op

RNG = np.random.default_rng(0)
TARGETS = ["llvm", "llvm -mcpu=cascadelake", "llvm -mcpu=haswell"]


def module(w: np.ndarray, strides: int) -> relaxvm.IRModule:
    """relu(conv(x, w) + other), channels last."""
    n, height, width, rows, columns = (relaxvm.tirx.Var(v, "int64") for v in "nhwrc")
    x = relax.Var("x", relax.TensorType([n, height, width, w.shape[2]], "float32"))
    other = relax.Var("other", relax.TensorType([n, rows, columns, w.shape[3]], "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, other]):
        with builder.dataflow():
            y = op.nn.conv2d(x, relax.const(w), strides, data_layout="NHWC", kernel_layout="HWIO")
            y = builder.match_cast(builder.emit(y), other.ty)
            out = builder.emit_output(op.nn.relu(op.add(y, other)))
        builder.emit_func_output(out)
    return builder.get()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("kernel", "strides"), [((3, 3), 2), ((2, 3), 1), ((1, 5), 1), ((5, 1), 2)]
)
def test_values(target: str, kernel: tuple[int, int], strides: int) -> None:
    # Small integers: sums are exact, however they are made.
    w = RNG.integers(-3, 4, (*kernel, 128, 150)).astype("float32")
    vm = relaxvm.VirtualMachine(relaxvm.compile(module(w, strides), target=target), relaxvm.cpu())
    for batch, height, width in [
        (1, 9, 9),
        (2, 6, 5),
        (1, 5, 40),
        (3, 8, 6),
        (0, 5, 5),
        (1, 11, 19),
    ]:
        x = RNG.integers(-3, 4, (batch, height, width, 128)).astype("float32")
        windows = np.lib.stride_tricks.sliding_window_view(x, kernel, axis=(1, 2))
        want = np.einsum("bhwcij,ijco->bhwo", windows[:, ::strides, ::strides], w, optimize=True)
        other = RNG.integers(-9, 10, want.shape).astype("float32")
        for threads in (1, 3):
            vm.set_num_threads(threads)
            have = vm["main"](*map(relaxvm.runtime.tensor, (x, other))).numpy()
            np.testing.assert_array_equal(have, np.maximum(want + other, 0))


def test_tiles_do_not_end_with_a_line() -> None:
    w = RNG.standard_normal((3, 3, 128, 64), dtype=np.float32)
    text = relaxvm.compile(module(w, 2), target="llvm", stop_after="scheduled").script()
    assert "row_of_a_1" in text  # found for each row of a tile
