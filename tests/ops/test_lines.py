# SPDX-License-Identifier: Apache-2.0
"""Lines that are longer than vectors: sort, argsort, topk and cumsum against NumPy, with equal elements, NaNs and zeros
of both signs, for every way a line is sorted."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import relaxvm
from relaxvm import relax
from relaxvm.relax import op


def run(
    x: np.ndarray, body: Callable[[relax.Expr], relax.Expr], symbolic: bool
) -> list[np.ndarray]:
    dims = [relaxvm.tirx.Var(f"n{d}", "int64") for d in range(x.ndim)] if symbolic else x.shape
    param = relax.Var("x", relax.TensorType(list(dims), str(x.dtype)))
    builder = relax.BlockBuilder()
    with builder.function("main", [param]):
        with builder.dataflow():
            result = builder.emit_output(body(param))
        builder.emit_func_output(result)
    vm = relax.VirtualMachine(relaxvm.compile(builder.get()), relaxvm.cpu())
    out = vm["main"](relaxvm.runtime.tensor(x))
    return [t.numpy() for t in out] if not hasattr(out, "numpy") else [out.numpy()]


def numbers(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    rng = np.random.default_rng(3)
    if np.dtype(dtype).kind == "f":
        x = np.round(rng.standard_normal(shape) * 20).astype(dtype)  # many are equal
        x[..., ::13] = np.nan
        x[..., ::7] = -0.0
        x[..., 1::7] = 0.0
        x[..., 5::31] = -np.inf
        return x
    info = np.iinfo(dtype)
    x = rng.integers(-30, 30, shape).astype(dtype)
    x[..., ::11], x[..., 3::11] = info.min, info.max
    return x


def order(x: np.ndarray, axis: int, descending: bool) -> np.ndarray:
    """The stable order; NaN last (descending: first)."""
    if not descending:
        return np.argsort(x, axis, kind="stable")
    # From the other end and back: equal elements keep their order.
    turned = np.argsort(np.flip(x, axis), axis, kind="stable")
    return np.flip(x.shape[axis] - 1 - turned, axis)


DTYPES = ["float32", "float16", "float64", "int8", "int32", "uint32", "int64"]


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_sort(dtype: str, descending: bool, symbolic: bool) -> None:
    x = numbers((3, 205), dtype)
    wanted = order(x, 1, descending)
    got = run(x, lambda v: op.argsort(v, descending=descending, dtype="int64"), symbolic)
    np.testing.assert_array_equal(got[0], wanted)
    got = run(x, lambda v: op.sort(v, descending=descending), symbolic)
    np.testing.assert_array_equal(got[0], np.take_along_axis(x, wanted, 1))


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("length", [1, 64, 65])
def test_sort_of_few_elements(length: int, symbolic: bool) -> None:
    x = numbers((3, length), "float32")
    got = run(x, lambda v: op.argsort(v, dtype="int64"), symbolic)
    np.testing.assert_array_equal(got[0], order(x, 1, False))


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("k", [1, 5, 40, 150])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "float64"])
def test_topk(dtype: str, k: int, largest: bool, symbolic: bool) -> None:
    x = numbers((3, 205), dtype)
    wanted = order(x, 1, largest)[:, :k]
    values, indices = run(x, lambda v: op.topk(v, k=k, largest=largest), symbolic)
    np.testing.assert_array_equal(indices, wanted)
    np.testing.assert_array_equal(values, np.take_along_axis(x, wanted, 1))


def test_lines_down_columns() -> None:
    x = numbers((70, 5), "float32")
    got = run(x, lambda v: op.argsort(v, axis=0, dtype="int64"), False)
    np.testing.assert_array_equal(got[0], order(x, 0, False))
    got = run(x, lambda v: op.topk(v, k=34, axis=0), False)
    np.testing.assert_array_equal(got[1], order(x, 0, True)[:34])


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("shape", [(8, 40), (3, 19, 21), (1, 5), (300, 130), (9,), (3, 0)])
def test_cumsum(shape: tuple[int, ...], symbolic: bool) -> None:
    # Small integers: their sums are exact in any order.
    x = np.random.default_rng(1).integers(-9, 10, shape).astype("float32")
    got = run(x, lambda v: op.cumsum(v, axis=-1), symbolic)
    np.testing.assert_array_equal(got[0], np.cumsum(x, -1, dtype=np.float32))
    got = run(x, lambda v: op.cumsum(v, axis=-1, exclusive=True), symbolic)
    shifted = np.zeros_like(x)
    shifted[..., 1:] = np.cumsum(x, -1, dtype=np.float32)[..., :-1]
    np.testing.assert_array_equal(got[0], shifted)
    got = run(x, lambda v: op.cumsum(v), symbolic)
    np.testing.assert_array_equal(got[0], np.cumsum(x, dtype=np.float32))


def test_cumsum_is_near_the_true_sum() -> None:
    x = np.random.default_rng(1).standard_normal((3, 10_000), dtype=np.float32)
    wanted = np.cumsum(x.astype("float64"), -1)
    got = run(x, lambda v: op.cumsum(v, axis=-1), False)[0]
    # Each sum is off by a rounding of its own size.
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-7 * np.abs(x).sum(-1).max())


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("size", [1, 2, 5])
def test_a_circle_goes_round_as_often_as_the_border_asks(symbolic: bool, size: int) -> None:
    x = np.arange(3 * size, dtype=np.float32).reshape(3, size)
    got = run(x, lambda v: op.nn.pad(v, [7, 2, 9, 4], pad_mode="circular"), symbolic)
    np.testing.assert_array_equal(got[0], np.pad(x, [(7, 2), (9, 4)], mode="wrap"))


@pytest.mark.parametrize("mode", ["edge", "reflect", "circular"])
@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("pad", [(0, 0, 3, 2), (1, 2, 2, 4), (2, 1, 0, 0), (1, 0, -2, 3)])
def test_padding_of_long_rows(mode: str, symbolic: bool, pad: tuple[int, ...]) -> None:
    x = np.arange(7 * 50, dtype=np.float32).reshape(7, 50)
    got = run(x, lambda v: op.nn.pad(v, list(pad), pad_mode=mode), symbolic)
    kept = x[:, 2:] if pad[2] < 0 else x
    widths = [(max(b, 0), max(a, 0)) for b, a in zip(pad[::2], pad[1::2], strict=True)]
    names = {"edge": "edge", "reflect": "reflect", "circular": "wrap"}
    if pad[2] >= 0:
        np.testing.assert_array_equal(got[0], np.pad(kept, widths, mode=names[mode]))
    elif mode != "circular":  # what is cut off is still there to be repeated
        np.testing.assert_array_equal(got[0], np.pad(x, widths, mode=names[mode])[:, 2:])
