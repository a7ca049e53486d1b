# SPDX-License-Identifier: Apache-2.0
"""Convolutions whose kernel elements lie on padding for some or all windows: those that never meet data are left out,
and others where no padded copy is made.
Small whole numbers make sums exact in any order."""

from __future__ import annotations

import re

import numpy as np
import pytest

import relaxvm
from relaxvm import relax
from relaxvm.relax import op

RNG = np.random.default_rng(0)
# size, kernel, dilation, stride, padding before and after
CASES = [
    (16, 3, 24, 1, 24, 24),  # one element meets data
    (16, 3, 12, 1, 12, 12),  # all do, in some windows
    (5, 3, 7, 1, 8, 7),
    (6, 5, 4, 1, 9, 9),
    (4, 3, 5, 3, 9, 2),  # only late ones
    (4, 3, 5, 2, 0, 12),  # only early ones
    (1, 3, 1, 1, 1, 1),
    (3, 4, 3, 4, 7, 0),
    (2, 2, 9, 5, 4, 5),  # none at all
]


def convolved(x: np.ndarray, w: np.ndarray, dilation: int, stride: int, pads: tuple[int, int]):
    """[n, size, channels], [taps, channels, filters] -> [n, windows, filters]."""
    padded = np.pad(x, ((0, 0), pads, (0, 0)))
    reach = (len(w) - 1) * dilation + 1
    starts = range(0, padded.shape[1] - reach + 1, stride)
    windows = [padded[:, s : s + reach : dilation] for s in starts]
    return np.stack([np.einsum("nkc,kco->no", part, w) for part in windows], axis=1)


def run(x: np.ndarray, shape: list, **attrs) -> np.ndarray:
    builder = relax.BlockBuilder()
    data = relax.Var("x", relax.TensorType(shape, "float32"))
    with builder.function("main", [data]):
        with builder.dataflow():
            out = builder.emit_output(op.nn.conv1d(data, **attrs))
        builder.emit_func_output(out)
    vm = relaxvm.VirtualMachine(relaxvm.compile(builder.get(), target="llvm"), relaxvm.cpu())
    return vm["main"](relaxvm.runtime.tensor(x)).numpy()


# height, width, kernel, dilation, stride, padding
PLANES = [
    (14, 14, (3, 3), (12, 12), (1, 1), (12, 12, 12, 12)),
    (9, 30, (3, 3), (6, 6), (1, 1), (6, 6, 6, 6)),  # all elements meet data between the borders
    (30, 5, (3, 3), (4, 4), (1, 1), (4, 4, 4, 4)),  # the rows of tiles lie along the height
    (13, 11, (5, 3), (4, 7), (2, 3), (8, 5, 6, 9)),
    (12, 1, (3, 1), (6, 6), (1, 1), (6, 0, 6, 0)),
    (10, 9, (2, 2), (9, 8), (3, 2), (4, 4, 5, 5)),  # some windows meet nothing
    (57, 60, (3, 3), (1, 1), (2, 2), (1, 1, 1, 1)),  # every other window, of long rows
    (9, 85, (5, 7), (1, 1), (2, 3), (2, 3, 1, 3)),
    (1, 70, (1, 18), (1, 2), (1, 1), (0, 17, 0, 17)),  # more elements than rows have ranges for
]


def convolved_planes(x: np.ndarray, w: np.ndarray, case: tuple) -> np.ndarray:
    _, _, taps, dilation, stride, pads = case
    padded = np.pad(x, ((0, 0), (pads[0], pads[2]), (pads[1], pads[3]), (0, 0)))
    sizes = [
        (padded.shape[1 + s] - (taps[s] - 1) * dilation[s] - 1) // stride[s] + 1 for s in (0, 1)
    ]
    total = np.zeros((len(x), *sizes, w.shape[3]))
    for i in range(taps[0]):
        for j in range(taps[1]):
            rows = padded[:, i * dilation[0] :: stride[0], j * dilation[1] :: stride[1]]
            total += rows[:, : sizes[0], : sizes[1]].astype("float64") @ w[i, j].astype("float64")
    return total


# names of unknown sizes, element type, target
FORMS = [
    ("", "float32", "llvm"),
    ("", "float32", "llvm -mcpu=haswell"),
    ("", "int8", "llvm"),
    ("h", "float32", "llvm"),
    ("w", "int8", "llvm"),
    ("nhw", "float32", "llvm"),
]


@pytest.mark.parametrize(("unknown", "dtype", "target"), FORMS)
@pytest.mark.parametrize("case", PLANES, ids=str)
def test_values_of_planes(case: tuple, unknown: str, dtype: str, target: str) -> None:
    height, width, taps, dilation, stride, pads = case
    x = RNG.integers(-3, 4, (2, height, width, 12)).astype(dtype)
    w = RNG.integers(-3, 4, (*taps, 12, 40)).astype(dtype)
    sizes = {"n": 2, "h": height, "w": width}
    shape = [relaxvm.tirx.Var(k, "int64") if k in unknown else v for k, v in sizes.items()]
    data = relax.Var("x", relax.TensorType([*shape, 12], dtype))
    builder = relax.BlockBuilder()
    with builder.function("main", [data]):
        with builder.dataflow():
            y = op.nn.conv2d(
                data,
                relax.const(w, dtype),
                strides=stride,
                padding=pads,
                dilation=dilation,
                data_layout="NHWC",
                kernel_layout="HWIO",
                out_dtype="int32" if dtype == "int8" else dtype,
            )
            out = builder.emit_output(op.nn.relu(builder.emit(y)))
        builder.emit_func_output(out)
    vm = relaxvm.VirtualMachine(relaxvm.compile(builder.get(), target=target), relaxvm.cpu())
    for threads in (1, 3):
        vm.set_num_threads(threads)
        result = vm["main"](relaxvm.runtime.tensor(x)).numpy()
        want = np.maximum(convolved_planes(x, w, case), 0)
        if dtype == "int8":
            np.testing.assert_array_equal(result, want)
        else:  # perhaps in Winograd's form
            assert np.max(np.abs(result - want)) < 4e-6 * np.max(want)


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("channels", [(3, 5), (16, 40)], ids=str)
def test_values(case: tuple[int, ...], channels: tuple[int, int]) -> None:
    size, taps, dilation, stride, before, after = case
    x = RNG.integers(-3, 4, (2, size, channels[0])).astype("float32")
    w = RNG.integers(-3, 4, (taps, *channels)).astype("float32")
    want = convolved(x, w, dilation, stride, (before, after))
    attrs = {
        "weight": relax.const(w),
        "dilation": dilation,
        "strides": stride,
        "padding": [before, after],
        "data_layout": "NWC",
        "kernel_layout": "WIO",
    }
    np.testing.assert_array_equal(run(x, list(x.shape), **attrs), want)
    unknown = relaxvm.tirx.Var("size", "int64")
    np.testing.assert_array_equal(run(x, [2, unknown, channels[0]], **attrs), want)


def test_elements_on_padding_alone_are_not_read() -> None:
    data = relax.Var("x", relax.TensorType([1, 16, 8], "float32"))
    weight = relax.Var("w", relax.TensorType([3, 8, 8], "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [data, weight]):
        with builder.dataflow():
            attrs = {"padding": 24, "data_layout": "NWC", "kernel_layout": "WIO"}
            out = builder.emit_output(op.nn.conv1d(data, weight, dilation=24, **attrs))
        builder.emit_func_output(out)
    text = relax.transform.LegalizeOps()(builder.get()).script()
    assert "T.int64(64)" not in text  # the size with its padding
    assert "T.grid(T.int64(1), T.int64(16), T.int64(8), T.int64(8), T.int64(1))" in text


def test_what_lies_on_padding_is_left_out_window_by_window() -> None:
    data = relax.Var("x", relax.TensorType([1, 14, 14, 16], "float32"))
    weight = RNG.standard_normal((3, 3, 16, 32), dtype=np.float32)
    builder = relax.BlockBuilder()
    with builder.function("main", [data]):
        with builder.dataflow():
            attrs = {"padding": 12, "data_layout": "NHWC", "kernel_layout": "HWIO"}
            y = op.nn.conv2d(data, relax.const(weight), dilation=12, **attrs)
            out = builder.emit_output(y)
        builder.emit_func_output(out)
    module = relax.transform.LegalizeOps()(builder.get())
    assert "T.int64(38)" not in module.script()  # the size with its padding
    target = "llvm -mcpu=skylake-avx512"  # one panel of weights
    text = relaxvm.compile(builder.get(), target=target, stop_after="scheduled").script()
    # Two, ten and two columns; those at the borders meet two of the three kernel elements.
    assert text.count("T.parallel(T.int64(42)") == 1
    kernel_loops = re.findall(r"for r2\w*(?:, \w+)* in [\w.]+\(T\.int64\((\d+)\)", text)
    assert kernel_loops == ["2", "2"]


def test_long_rows_of_windows_with_steps_are_not_padded() -> None:
    def script(dims: list, stride: int, taps: int = 3) -> str:
        data = relax.Var("x", relax.TensorType([1, *dims, 16], "float32"))
        weight = relax.const(np.zeros((taps, 3, 16, 32), "float32"))
        builder = relax.BlockBuilder()
        with builder.function("main", [data]):
            with builder.dataflow():
                attrs = {"padding": 1, "data_layout": "NHWC", "kernel_layout": "HWIO"}
                y = op.nn.conv2d(data, weight, strides=stride, **attrs)
                out = builder.emit_output(y)
            builder.emit_func_output(out)
        return relax.transform.LegalizeOps()(builder.get()).script()

    unknown = [relaxvm.tirx.Var(name, "int64") for name in "hw"]
    assert "pad" not in script([56, 56], 2)
    assert "pad" not in script(unknown, 2)
    assert "pad" in script([14, 14], 2)  # rows of seven windows, of which one is at the border
    assert "pad" in script([56, 56], 1)
    assert "pad" in script([56, 56], 2, taps=17)  # more than rows have ranges for
