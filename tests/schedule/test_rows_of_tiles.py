# SPDX-License-Identifier: Apache-2.0
"""Which axis the rows of a tile lie along: a known one where there is one, for an unknown one is often a batch of one."""

from __future__ import annotations

import re

import numpy as np
import pytest

import relaxvm
from relaxvm import relax
from relaxvm.relax import op

RNG = np.random.default_rng(0)


def convolution(dims: list, padding: int = 2) -> tuple[relaxvm.IRModule, np.ndarray]:
    """5x5 over 24 channels, with whole numbers, so that sums are exact."""
    w = RNG.integers(-3, 4, (5, 5, 24, 64)).astype("float32")
    x = relax.Var("x", relax.TensorType([*dims, 24], "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            y = op.nn.conv2d(
                x, relax.const(w), padding=padding, data_layout="NHWC", kernel_layout="HWIO"
            )
            out = builder.emit_output(y)
        builder.emit_func_output(out)
    return builder.get(), w


def unknown(name: str) -> relaxvm.tirx.Var:
    return relaxvm.tirx.Var(name, "int64")


@pytest.mark.parametrize("width", [2, 3, 7])
def test_a_known_width_comes_before_an_unknown_batch(width: int) -> None:
    module, w = convolution([unknown("n"), width, width])
    text = relaxvm.compile(module, target="llvm", stop_after="scheduled").script()
    # Tiles of an unknown number of rows have a form for each height.
    assert not re.search(r"if height == \d", text)

    vm = relaxvm.VirtualMachine(relaxvm.compile(module, target="llvm"), relaxvm.cpu())
    for images in (0, 1, 5):
        x = RNG.integers(-3, 4, (images, width, width, 24)).astype("float32")
        wide = np.pad(x, ((0, 0), (2, 2), (2, 2), (0, 0)))
        want = sum(
            wide[:, i : i + width, j : j + width] @ w[i, j] for i in range(5) for j in range(5)
        )
        np.testing.assert_array_equal(vm["main"](relaxvm.runtime.tensor(x)).numpy(), want)


def test_an_unknown_batch_comes_before_a_width_of_one() -> None:
    module, _ = convolution([unknown("n"), 1, 1])
    text = relaxvm.compile(module, target="llvm", stop_after="scheduled").script()
    assert re.search(r"if height == \d", text)


@pytest.mark.parametrize("padding", [0, 2])
@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=haswell"])
@pytest.mark.parametrize("sizes", [(7, 7), (14, 14), (5, 3), (9, 4), (3, 13), (2, 2)], ids=str)
def test_short_lines_share_tiles(sizes: tuple[int, int], target: str, padding: int) -> None:
    """With padding each leaves out the kernel's rows that lie on it instead."""
    height, width = sizes
    beside = 2 - padding
    module, w = convolution([2, height + 2 * beside, width + 2 * beside], padding)
    x = RNG.integers(-3, 4, (2, height + 2 * beside, width + 2 * beside, 24)).astype("float32")
    wide = np.pad(x, ((0, 0), (padding, padding), (padding, padding), (0, 0)))
    want = sum(wide[:, i : i + height, j : j + width] @ w[i, j] for i in range(5) for j in range(5))
    vm = relaxvm.VirtualMachine(relaxvm.compile(module, target=target), relaxvm.cpu())
    for threads in (1, 3):
        vm.set_num_threads(threads)
        np.testing.assert_array_equal(vm["main"](relaxvm.runtime.tensor(x)).numpy(), want)


def test_a_tile_of_short_lines_has_two_of_them() -> None:
    module, _ = convolution([1, 11, 11], padding=0)
    target = "llvm -mcpu=icelake-server"
    text = relaxvm.compile(module, target=target, stop_after="scheduled").script()
    assert "acc = T.alloc_buffer((T.int64(448),)" in text  # 14 rows of two vectors


@pytest.mark.parametrize(
    ("target", "width", "lanes", "rows", "vectors"),
    [("llvm -mcpu=icelake-server", 7, 16, 14, 2), ("llvm -mcpu=haswell", 14, 8, 14, 1)],
)
def test_a_tile_that_fills_the_registers_takes_one_step_at_a_time(
    target: str, width: int, lanes: int, rows: int, vectors: int
) -> None:
    module, _ = convolution([1, width + 4, width + 4], padding=0)
    text = relaxvm.compile(module, target=target, stop_after="scheduled").script()
    tile = text.split(f"acc = T.alloc_buffer((T.int64({rows * vectors * lanes}),)")[1]
    loops = re.split(r"for .* in (?!T\.vectorized)", tile)
    products = next(count for loop in loops if (count := loop.count("T.fma(")))
    # A second step's operands would push sums out of the registers.
    assert products == rows * vectors


@pytest.mark.parametrize(("columns", "products"), [(40, 24), (48, 48)])
def test_a_last_vector_that_is_narrower_leaves_one_step_at_a_time(
    columns: int, products: int
) -> None:
    x = relax.Var("x", relax.TensorType([64, 96], "float32"))
    w = relax.const(np.ones((96, columns), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(op.matmul(x, w))
        builder.emit_func_output(out)
    target = "llvm -mcpu=icelake-server"
    text = relaxvm.compile(builder.get(), target=target, stop_after="scheduled").script()
    loops = re.split(r"for .* in (?!T\.vectorized)", text)
    assert next(count for loop in loops if (count := loop.count("T.fma("))) == products


@pytest.mark.parametrize(("channels", "rows"), [(512, 5), (520, 14)])
def test_rows_in_one_set_of_the_cache_are_few(channels: int, rows: int) -> None:
    """Every second pixel of 512 floats lies 4096 bytes behind the one before, which is one set of an L1 cache."""
    w = RNG.integers(-3, 4, (1, 1, channels, 64)).astype("float32")
    x = relax.Var("x", relax.TensorType([1, 28, 28, channels], "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            y = op.nn.conv2d(x, relax.const(w), 2, data_layout="NHWC", kernel_layout="HWIO")
            out = builder.emit_output(y)
        builder.emit_func_output(out)
    module = builder.get()
    text = relaxvm.compile(module, target="llvm -mcpu=znver4", stop_after="scheduled").script()
    sizes = [int(n) for n in re.findall(r"acc\w* = T.alloc_buffer\(\(T.int64\((\d+)\),", text)]
    assert sizes[0] == (rows * 64 if rows == 5 else rows * 32)  # columns of a tile
    vm = relaxvm.VirtualMachine(relaxvm.compile(module, target="llvm"), relaxvm.cpu())
    data = RNG.integers(-3, 4, (1, 28, 28, channels)).astype("float32")
    want = data[:, ::2, ::2] @ w[0, 0]
    np.testing.assert_array_equal(vm["main"](relaxvm.runtime.tensor(data)).numpy(), want)
