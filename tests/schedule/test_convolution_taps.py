# SPDX-License-Identifier: Apache-2.0
"""Convolutions of data that is not padded go by elements of their kernel: right at any size, also where single elements,
whole lines or all of them lie on padding, and the same with any number of threads."""

from __future__ import annotations

import re

import ml_dtypes  # noqa: F401 - NumPy learns bfloat16
import numpy as np
import pytest

import relaxvm
from relaxvm import relax
from relaxvm.relax import op

# channels, filters, kernel, step, dilation, padding
CASES = [
    (64, 64, 3, 2, 1, 1),
    (64, 100, 3, 2, 1, 1),  # the last panel is not full
    (72, 8, 3, 1, 12, 12),
    (64, 200, 5, 3, 1, 2),
    (130, 40, 3, 1, 7, 3),  # less padding than dilation
    (64, 24, 2, 2, 3, 2),
]
# images, height, width
SHAPES = [(1, 14, 14), (2, 9, 33), (1, 3, 150), (3, 8, 7), (1, 40, 21)]


def convolution(case: tuple[int, ...], shape: tuple[object, ...], dtype: str) -> relaxvm.IRModule:
    channels, filters, kernel, step, dilation, padding = case
    data = relax.Var("x", relax.TensorType([*shape, channels], dtype))
    attrs = {"strides": step, "dilation": dilation, "padding": padding}
    attrs |= {"data_layout": "NHWC", "kernel_layout": "HWIO"}
    builder = relax.BlockBuilder()
    with builder.function("main", [data]):
        with builder.dataflow():
            y = builder.emit(op.nn.conv2d(data, relax.const(weight(case, dtype)), **attrs))
            result = builder.emit_output(op.nn.relu(y))
        builder.emit_func_output(result)
    return builder.finalize()


def weight(case: tuple[int, ...], dtype: str) -> np.ndarray:
    channels, filters, kernel = case[:3]
    w = np.random.default_rng(0).standard_normal((kernel, kernel, channels, filters))
    return (w / np.sqrt(kernel * kernel * channels)).astype(dtype)


def expected(case: tuple[int, ...], x: np.ndarray, w: np.ndarray) -> np.ndarray:
    _, _, kernel, step, dilation, padding = case
    wide = np.pad(x.astype("float64"), [(0, 0), (padding,) * 2, (padding,) * 2, (0, 0)])
    reach = (kernel - 1) * dilation
    ends = [n - reach for n in wide.shape[1:3]]
    return np.maximum(
        sum(
            wide[:, i : i + ends[0] : step, j : j + ends[1] : step]
            @ w[i // dilation, j // dilation].astype("float64")
            for i in range(0, reach + 1, dilation)
            for j in range(0, reach + 1, dilation)
        ),
        0,
    )


@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=haswell", "llvm -mcpu=x86-64-v2"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_right_results(case: tuple[int, ...], dtype: str, target: str) -> None:
    dims = [relaxvm.tirx.Var(name, "int64") for name in "nhw"]
    executable = relaxvm.compile(convolution(case, tuple(dims), dtype), target=target)
    vm = relaxvm.VirtualMachine(executable, relaxvm.cpu())
    w, rng = weight(case, dtype), np.random.default_rng(1)
    for shape in SHAPES:
        if min(shape[1:]) + 2 * case[5] <= (case[2] - 1) * case[4]:
            continue
        x = rng.standard_normal((*shape, case[0]), dtype=np.float32).astype(dtype)
        want = expected(case, x, w)
        vm.set_num_threads(1)
        alone = vm["main"](relaxvm.runtime.tensor(x)).numpy()
        error = 4e-6 if dtype == "float32" else 1.1e-3
        assert alone.shape == want.shape
        assert np.max(np.abs(alone - want)) <= error * np.max(np.abs(want))
        vm.set_num_threads(3)
        np.testing.assert_array_equal(vm["main"](relaxvm.runtime.tensor(x)).numpy(), alone)


def scheduled(case: tuple[int, ...], shape: tuple[object, ...]) -> str:
    # Caches of a known size.
    target = "llvm -mcpu=icelake-server"
    module = convolution(case, shape, "float32")
    return relaxvm.compile(module, target=target, stop_after="scheduled").script()


def test_sizes_that_are_known_take_ranges_of_rows_while_weights_stay_in_the_cache() -> None:
    dims = tuple(relaxvm.tirx.Var(name, "int64") for name in "nhw")
    case = (64, 64, 3, 1, 12, 12)
    assert "lines_here" in scheduled(case, dims)
    assert "lines_here" not in scheduled(case, (1, 20, 20))
    assert "lines_here" in scheduled((1024, 64, 3, 1, 12, 12), (1, 20, 20))


@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=haswell"])
@pytest.mark.parametrize(
    ("case", "shape"),
    [
        ((24, 40, 5, 1, 1, 2), (1, 9, 14)),
        ((24, 40, 5, 1, 1, 2), (1, 20, 14)),  # rows of tiles lie along the height
        ((24, 40, 3, 2, 1, 1), (20, 7, 7)),  # or along the images
        ((24, 40, 7, 3, 1, 3), (2, 6, 11)),
    ],
    ids=str,
)
def test_lines_of_known_sizes_leave_padding_out_as_a_whole(
    case: tuple[int, ...], shape: tuple[int, ...], target: str
) -> None:
    vm = relaxvm.VirtualMachine(
        relaxvm.compile(convolution(case, shape, "float32"), target=target), relaxvm.cpu()
    )
    x = np.random.default_rng(1).standard_normal((*shape, case[0]), dtype=np.float32)
    want = expected(case, x, weight(case, "float32"))
    for threads in (1, 3):
        vm.set_num_threads(threads)
        got = vm["main"](relaxvm.runtime.tensor(x)).numpy()
        assert np.max(np.abs(got - want)) <= 4e-6 * np.max(np.abs(want))


def padded(case: tuple[int, ...], shape: tuple[object, ...]) -> list[str]:
    """How the padded copy lies in the data: `before` of each axis where it has some."""
    script = relaxvm.compile(
        convolution(case, shape, "float32"), target="llvm", stop_after="lowered"
    ).script()
    return re.findall(r"\bpad\[.*\] = T.if_then_else\((.*), x\[", script)


def test_a_line_leaves_kernel_rows_out_where_many_products_lie_on_padding() -> None:
    case = (24, 40, 5, 1, 1, 2)
    (across,) = padded(case, (1, 9, 14))
    assert "i2" in across and "i1" not in across
    (both,) = padded(case, (1, 80, 80))  # a share of 1 %
    assert "i1" in both and "i2" in both
    (both,) = padded((512, 512, 3, 2, 1, 1), (1, 14, 14))
    assert "i1" in both, "each line would read the large weights"
