# SPDX-License-Identifier: Apache-2.0
"""Quotients and remainders of vectors of integers: every size, all signs, the ends of the range, division by zero."""

from __future__ import annotations

import numpy as np
import pytest
from test_remainders import run

from relaxvm.relax import op

TARGETS = ["llvm", "llvm -mcpu=haswell", "llvm -mcpu=x86-64"]


def pairs(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    info = np.iinfo(dtype)
    rng = np.random.default_rng(3)
    ends = np.array(
        [info.min, info.min + 1, info.max, info.max - 1, 0, 1, 2, 3, info.max // 2, info.max // 3],
        dtype,
    )
    if info.min < 0:
        ends = np.concatenate([ends, np.array([-1, -2, -3, info.min // 2], dtype)])
    a = rng.integers(info.min, info.max, 3000, dtype, endpoint=True)
    bits = rng.integers(0, info.bits, 3000)
    b = np.right_shift(rng.integers(info.min, info.max, 3000, dtype, endpoint=True), bits.astype(dtype))  # fmt: skip
    # On either side of a multiple.
    small = np.maximum(np.abs(b // 2), 1)
    near = (a // small) * small + rng.integers(0, 2, 3000).astype(dtype) - dtype_one(dtype)
    first = np.concatenate([a, near, np.repeat(ends, len(ends))])
    second = np.concatenate([b, small, np.tile(ends, len(ends))])
    return first.astype(dtype), second.astype(dtype)


def dtype_one(dtype: str) -> np.generic:
    return np.dtype(dtype).type(1)


def expected(name: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """By Python's own integers; whatever is divided by zero is 0, as NumPy has it."""
    info = np.iinfo(a.dtype)
    results = []
    for x, y in zip(a.tolist(), b.tolist(), strict=True):
        if y == 0:
            results.append(0)
            continue
        down = x // y
        towards_zero = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
        value = {
            "divide": towards_zero,
            "mod": x - towards_zero * y,
            "floor_divide": down,
            "floor_mod": x - down * y,
        }[name]
        results.append((value - info.min) % 2**info.bits + info.min)  # -128 / -1 wraps around
    return np.array(results, a.dtype)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64"])
@pytest.mark.parametrize("name", ["divide", "mod", "floor_divide", "floor_mod"])
def test_integer_division(name: str, dtype: str, target: str) -> None:
    a, b = pairs(dtype)
    np.testing.assert_array_equal(run(getattr(op, name), target, a, b), expected(name, a, b))
