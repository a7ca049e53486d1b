# SPDX-License-Identifier: Apache-2.0
"""Products with a right side of few columns run along the sum: right with any number of rows and columns, with padding left
out of lines of windows, and the same with any number of threads."""

from __future__ import annotations

import ml_dtypes  # noqa: F401 - NumPy learns bfloat16
import numpy as np
import pytest

import relaxvm
from relaxvm import relax
from relaxvm.relax import op

TARGETS = ["llvm", "llvm -mcpu=haswell", "llvm -mcpu=x86-64-v2"]
RNG = np.random.default_rng(0)


def random(dtype: str, *shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, dtype=np.float32).astype(dtype)


def product(w: np.ndarray, rows: object, turned: bool) -> relaxvm.IRModule:
    """relu(x @ w + bias); `turned`: the weight is given the other way round."""
    depth, columns = w.shape
    data = relax.Var("x", relax.TensorType([rows, depth], str(w.dtype)))
    bias = np.arange(columns).astype(w.dtype)
    builder = relax.BlockBuilder()
    with builder.function("main", [data]):
        with builder.dataflow():
            right = (
                op.permute_dims(relax.const(np.ascontiguousarray(w.T)))
                if turned
                else relax.const(w)
            )
            sums = builder.emit(op.add(op.matmul(data, right), relax.const(bias)))
            result = builder.emit_output(op.nn.relu(sums))
        builder.emit_func_output(result)
    return builder.finalize()


def convolution(w: np.ndarray, shape: tuple[object, ...], **attrs: int) -> relaxvm.IRModule:
    data = relax.Var("x", relax.TensorType([*shape, w.shape[2]], str(w.dtype)))
    builder = relax.BlockBuilder()
    with builder.function("main", [data]):
        with builder.dataflow():
            y = op.nn.conv2d(
                data, relax.const(w), data_layout="NHWC", kernel_layout="HWIO", **attrs
            )
            result = builder.emit_output(builder.emit(y))
        builder.emit_func_output(result)
    return builder.finalize()


def convolved(x: np.ndarray, w: np.ndarray, strides: int, padding: int) -> np.ndarray:
    wide = np.pad(x.astype("float64"), [(0, 0), (padding,) * 2, (padding,) * 2, (0, 0)])
    kernel = w.shape[0]
    ends = [n - kernel + 1 for n in wide.shape[1:3]]
    return sum(
        wide[:, i : i + ends[0] : strides, j : j + ends[1] : strides] @ w[i, j].astype("float64")
        for i in range(kernel)
        for j in range(kernel)
    )


def check(module: relaxvm.IRModule, target: str, x: np.ndarray, want: np.ndarray) -> None:
    vm = relaxvm.VirtualMachine(relaxvm.compile(module, target=target), relaxvm.cpu())
    error = 4e-6 if x.dtype == np.float32 else 1.1e-3
    vm.set_num_threads(1)
    alone = vm["main"](relaxvm.runtime.tensor(x)).numpy()
    assert alone.shape == want.shape
    assert np.max(np.abs(alone - want), initial=0) <= error * np.max(np.abs(want), initial=1)
    vm.set_num_threads(3)
    np.testing.assert_array_equal(vm["main"](relaxvm.runtime.tensor(x)).numpy(), alone)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("columns", [1, 3, 8])
def test_products(columns: int, dtype: str, target: str) -> None:
    for depth, rows in ((64, 150), (257, 33), (40, 1), (96, 16), (64, 0)):
        w, x = random(dtype, depth, columns), random(dtype, rows, depth)
        want = np.maximum(x.astype("float64") @ w.astype("float64") + np.arange(columns), 0)
        for turned in (False, True):
            check(product(w, rows, turned), target, x, want)
            check(product(w, relaxvm.tirx.Var("n", "int64"), turned), target, x, want)


# channels, filters, kernel, step, padding
CASES = [
    (64, 3, 3, 1, 1),
    (16, 1, 3, 1, 1),
    (24, 2, 5, 1, 2),
    (32, 4, 3, 2, 1),
    (32, 3, 7, 1, 3),
    (40, 4, 1, 1, 0),
]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_convolutions(case: tuple[int, ...], target: str) -> None:
    channels, filters, kernel, strides, padding = case
    w = random("float32", kernel, kernel, channels, filters)
    dims = tuple(relaxvm.tirx.Var(name, "int64") for name in "nhw")
    for shape in ((1, 14, 33), (2, 9, 40), (1, 7, 3)):
        x = random("float32", *shape, channels)
        want = convolved(x, w, strides, padding)
        for sizes in (shape, dims):
            module = convolution(w, sizes, strides=strides, padding=padding)
            check(module, target, x, want)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_nothing_is_padded_where_the_kernel_is_small(case: tuple[int, ...]) -> None:
    channels, filters, kernel, strides, padding = case
    w = random("float32", kernel, kernel, channels, filters)
    module = convolution(w, (1, 56, 56), strides=strides, padding=padding)
    text = relaxvm.compile(
        module, target="llvm -mcpu=icelake-server", stop_after="scheduled"
    ).script()
    assert "columns" in text
    assert ("pad" in text) == (kernel > 5)


def test_phases_of_a_transposed_convolution_are_few_columns() -> None:
    w, x = random("float32", 2, 2, 64, 1), random("float32", 2, 9, 13, 64)
    data = relax.Var("x", relax.TensorType(x.shape, "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [data]):
        with builder.dataflow():
            y = op.nn.conv2d_transpose(
                data, relax.const(w), strides=2, data_layout="NHWC", kernel_layout="HWIO"
            )
            result = builder.emit_output(builder.emit(y))
        builder.emit_func_output(result)
    module = builder.finalize()
    assert "columns" in relaxvm.compile(module, stop_after="scheduled").script()
    want = np.einsum("nhwc,ijco->nhiwjo", x.astype("float64"), w.astype("float64"))
    check(module, "llvm", x, want.reshape(2, 18, 26, 1))


def test_wider_right_sides_and_short_sums_keep_their_tiles() -> None:
    for depth, columns in ((64, 9), (8, 4)):
        text = relaxvm.compile(
            product(random("float32", depth, columns), 512, False),
            target="llvm -mcpu=icelake-server",
            stop_after="scheduled",
        ).script()
        assert "columns" not in text
