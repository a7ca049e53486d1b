# SPDX-License-Identifier: Apache-2.0
"""Convolutions in groups: any width of a group, any number of groups, what stands behind them."""

from __future__ import annotations

import numpy as np
import pytest

import relaxvm
from relaxvm import relax

op = relax.op
RNG = np.random.default_rng(0)
TARGETS = ["llvm", "llvm -mcpu=haswell", "llvm -mcpu=x86-64"]
# groups, channels and filters of each, size, window, strides
CASES = [
    (32, 4, 4, (9, 17), 3, 1),
    (6, 8, 8, (5, 7), 3, 2),
    (5, 4, 4, (6, 6), 3, 1),  # the last vector has one group
    (7, 2, 2, (3, 40), 1, 1),
    (3, 8, 4, (4, 5), 3, 1),  # more channels than filters
    (9, 2, 4, (4, 5), 2, 1),
    (20, 2, 1, (4, 5), 3, 1),
    (4, 3, 4, (4, 5), 3, 1),  # left sides of a vector are no power of two
    (4, 16, 4, (4, 5), 3, 1),  # deep
    (4, 6, 3, (4, 5), 3, 1),  # vectors do not start at groups
    (2, 4, 4, (1, 1), 1, 1),
    (2, 8, 16, (9, 7), 3, 2),  # a panel for each group
    (3, 4, 24, (4, 5), 3, 2),  # which is not full
    (2, 3, 160, (4, 5), 5, 1),  # panels
    # Rows that are not padded, of images that leave the second cache.
    (16, 8, 8, (61, 58), 3, 2),
    (13, 8, 8, (58, 60), 3, 2),
    (32, 4, 4, (70, 57), 3, 1),
    (9, 4, 4, (28, 29), 5, 1),
    (16, 16, 16, (58, 57), 3, 2),
    (5, 24, 24, (57, 58), 3, 2),
]


def reference(x: np.ndarray, w: np.ndarray, groups: int, stride: int) -> np.ndarray:
    window, _, depth, filters = w.shape
    pad = window // 2
    x = np.pad(x.astype("float64"), ((0, 0), (pad, pad), (pad, pad), (0, 0)))
    views = np.lib.stride_tricks.sliding_window_view(x, (window, window), axis=(1, 2))
    views = views[:, ::stride, ::stride]
    views = views.reshape(*views.shape[:3], groups, depth, window, window)
    w = w.astype("float64").reshape(window, window, depth, groups, filters // groups)
    out = np.einsum("nhwgcij,ijcgo->nhwgo", views, w)
    return out.reshape(*out.shape[:3], filters)


def build(w, params, groups, stride, finish, **more):
    bb = relax.BlockBuilder()
    with bb.function("main", params):
        conv = op.nn.conv2d(
            params[0],
            relax.const(w),
            groups=groups,
            padding=w.shape[0] // 2,
            strides=stride,
            data_layout="NHWC",
            kernel_layout="HWIO",
            **more,
        )
        bb.emit_func_output(bb.emit(finish(conv)))
    return bb.get()


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("target", TARGETS)
def test_values(case, target):
    groups, depth, columns, size, window, stride = case
    x = RNG.standard_normal((2, *size, groups * depth), dtype="float32")
    w = RNG.standard_normal((window, window, depth, groups * columns), dtype="float32")
    bias = RNG.standard_normal(groups * columns, dtype="float32")
    params = [relax.Var("x", relax.TensorType(x.shape, "float32"))]
    finish = lambda conv: op.nn.relu(op.add(conv, relax.const(bias)))
    mod = build(w, params, groups, stride, finish)
    vm = relax.VirtualMachine(relaxvm.compile(mod, target=target), relaxvm.cpu())
    got = vm["main"](relaxvm.runtime.tensor(x)).numpy()
    want = np.maximum(reference(x, w, groups, stride) + bias, 0)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_weights_of_wide_groups_are_packed():
    w = RNG.standard_normal((3, 3, 8, 32), dtype="float32")
    params = [relax.Var("x", relax.TensorType((1, 8, 8, 16), "float32"))]
    mod = relaxvm.compile(
        build(w, params, 2, 2, op.nn.relu), target="llvm -mcpu=haswell", stop_after="lowered"
    )
    panels = ", ".join(f"T.int64({size})" for size in (2, 1, 3, 3, 8, 16))
    assert f"T.Buffer(({panels})" in mod.script()


def test_size_known_at_run_time():
    x = RNG.standard_normal((1, 13, 19, 24), dtype="float32")
    w = RNG.standard_normal((3, 3, 4, 24), dtype="float32")
    h, width = relaxvm.tirx.Var("h", "int64"), relaxvm.tirx.Var("w", "int64")
    params = [relax.Var("x", relax.TensorType((1, h, width, 24), "float32"))]
    vm = relax.VirtualMachine(relaxvm.compile(build(w, params, 6, 1, op.nn.relu)), relaxvm.cpu())
    for end in (13, 5, 1):
        part = np.ascontiguousarray(x[:, :end])
        got = vm["main"](relaxvm.runtime.tensor(part)).numpy()
        want = np.maximum(reference(part, w, 6, 1), 0)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", [(4, 5, 3, 0), (4, 5, 0, 2), (4, 0, 3, 2), (0, 5, 3, 2)])
def test_products_of_nothing(shape):
    batch, rows, depth, columns = shape
    x = RNG.standard_normal((batch, rows, depth), dtype="float32")
    w = RNG.standard_normal((batch, depth, columns), dtype="float32")
    bb = relax.BlockBuilder()
    params = [relax.Var(n, relax.TensorType(v.shape, "float32")) for n, v in (("x", x), ("w", w))]
    with bb.function("main", params):
        bb.emit_func_output(bb.emit(op.einsum(params, "bmk,bkn->mbn")))
    vm = relax.VirtualMachine(relaxvm.compile(bb.get()), relaxvm.cpu())
    got = vm["main"](*(relaxvm.runtime.tensor(v) for v in (x, w))).numpy()
    np.testing.assert_array_equal(got, np.zeros((rows, batch, columns), "float32"))


BYTES = [
    (32, 4, 4, (9, 17), 3, 1),
    (6, 8, 8, (5, 7), 3, 2),
    (5, 4, 4, (6, 6), 3, 1),  # the last vector has one group
    (9, 4, 2, (4, 5), 2, 1),
    (20, 4, 1, (4, 5), 3, 1),
    (4, 16, 16, (7, 7), 3, 1),  # a vector for each group
    (3, 32, 32, (7, 7), 3, 1),
    (3, 8, 24, (7, 7), 1, 1),  # panels that are not full
    (2, 8, 160, (5, 7), 3, 1),  # several for each group
    (3, 12, 3, (4, 5), 3, 1),
    (5, 64, 8, (4, 5), 3, 1),  # deep
    (2, 4, 4, (1, 1), 1, 1),
]


@pytest.mark.parametrize("left", ["uint8", "int8"])
@pytest.mark.parametrize("case", BYTES, ids=str)
@pytest.mark.parametrize("target", TARGETS)
def test_bytes(case, left, target):
    groups, depth, columns, size, window, stride = case
    x = RNG.integers(-128, 128, (2, *size, groups * depth)).astype(left)
    w = RNG.integers(-128, 128, (window, window, depth, groups * columns)).astype("int8")
    params = [relax.Var("x", relax.TensorType(x.shape, left))]
    mod = build(w, params, groups, stride, lambda conv: conv, out_dtype="int32")
    vm = relax.VirtualMachine(relaxvm.compile(mod, target=target), relaxvm.cpu())
    got = vm["main"](relaxvm.runtime.tensor(x)).numpy()
    np.testing.assert_array_equal(got, reference(x, w, groups, stride).astype("int32"))
