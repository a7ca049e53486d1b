# SPDX-License-Identifier: Apache-2.0
"""sort, argsort and topk beside NumPy: lines of few and of many elements, words that differ above, below and in sign."""

from __future__ import annotations

import numpy as np
import pytest

import relaxvm
from relaxvm import relax, tirx
from relaxvm.relax import op

LENGTHS = [0, 1, 2, 8, 20, 63, 64, 65, 79, 300]
DTYPES = ["uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64"]
TARGETS = ["llvm", "llvm -mcpu=haswell", "llvm -mcpu=x86-64"]


def compiled(body, dtype, target, size=None):
    rows, unknown = tirx.Var("rows", "int64"), tirx.Var("size", "int64")
    x = relax.Var("x", relax.TensorType([rows, unknown if size is None else size], dtype))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(body(x))
        builder.emit_func_output(out)
    executable = relaxvm.compile(builder.get(), target=target)
    return relax.VirtualMachine(executable, relaxvm.cpu())["main"]


def lines_of(dtype: str, size: int) -> np.ndarray:
    """Lines of few different numbers, of numbers near each other, and of all that there are."""
    rng = np.random.default_rng(size)
    if np.dtype(dtype).kind == "f":
        x = rng.standard_normal((3, size)).astype(dtype)
        x[0] = np.round(x[0])
        if size:
            x[2, rng.integers(0, size, 5)] = [np.nan, np.inf, -np.inf, -0.0, np.nan]
        return x
    limits = np.iinfo(dtype)
    ranges = [(0, 2), (max(limits.min, -100), 100), (limits.min, limits.max)]
    x = np.stack([rng.integers(a, b, size, dtype=dtype, endpoint=True) for a, b in ranges])
    if size:
        x[2, rng.integers(0, size, 2)] = [limits.min, limits.max]
    return x


def order_of(x: np.ndarray, descending: bool) -> np.ndarray:
    """Equal ones keep their order; NaN last, descending first."""
    if not descending:
        return np.argsort(x, axis=-1, kind="stable")
    return x.shape[-1] - 1 - np.argsort(x[:, ::-1], axis=-1, kind="stable")[:, ::-1]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_order_of_lines(dtype, target):
    for descending in (False, True):
        order = lambda x, down=descending: op.argsort(x, axis=-1, descending=down, dtype="int64")
        argsort = compiled(order, dtype, target)
        for size in LENGTHS:
            x = lines_of(dtype, size)
            got = argsort(relaxvm.runtime.tensor(x)).numpy()
            np.testing.assert_array_equal(got, order_of(x, descending), f"{size} elements")


@pytest.mark.parametrize("dtype", DTYPES)
def test_lines_of_known_size(dtype):
    for size in (1, 20, 33, 64, 65):
        x = lines_of(dtype, size)
        sort = compiled(lambda x: op.sort(x, axis=-1), dtype, "llvm", size)
        got = sort(relaxvm.runtime.tensor(x)).numpy()
        np.testing.assert_array_equal(got, np.sort(x, axis=-1, kind="stable"))
        k = (size + 1) // 2
        first = compiled(lambda x, k=k: op.topk(x, k=k, ret_type="indices"), dtype, "llvm", size)
        got = first(relaxvm.runtime.tensor(x)).numpy()
        np.testing.assert_array_equal(got, order_of(x, descending=True)[:, :k])


@pytest.mark.parametrize("k", [3, 40])
@pytest.mark.parametrize("dtype", DTYPES)
def test_first_of_lines(dtype, k):
    first = compiled(lambda x: op.topk(x, k=k, dtype="int64"), dtype, "llvm")
    for size in (k, 64, 300):
        x = lines_of(dtype, size)
        values, indices = first(relaxvm.runtime.tensor(x))
        expected = order_of(x, descending=True)[:, :k]
        np.testing.assert_array_equal(indices.numpy(), expected)
        np.testing.assert_array_equal(values.numpy(), np.take_along_axis(x, expected, 1))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_first_of_lines_of_known_size(dtype, target):
    for size, largest in ((80, True), (300, False), (300, True)):
        body = lambda x, to=largest: op.topk(x, k=40, largest=to, ret_type="indices", dtype="int64")
        first = compiled(body, dtype, target, size)
        lines = lines_of(dtype, size)
        coarse = np.round(lines) if lines.dtype.kind == "f" else lines // 64 * 64
        for x in (lines, coarse):
            got = first(relaxvm.runtime.tensor(x)).numpy()
            np.testing.assert_array_equal(got, order_of(x, descending=largest)[:, :40])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(("size", "k"), [(64, 1), (2000, 3), (2003, 20), (20001, 40)])
def test_few_of_many(size, k, known, target):
    """Elements are compared by vectors: of those before the last one kept, few, many (a line in order) and none."""
    rng = np.random.default_rng(0)
    for dtype in ("float32", "int32", "uint8", "float16"):
        x = np.stack([rng.permutation(size), np.arange(size), np.arange(size)[::-1]])
        x = (x % 251 if dtype == "uint8" else x % 2039).astype(dtype)
        if dtype.startswith("float"):
            x[0, rng.integers(0, size, 3)] = [np.nan, -np.inf, np.nan]
        for largest in (True, False):
            body = lambda x, to=largest: op.topk(x, k=k, largest=to, dtype="int64")
            first = compiled(body, dtype, target, size if known else None)
            values, indices = first(relaxvm.runtime.tensor(x))
            expected = order_of(x, descending=largest)[:, :k]
            np.testing.assert_array_equal(indices.numpy(), expected)
            np.testing.assert_array_equal(values.numpy(), np.take_along_axis(x, expected, 1))
