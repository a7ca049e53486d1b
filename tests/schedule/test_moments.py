# SPDX-License-Identifier: Apache-2.0
"""Mean and variance from one reading of a row: as accurate as two readings, at any length, with any number of threads."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import relaxvm
from relaxvm import relax

op = relax.op
TARGETS = ["llvm", "llvm -mcpu=haswell", "llvm -mcpu=x86-64"]
Body = Callable[..., relax.Expr]


def run(body: Body, args: list[np.ndarray], symbolic: bool, target: str = "llvm") -> np.ndarray:
    sizes: dict[int, relaxvm.tirx.Var] = {}

    def dim(extent: int) -> relaxvm.tirx.Var | int:
        return (
            sizes.setdefault(extent, relaxvm.tirx.Var(f"n{extent}", "int64"))
            if symbolic
            else extent
        )

    params = [
        relax.Var(f"x{i}", relax.TensorType([dim(d) for d in a.shape], str(a.dtype)))
        for i, a in enumerate(args)
    ]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(body(*params))
        builder.emit_func_output(result)
    executable = relaxvm.compile(builder.get(), target=target)
    tensors = [relaxvm.runtime.tensor(a) for a in args]
    results = [
        relax.VirtualMachine(executable, relaxvm.cpu(), num_threads=threads)["main"](*tensors)
        for threads in (1, 2)
    ]
    np.testing.assert_array_equal(results[0].numpy(), results[1].numpy())
    return results[0].numpy()


def norm(x: np.ndarray, mean: np.ndarray, dtype: str) -> np.ndarray:
    centred = x.astype(dtype) - mean.astype(dtype)
    variance = (centred**2).mean(-1, keepdims=True, dtype=dtype)
    return centred / np.sqrt(variance + np.array(1e-5, dtype))


def layer_norm(x: np.ndarray) -> np.ndarray:
    ones, zeros = np.ones(x.shape[-1], x.dtype), np.zeros(x.shape[-1], x.dtype)
    return run(lambda v, g, b: op.nn.layer_norm(v, g, b, axes=[-1]), [x, ones, zeros], False)


def by_hand(x: relax.Expr) -> relax.Expr:
    centred = op.subtract(x, op.mean(x, axis=-1, keepdims=True))
    squares = op.multiply(centred, centred)
    variance = op.add(op.mean(squares, axis=-1, keepdims=True), relax.const(1e-5))
    return op.divide(centred, op.sqrt(variance))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize(
    "shape", [(40, 64), (33, 1023), (7, 3), (3, 9, 127), (5, 3072), (2, 1), (6, 769)]
)
def test_lengths(shape: tuple[int, ...], symbolic: bool, target: str) -> None:
    x = np.random.default_rng(0).standard_normal(shape, dtype="float32") * 3 + 5
    want = norm(x, x.mean(-1, keepdims=True, dtype="float64"), "float64")
    got = run(by_hand, [x], symbolic, target)
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=5e-6)


@pytest.mark.parametrize("shape", [(5, 0), (0, 64)])
@pytest.mark.parametrize("symbolic", [False, True])
def test_nothing(shape: tuple[int, int], symbolic: bool) -> None:
    assert run(by_hand, [np.zeros(shape, "float32")], symbolic).shape == shape


@pytest.mark.parametrize("length", [64, 900, 1001, 4096])
@pytest.mark.parametrize("far", [False, True])
def test_as_accurate_as_two_readings(length: int, far: bool) -> None:
    """Where the mean is far from 0 beside the deviation, and where one value is far from all others."""
    x = np.random.default_rng(1).standard_normal((64, length), dtype="float32")
    if far:
        x += 10000
    else:
        x[:, 0] = 1000
    exact = norm(x, x.mean(-1, keepdims=True, dtype="float64"), "float64")
    rounded = norm(x, x.mean(-1, keepdims=True, dtype="float32"), "float32")
    error = np.abs(layer_norm(x) - exact).max()
    # A mean rounded to float32 is half a unit of its last place off.
    unit = 2.0**-10 / 2 / exact.std() if far else 1e-7
    assert error <= 4 * max(np.abs(rounded - exact).max(), unit)


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_dtypes(dtype: str) -> None:
    x = np.random.default_rng(2).standard_normal((9, 933)).astype(dtype)
    want = norm(x, x.mean(-1, keepdims=True, dtype="float64"), "float64")
    error = 2e-3 if dtype == "float16" else 1e-12
    np.testing.assert_allclose(layer_norm(x), want, rtol=error, atol=error)


def test_a_sum_that_is_stored_before_it_is_normalised() -> None:
    x, y = np.random.default_rng(3).standard_normal((2, 6, 1217), dtype="float32")

    def body(a: relax.Expr, b: relax.Expr) -> relax.Expr:
        total = op.add(op.exp(a), b)
        return op.add(by_hand(total), total)

    total = np.exp(x.astype("float64")) + y
    want = norm(total, total.mean(-1, keepdims=True), "float64") + total
    np.testing.assert_allclose(run(body, [x, y], symbolic=False), want, rtol=2e-5, atol=1e-5)


def test_what_is_not_a_number_fills_its_row_alone() -> None:
    x = np.random.default_rng(4).standard_normal((3, 1100), dtype="float32")
    x[0, 1097], x[2, 5] = np.nan, np.inf
    got = layer_norm(x)
    assert np.isnan(got[[0, 2]]).all() and np.isfinite(got[1]).all()


def test_equal_values_have_no_variance() -> None:
    x = np.full((4, 1024), 1e20, "float32")
    np.testing.assert_array_equal(layer_norm(x), np.zeros_like(x))
