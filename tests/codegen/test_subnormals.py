# SPDX-License-Identifier: Apache-2.0
"""Kernels that add up products or exponentials take subnormal numbers for 0 where arithmetic on them takes long (x86); all others keep
them, on every thread and also after such a kernel."""

from __future__ import annotations

import multiprocessing
import platform
from collections.abc import Callable

import numpy as np
import pytest

import relaxvm
from relaxvm import relax
from relaxvm.relax import op

pytestmark = pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64"), reason="only x86 takes subnormals for 0"
)

TINY = np.float32(1e-40)
Form = Callable[[object, int], tuple[relax.Var, relax.Expr]]


def product(rows: object, columns: int) -> tuple[relax.Var, relax.Expr]:
    x = relax.Var("x", relax.TensorType([rows, 64], "float32"))
    return x, op.matmul(x, relax.const(np.full((64, columns), TINY)))


def depthwise(rows: object, columns: int) -> tuple[relax.Var, relax.Expr]:
    x = relax.Var("x", relax.TensorType([1, rows, 8, columns], "float32"))
    w = relax.const(np.full((3, 3, columns, 1), TINY))
    layouts = {"data_layout": "NHWC", "kernel_layout": "HWOI"}
    return x, op.nn.conv2d(x, w, padding=1, groups=columns, **layouts)


def winograd(rows: object, columns: int) -> tuple[relax.Var, relax.Expr]:
    x = relax.Var("x", relax.TensorType([1, rows, 12, 32], "float32"))
    w = relax.const(np.full((3, 3, 32, columns), TINY))
    return x, op.nn.conv2d(x, w, padding=1, data_layout="NHWC", kernel_layout="HWIO")


def sums_and_twice(form: Form, rows: object, columns: int) -> relaxvm.VirtualMachine:
    """main(x, y) = (sums of x with TINY, 2 * y), the second after the first."""
    x, sums = form(rows, columns)
    y = relax.Var("y", relax.TensorType([1 << 20], "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, y]):
        with builder.dataflow():
            both = relax.Tuple([builder.emit(sums), builder.emit(op.add(y, y))])
            out = builder.emit_output(both)
        builder.emit_func_output(out)
    return relaxvm.VirtualMachine(relaxvm.compile(builder.get()), relaxvm.cpu(), num_threads=2)


@pytest.mark.parametrize("form", [product, depthwise, winograd])
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("rows, columns", [(1, 32), (12, 48), (400, 256)])
def test_sums_of_products_alone(form: Form, known: bool, rows: int, columns: int) -> None:
    size = rows if known else relaxvm.tirx.Var("n", "int64")
    vm = sums_and_twice(form, size, columns)
    shape = {"product": (rows, 64), "depthwise": (1, rows, 8, columns)}
    x = np.full(shape.get(form.__name__, (1, rows, 12, 32)), 1e30, "float32")
    y = np.full(1 << 20, TINY)
    for _ in range(2):
        sums, twice = vm["main"](relaxvm.runtime.tensor(x), relaxvm.runtime.tensor(y))
        assert not sums.numpy().any()
        np.testing.assert_array_equal(twice.numpy().view("int32"), (y + y).view("int32"))
        assert (y + y)[0] != 0  # this thread's arithmetic is as it was


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("columns", [5, 64, 6625])
def test_exponentials_beside_the_greatest(known: bool, columns: int) -> None:
    x = relax.Var("x", relax.TensorType([3 if known else relaxvm.tirx.Var("n", "int64"), columns]))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        builder.emit_func_output(op.nn.softmax(x))
    vm = relaxvm.VirtualMachine(relaxvm.compile(builder.get()), relaxvm.cpu(), num_threads=1)
    data = np.full((3, columns), 7.0, "float32")
    # e^-90 is subnormal, e^-300 too small for that, e^-87 the least of the others
    data[:, 1], data[:, 2], data[:, 3] = 7.0 - 90, 7.0 - 300, 7.0 - 87
    data[2, 4] = -np.inf
    got = vm["main"](relaxvm.runtime.tensor(data)).numpy()
    assert not got[:, 1:3].any() and got[2, 4] == 0
    want = np.exp(data - 7.0, dtype="float64")
    np.testing.assert_allclose(got, want / want.sum(1, keepdims=True), rtol=1e-5, atol=1.2e-38)


def first_loop_is_a_product() -> None:
    vm = sums_and_twice(product, 4000, 256)
    x, y = np.full((4000, 64), 1e30, "float32"), np.full(1 << 20, TINY)
    for _ in range(20):
        _, twice = vm["main"](relaxvm.runtime.tensor(x), relaxvm.runtime.tensor(y))
        np.testing.assert_array_equal(twice.numpy().view("int32"), (y + y).view("int32"))


def test_threads_that_a_product_starts_keep_subnormals() -> None:
    """In a process of its own, where no loop has started threads before."""
    spawned = multiprocessing.get_context("spawn").Process(target=first_loop_is_a_product)
    spawned.start()
    spawned.join(120)
    assert spawned.exitcode == 0
