# SPDX-License-Identifier: Apache-2.0
"""Depthwise windows: tiles of neighbours whose windows lie partly outside, channels in chunks, any width of a row."""

from __future__ import annotations

import re

import numpy as np
import pytest

import relaxvm
from relaxvm import relax

op = relax.op
RNG = np.random.default_rng(0)
TARGETS = ["llvm", "llvm -mcpu=haswell", "llvm -mcpu=x86-64"]
# channels, size, window, stride, dilation, padding: top, left, bottom, right
CASES = [
    (40, (5, 28), 5, 1, 1, (2, 2, 2, 2)),
    (480, (4, 14), 5, 1, 1, (2, 2, 2, 2)),  # channels that go in chunks
    (528, (7, 7), 7, 1, 1, (3, 3, 3, 3)),
    (32, (3, 29), 5, 2, 1, (2, 2, 2, 2)),
    (32, (3, 30), 5, 2, 1, (1, 1, 2, 2)),
    (24, (4, 17), 3, 3, 1, (1, 0, 1, 1)),
    (20, (4, 19), 3, 1, 2, (2, 2, 2, 2)),
    (16, (4, 23), 3, 1, 1, (0, 5, 0, 4)),  # windows that lie outside as a whole
    (16, (2, 9), 3, 1, 1, (1, 1, 1, 0)),
    (48, (3, 4), 7, 1, 1, (3, 3, 3, 3)),  # no window lies inside as a whole
    (48, (1, 1), 5, 1, 1, (2, 2, 2, 2)),
    (7, (3, 12), 3, 1, 1, (1, 1, 1, 1)),  # less than a vector
    (16, (3, 12), 3, 1, 1, (0, 0, 0, 0)),
    (72, (4, 11), 3, 1, 1, (1, 1, 1, 1)),  # three vectors at once
    (184, (3, 11), 5, 1, 1, (2, 2, 2, 2)),  # vectors left over
    (92, (3, 12), 3, 1, 1, (1, 1, 1, 1)),  # and lanes
    (40, (3, 14), 5, 1, 1, (2, 2, 2, 2)),  # other neighbours than usual: seven,
    (72, (3, 10), 3, 1, 1, (1, 1, 1, 1)),  # five,
    (24, (5, 33), 5, 2, 1, (2, 2, 2, 2)),  # six, the last tile moved back
]


def reference(x: np.ndarray, w: np.ndarray, stride: int, dilation: int, pad) -> np.ndarray:
    """Sums over the elements that are there: padding is multiplied with nothing."""
    (high, wide), (top, left, bottom, right) = w.shape[:2], pad
    n, height, width, channels = x.shape
    reach = lambda window: dilation * (window - 1) + 1
    rows = (height + top + bottom - reach(high)) // stride + 1
    columns = (width + left + right - reach(wide)) // stride + 1
    out = np.zeros((n, rows, columns, channels))
    for i in range(rows):
        for j in range(columns):
            for a in range(high):
                for b in range(wide):
                    y, z = i * stride + a * dilation - top, j * stride + b * dilation - left
                    if 0 <= y < height and 0 <= z < width:
                        out[:, i, j] += x[:, y, z].astype("float64") * w[a, b, 0]
    return out


def build(shape, dtype: str, w: np.ndarray, stride: int, dilation: int, pad):
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, dtype))
    with builder.function("main", [x]):
        conv = op.nn.conv2d(
            x,
            relax.const(w),
            groups=w.shape[3],
            padding=pad,
            strides=stride,
            dilation=dilation,
            data_layout="NHWC",
            kernel_layout="HWIO",
        )
        builder.emit_func_output(builder.emit(op.nn.relu(conv)))
    return builder.get()


def machine(mod, target: str = "llvm"):
    return relax.VirtualMachine(relaxvm.compile(mod, target=target), relaxvm.cpu())


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("target", TARGETS)
def test_values(case, target):
    channels, size, window, stride, dilation, pad = case
    x = RNG.standard_normal((2, *size, channels), dtype="float32")
    w = RNG.standard_normal((window, window, 1, channels), dtype="float32")
    vm = machine(build(x.shape, "float32", w, stride, dilation, pad), target)
    got = vm["main"](relaxvm.runtime.tensor(x)).numpy()
    want = np.maximum(reference(x, w, stride, dilation, pad), 0)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("window, stride, pad", [(3, 1, 1), (5, 2, 2), (7, 1, 3), (3, 2, 0)])
def test_size_known_at_run_time(window, stride, pad):
    h, width = relaxvm.tirx.Var("h", "int64"), relaxvm.tirx.Var("w", "int64")
    w = RNG.standard_normal((window, window, 1, 72), dtype="float32")
    pads = (pad, pad, pad, pad)
    vm = machine(build((1, h, width, 72), "float32", w, stride, 1, pads))
    for size in [(7, 7), (8, 9), (9, 16), (7, 31), (10, 8)]:
        x = RNG.standard_normal((1, *size, 72), dtype="float32")
        got = vm["main"](relaxvm.runtime.tensor(x)).numpy()
        want = np.maximum(reference(x, w, stride, 1, pads), 0)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4, err_msg=str(size))


@pytest.mark.parametrize("target", TARGETS)
def test_padding_is_multiplied_with_nothing(target):
    """Infinite weights meet no padding, and what is read in its place (here NaN) reaches no result."""
    x = RNG.standard_normal((1, 3, 13, 32), dtype="float32")
    x[:, :, 5] = np.nan
    w = RNG.standard_normal((3, 3, 1, 32), dtype="float32")
    w[:, 0] = np.inf
    vm = machine(build(x.shape, "float32", w, 1, 1, (1, 1, 1, 1)), target)
    got = vm["main"](relaxvm.runtime.tensor(x)).numpy()
    with np.errstate(invalid="ignore"):
        want = reference(x, w, 1, 1, (1, 1, 1, 1))
    want = np.where(np.isnan(want), want, np.maximum(want, 0))
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    assert np.isfinite(got[:, :, 0]).all()  # the first column's windows start in the padding


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_other_types(dtype):
    x = RNG.integers(-3, 4, (1, 4, 21, 40)).astype(dtype)
    w = RNG.integers(-3, 4, (5, 5, 1, 40)).astype(dtype)
    vm = machine(build(x.shape, dtype, w, 1, 1, (2, 2, 2, 2)))
    got = vm["main"](relaxvm.runtime.tensor(x)).numpy()
    np.testing.assert_array_equal(got, np.maximum(reference(x, w, 1, 1, (2, 2, 2, 2)), 0))


def test_threads_give_the_same_bits():
    x = RNG.standard_normal((2, 40, 41, 240), dtype="float32")
    w = RNG.standard_normal((5, 5, 1, 240), dtype="float32")
    vm = machine(build(x.shape, "float32", w, 1, 1, (2, 2, 2, 2)))
    results = []
    for threads in (1, 2, 3):
        vm.set_num_threads(threads)
        results.append(vm["main"](relaxvm.runtime.tensor(x)).numpy())
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("images", [1, 3, None])
@pytest.mark.parametrize("known", [True, False])
def test_windows_along_one_axis(known: bool, images: int | None, target: str) -> None:
    """Blocks of places are tasks: widths below, at and above a block's; None: a batch that is not known."""
    for width, window, stride in [(1, 3, 1), (31, 31, 1), (32, 5, 1), (33, 31, 1), (100, 7, 2)]:
        w = RNG.integers(-3, 4, (1, window, 1, 40)).astype("float32")
        sizes = [images or relaxvm.tirx.Var("n", "int64")]
        sizes.append(width if known else relaxvm.tirx.Var("w", "int64"))
        builder = relax.BlockBuilder()
        x = relax.Var("x", relax.TensorType([*sizes, 40], "float32"))
        with builder.function("main", [x]):
            conv = op.nn.conv1d(
                x,
                relax.const(w[0]),
                groups=40,
                padding=window // 2,
                strides=stride,
                data_layout="NWC",
                kernel_layout="WIO",
            )
            builder.emit_func_output(builder.emit(op.nn.relu(conv)))
        vm = relaxvm.VirtualMachine(relaxvm.compile(builder.get(), target=target), relaxvm.cpu())
        data = RNG.integers(-3, 4, (images or 2, width, 40)).astype("float32")
        padding = (0, window // 2, 0, window // 2)
        one_row = reference(data[:, None], w, stride, 1, padding)[:, 0]
        for threads in (1, 3):
            vm.set_num_threads(threads)
            got = vm["main"](relaxvm.runtime.tensor(data)).numpy()
            np.testing.assert_array_equal(got, np.maximum(one_row, 0), err_msg=f"{width} {window}")


@pytest.mark.parametrize("target", TARGETS)
def test_padding_that_depends_on_the_size_is_not_written(target: str) -> None:
    """SAME of TensorFlow with a step of two: an odd size has one more before than an even one."""
    batch, height, width = (relaxvm.tirx.Var(name, "int64") for name in "bhw")
    w = RNG.integers(-3, 4, (3, 3, 1, 40)).astype("float32")
    x = relax.Var("x", relax.TensorType([batch, height, width, 40], "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            before, zero = [0, height % 2, width % 2, 0], relax.const(0.0, "float32")
            padded = builder.emit(op.rvm.pad(x, before, [0, 1, 1, 0], zero))
            conv = op.nn.conv2d(
                padded, relax.const(w), 2, groups=40, data_layout="NHWC", kernel_layout="HWIO"
            )
            out = builder.emit_output(conv)
        builder.emit_func_output(out)
    mod = builder.get()
    text = relaxvm.compile(mod, target=target, stop_after="scheduled").script()
    kernel = text[text.index("def fused_pad_conv2d") :]
    rows = re.search(r"T\.parallel\((.*?), annotations", kernel).group(1)
    assert "h" in rows and not re.search(r"alloc_buffer\(\(.*w", kernel)  # threads share a picture
    vm = relaxvm.VirtualMachine(relaxvm.compile(mod, target=target), relaxvm.cpu())
    for size in [(1, 6, 9), (2, 9, 6), (1, 1, 1), (1, 2, 30), (1, 7, 31)]:
        data = RNG.integers(-3, 4, (*size, 40)).astype("float32")
        pad = (size[1] % 2, size[2] % 2, 1, 1)
        want = reference(data, w, 2, 1, pad)
        np.testing.assert_array_equal(vm["main"](relaxvm.runtime.tensor(data)).numpy(), want)


@pytest.mark.parametrize(("width", "tasks"), [(4, 9), (12, 27)])
def test_channels_are_cut_for_the_second_cache(width: int, tasks: int) -> None:
    """Seven rows of 480 channels fill half of Haswell's second cache when they are longer than nine places."""
    w = RNG.integers(-3, 4, (7, 7, 1, 480)).astype("float32")
    x = RNG.integers(-3, 4, (1, 9, width, 480)).astype("float32")
    mod, target = build(x.shape, "float32", w, 1, 1, (3, 3, 3, 3)), "llvm -mcpu=haswell"
    text = relaxvm.compile(mod, target=target, stop_after="scheduled").script()
    assert f"T.parallel(T.int64({tasks})" in text  # 9 rows of each group of channels
    got = machine(mod, target)["main"](relaxvm.runtime.tensor(x)).numpy()
    np.testing.assert_array_equal(got, np.maximum(reference(x, w, 1, 1, (3, 3, 3, 3)), 0))
