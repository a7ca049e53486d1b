# SPDX-License-Identifier: Apache-2.0
"""Elements a few apart, or each several times, are read by whole vectors: none beyond the last one that is asked for."""

from __future__ import annotations

import ctypes
import mmap

import numpy as np
import pytest

import relaxvm
from relaxvm import relax, tirx
from relaxvm.relax import op

PAGE = mmap.PAGESIZE


def compiled(body, dims, dtype, target="llvm"):
    x = relax.Var("x", relax.TensorType(dims, dtype))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(body(x))
        builder.emit_func_output(out)
    executable = relaxvm.compile(builder.get(), target=target)
    return relax.VirtualMachine(executable, relaxvm.cpu())["main"]


def before_forbidden_page(array: np.ndarray) -> np.ndarray:
    """The same values in memory whose next byte belongs to a page that may not be read."""
    pages = -(-array.nbytes // PAGE)
    memory = mmap.mmap(-1, (pages + 1) * PAGE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    assert libc.mprotect(start + pages * PAGE, PAGE, 0) == 0
    offset = pages * PAGE - array.nbytes
    copy = np.frombuffer(memory, array.dtype, array.size, offset).reshape(array.shape)
    copy[...] = array
    return copy


@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=haswell", "llvm -mcpu=x86-64"])
@pytest.mark.parametrize("dtype", ["uint8", "bool", "int16", "float16", "float32", "int64"])
def test_reads_no_element_that_is_not_asked_for(dtype, target):
    n = tirx.Var("n", "int64")
    for step in (2, 3, 4, 5):
        run = compiled(lambda x, step=step: op.strided_slice(x, [1], [1], [n], [step]), (3, n), dtype, target)  # fmt: skip
        for size in (2, 33, 130, 257):
            values = np.random.default_rng(size).integers(0, 100, (3, size)).astype(dtype)
            x = relaxvm.runtime.from_dlpack(before_forbidden_page(values))
            np.testing.assert_array_equal(run(x).numpy(), values[:, 1::step])


@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=haswell", "llvm -mcpu=x86-64"])
@pytest.mark.parametrize("dtype", ["uint8", "bool", "int16", "float16", "float32", "int64"])
def test_repeats_each_element(dtype, target):
    n = tirx.Var("n", "int64")
    for times in (2, 3, 4, 8, 64):
        run = compiled(lambda x, times=times: op.repeat(x, times, 1), (3, n), dtype, target)
        for size in (0, 1, 7, 16, 65):
            values = np.random.default_rng(size).integers(0, 100, (3, size)).astype(dtype)
            x = relaxvm.runtime.from_dlpack(before_forbidden_page(values))
            np.testing.assert_array_equal(run(x).numpy(), values.repeat(times, 1))


@pytest.mark.parametrize("first", [0, 1, 5])
@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=haswell"])
def test_begins_inside_of_a_run_of_repeats(first, target):
    values = np.arange(3 * 40, dtype="float32").reshape(3, 40)
    body = lambda x: op.strided_slice(op.repeat(x, 4, 1), [1], [first], [160], [1])
    run = compiled(body, values.shape, "float32", target)
    x = relaxvm.runtime.from_dlpack(before_forbidden_page(values))
    np.testing.assert_array_equal(run(x).numpy(), values.repeat(4, 1)[:, first:])


def test_repeats_run_along_vectors():
    x = relax.Var("x", relax.TensorType((3, 80), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(op.repeat(x, 2, 1))
        builder.emit_func_output(out)
    scheduled = relaxvm.compile(builder.get(), stop_after="scheduled")
    assert "T.vectorized" in scheduled.script()


def test_maxima_of_neighbours_run_along_vectors():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 3, 6, 70), dtype=np.float32)
    run = compiled(lambda x: op.nn.max_pool2d(x, (2, 2), strides=(2, 2)), x.shape, "float32")
    expected = x.reshape(2, 3, 3, 2, 35, 2).max((3, 5))
    np.testing.assert_array_equal(run(relaxvm.runtime.tensor(x)).numpy(), expected)


def test_bfloat16_rounds_once():
    x = np.array([1.00390625, 1.01171875, -3.3, np.inf, np.nan, 1e-40], np.float32)
    run = compiled(lambda x: op.astype(op.astype(x, "bfloat16"), "float32"), x.shape, "float32")
    wide = x.view(np.uint32).astype(np.uint64)
    rounded = ((wide + 0x7FFF + (wide >> 16 & 1)) >> 16 << 16).astype(np.uint32).view(np.float32)
    expected = np.where(np.isnan(x), x, rounded)
    np.testing.assert_array_equal(run(relaxvm.runtime.tensor(x)).numpy(), expected)
