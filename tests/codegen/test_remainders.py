# SPDX-License-Identifier: Apache-2.0
"""Remainders and powers of float vectors: exact for every quotient, on machines with and without fused multiply-adds,
and special values as NumPy has them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import relaxvm
from relaxvm import relax
from relaxvm.relax import op

TARGETS = ["llvm", "llvm -mcpu=haswell", "llvm -mcpu=x86-64"]
REMAINDERS = {
    "mod": (op.mod, np.fmod),
    "floor_mod": (op.floor_mod, np.mod),
    "floor_divide": (op.floor_divide, np.floor_divide),
}
ENDS = [0.0, -0.0, 1, -1, 2, -3, 0.5, 4.5, np.inf, -np.inf, np.nan, 1e-45, -1e-40, 3e38, 2.0**24]


def run(
    make: Callable[..., relax.Expr], target: str, *args: np.ndarray, constant: float | None = None
) -> np.ndarray:
    params = [
        relax.Var(f"x{i}", relax.TensorType(list(a.shape), str(a.dtype)))
        for i, a in enumerate(args)
    ]
    more = [] if constant is None else [relax.const(constant, str(args[0].dtype))]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(make(*params, *more))
        builder.emit_func_output(out)
    vm = relax.VirtualMachine(relaxvm.compile(builder.get(), target=target), relaxvm.cpu())
    return vm["main"](*map(relaxvm.runtime.tensor, args)).numpy()


def pairs(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Quotients of every size: near 1, near integers, of thousands of bits; and all pairs of special values."""
    rng = np.random.default_rng(5)
    count = 4000
    spread = [1.0, 1e3, 1e7, 1e12, 1e30]
    b = rng.standard_normal(count) * rng.choice([1e-30, 1e-3, 1.0, 100.0], count)
    a = b * rng.standard_normal(count) * rng.choice(spread, count)
    near = np.round(rng.uniform(1, 2**21, count)) * b  # rounded: on either side of a multiple
    ends = np.array(ENDS)
    first = np.concatenate([a, near, np.repeat(ends, len(ends))])
    second = np.concatenate([b, b, np.tile(ends, len(ends))])
    with np.errstate(all="ignore"):
        return first.astype(dtype), second.astype(dtype)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", list(REMAINDERS))
def test_remainders_are_exact(name: str, dtype: str, target: str) -> None:
    ours, theirs = REMAINDERS[name]
    x, y = pairs(dtype)
    with np.errstate(all="ignore"):
        wanted = theirs(x, y)
    got = run(ours, target, x, y)
    np.testing.assert_array_equal(got, wanted)
    there = ~np.isnan(wanted)
    np.testing.assert_array_equal(np.signbit(got)[there], np.signbit(wanted)[there])


@pytest.mark.parametrize("target", TARGETS)
def test_power_of_special_values(target: str) -> None:
    ends = np.array(ENDS, np.float32)
    x, y = np.repeat(ends, len(ends)), np.tile(ends, len(ends))
    with np.errstate(all="ignore"):
        wanted = np.power(x, y)
    got = run(op.power, target, x, y)
    np.testing.assert_allclose(got, wanted, rtol=1e-6)
    there = ~np.isnan(wanted)
    np.testing.assert_array_equal(np.signbit(got)[there], np.signbit(wanted)[there])


@pytest.mark.parametrize("exponent", [-1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 2.5])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_constant_powers(dtype: str, exponent: float) -> None:
    x = np.concatenate([np.array(ENDS), np.random.default_rng(2).standard_normal(50)]).astype(dtype)
    with np.errstate(all="ignore"):
        wanted = np.power(x, np.full_like(x, exponent))
    got = run(op.power, "llvm", x, constant=exponent)
    np.testing.assert_allclose(got, wanted, rtol=1e-6 if dtype == "float32" else 1e-15)
    there = ~np.isnan(wanted)
    np.testing.assert_array_equal(np.signbit(got)[there], np.signbit(wanted)[there])
