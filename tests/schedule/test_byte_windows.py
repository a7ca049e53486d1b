# SPDX-License-Identifier: Apache-2.0
"""Depthwise convolutions of bytes: windows, steps and sizes of any kind, and padding by any byte."""

from __future__ import annotations

import numpy as np
import pytest

import relaxvm
from relaxvm import relax, tirx

op = relax.op
RNG = np.random.default_rng(0)
TARGETS = ["llvm", "llvm -mcpu=haswell", "llvm -mcpu=x86-64"]
# channels, size, window, strides, dilation, padding
CASES = [
    (32, (9, 17), (3, 3), 1, 1, 1),
    (40, (8, 28), (3, 3), 2, 1, 1),  # the last vector overlaps
    (17, (7, 7), (5, 5), 1, 1, 2),
    (16, (12, 9), (5, 5), 2, 1, 2),
    (64, (6, 5), (2, 4), 1, 1, 0),
    (48, (11, 13), (3, 3), 1, 2, 2),
    (16, (3, 2), (3, 3), 1, 1, 1),  # fewer places than neighbours
    (8, (6, 6), (3, 3), 1, 1, 1),  # half a vector
    (16, (6, 9), (7, 1), 1, 1, 3),
    (16, (4, 30), (1, 7), 1, 1, 3),
]


def build(shape, w, filler, strides, dilation, pad):
    params = [relax.Var("x", relax.TensorType(shape, "uint8"))]
    channels = w.shape[-1]
    bb = relax.BlockBuilder()
    with bb.function("main", params):
        x = params[0]
        if filler:
            x = op.nn.pad(x, [0, 0, pad, pad, pad, pad, 0, 0], pad_value=filler)
            pad = 0
        conv = op.nn.conv2d(
            x,
            relax.const(w),
            groups=channels,
            padding=pad,
            strides=strides,
            dilation=dilation,
            data_layout="NHWC",
            kernel_layout="HWIO",
            out_dtype="int32",
        )
        bb.emit_func_output(bb.emit(op.add(conv, relax.const(np.arange(channels, dtype="int32")))))
    return bb.get()


def reference(x, w, filler, stride, dilation, pad):
    x = np.pad(x.astype("int64"), ((0, 0), (pad, pad), (pad, pad), (0, 0)), constant_values=filler)
    high, wide = ((k - 1) * dilation + 1 for k in w.shape[:2])
    views = np.lib.stride_tricks.sliding_window_view(x, (high, wide), axis=(1, 2))
    views = views[:, ::stride, ::stride, :, ::dilation, ::dilation]
    out = np.einsum("nhwcij,ijc->nhwc", views, w[:, :, 0].astype("int64"))
    return (out + np.arange(w.shape[-1])).astype("int32")


@pytest.mark.parametrize("filler", [0, 131])
@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("target", TARGETS)
def test_values(case, filler, target):
    channels, size, window, stride, dilation, pad = case
    x = RNG.integers(0, 256, (2, *size, channels)).astype("uint8")
    w = RNG.integers(-128, 128, (*window, 1, channels)).astype("int8")
    mod = build(x.shape, w, filler, stride, dilation, pad)
    vm = relax.VirtualMachine(relaxvm.compile(mod, target=target), relaxvm.cpu())
    got = vm["main"](relaxvm.runtime.tensor(x)).numpy()
    np.testing.assert_array_equal(got, reference(x, w, filler, stride, dilation, pad))


@pytest.mark.parametrize("filler", [0, 7])
def test_size_known_at_run_time(filler):
    h, w = tirx.Var("h", "int64"), tirx.Var("w", "int64")
    weight = RNG.integers(-128, 128, (3, 3, 1, 24)).astype("int8")
    mod = build((1, h, w, 24), weight, filler, 1, 1, 1)
    vm = relax.VirtualMachine(relaxvm.compile(mod), relaxvm.cpu())
    for size in ((9, 13), (1, 1), (2, 4), (5, 3)):
        x = RNG.integers(0, 256, (1, *size, 24)).astype("uint8")
        got = vm["main"](relaxvm.runtime.tensor(x)).numpy()
        np.testing.assert_array_equal(got, reference(x, weight, filler, 1, 1, 1))
