# SPDX-License-Identifier: Apache-2.0
"""Products whose sum is so long that a panel of the right side leaves the second cache: the sum goes by blocks, and
every block is added once.  Small whole numbers make sums exact in any order."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import relaxvm
from relaxvm import relax
from relaxvm.relax import op

RNG = np.random.default_rng(0)
DEEP = 5000  # does not divide into blocks of one size
TARGETS = ["llvm", "llvm -mcpu=haswell", "llvm -mcpu=x86-64-v2"]
ROWS = [1, 2, 5, 7, 16, 131]


def whole(*shape: int, dtype: str = "float32") -> np.ndarray:
    return RNG.integers(-3, 4, shape).astype(dtype)


def compiled(body: Callable[..., relax.Expr], shape: list, dtype: str, target: str):
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, dtype))
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(body(x))
        builder.emit_func_output(out)
    return relaxvm.compile(builder.get(), target=target)


def results(executable, x: np.ndarray) -> list[np.ndarray]:
    """With one thread and with three."""
    vm = relaxvm.VirtualMachine(executable, relaxvm.cpu())
    found = []
    for threads in (1, 3):
        vm.set_num_threads(threads)
        found.append(vm["main"](relaxvm.runtime.tensor(x)).numpy())
    return found


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("columns", [70, 192])
def test_every_number_of_rows(target: str, columns: int) -> None:
    w = whole(DEEP, columns)
    rows = relaxvm.tirx.Var("m", "int64")
    weight, zero = relax.const(w), relax.const(0.0, "float32")
    executable = compiled(
        lambda x: op.maximum(op.matmul(x, weight), zero), [rows, DEEP], "float32", target
    )
    for m in ROWS:
        x = whole(m, DEEP)
        for got in results(executable, x):
            np.testing.assert_array_equal(got, np.maximum(x @ w, 0), err_msg=f"{m} rows")


# The right side comes from memory: its panels go in groups for each chunk of rows, of which copies are made block by
# block.
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("target", TARGETS)
def test_groups_of_panels(target: str, known: bool) -> None:
    depth, columns = 1100, 2050  # the last block, panel and group are not whole
    w = whole(depth, columns)
    weight = relax.const(w)
    rows = relaxvm.tirx.Var("m", "int64")
    for m in (9, 300):
        if known or m == 9:
            shape = [m if known else rows, depth]
            executable = compiled(lambda x: op.matmul(x, weight), shape, "float32", target)
        x = whole(m, depth)
        for got in results(executable, x):
            np.testing.assert_array_equal(got, x @ w, err_msg=f"{m} rows")


@pytest.mark.parametrize("depth", [4096, DEEP])
def test_rows_that_are_known(depth: int) -> None:
    w = whole(depth, 100)
    for m in (7, 300):
        x = whole(m, depth)
        executable = compiled(lambda v: op.matmul(v, relax.const(w)), [m, depth], "float32", "llvm")
        for got in results(executable, x):
            np.testing.assert_array_equal(got, x @ w, err_msg=f"{m} rows")


@pytest.mark.parametrize("right", ["int8", "uint8"])
@pytest.mark.parametrize("left", ["int8", "uint8"])
def test_bytes(left: str, right: str) -> None:
    # Also extremes: the correction for signed bytes is made in each block.
    depth = 20_000
    w = RNG.choice([0, np.iinfo(right).max], (depth, 80)).astype(right)
    x = RNG.choice([np.iinfo(left).min, 1, np.iinfo(left).max], (40, depth)).astype(left)
    executable = compiled(
        lambda v: op.matmul(v, relax.const(w, right), out_dtype="int32"), [40, depth], left, "llvm"
    )
    want = x.astype("int64") @ w.astype("int64")
    for got in results(executable, x):
        np.testing.assert_array_equal(got, want)


# 3 x 3 windows with stride 2: the blocks are rows of the window, or parts of them.
@pytest.mark.parametrize("channels", [600, 2600])
@pytest.mark.parametrize("target", TARGETS)
def test_a_window_of_many_channels(channels: int, target: str) -> None:
    x, w = whole(1, 14, 14, channels), whole(3, 3, channels, 72)
    executable = compiled(
        lambda v: op.nn.conv2d(
            v, relax.const(w), strides=2, padding=1, data_layout="NHWC", kernel_layout="HWIO"
        ),
        list(x.shape),
        "float32",
        target,
    )
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))[:, ::2, ::2]
    want = np.tensordot(windows, w, ([4, 5, 3], [0, 1, 2]))
    for got in results(executable, x):
        np.testing.assert_array_equal(got, want)
