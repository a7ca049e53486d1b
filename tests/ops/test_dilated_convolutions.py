# SPDX-License-Identifier: Apache-2.0
"""Convolutions whose kernel elements lie on padding for some or all windows: those that never meet data are left out.
Small whole numbers make sums exact in any order."""

from __future__ import annotations

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
