# SPDX-License-Identifier: Apache-2.0
"""Floats of 8 bits: every code, and rounding of values around every code, as ml_dtypes has it."""

import ml_dtypes
import numpy as np
import pytest

import relaxvm
from relaxvm import relax, tirx
from relaxvm.relax import op

FORMATS = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")
EXPONENT = "float8_e8m0fnu"


def converter(have: str, want: str):
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((tirx.Var("n", "int64"),), have))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(op.astype(x, want)))
    main = relax.VirtualMachine(relaxvm.compile(builder.get()), relaxvm.cpu())["main"]
    return lambda a: main(relaxvm.runtime.tensor(a)).numpy()


@pytest.mark.parametrize("name", [*FORMATS, EXPONENT])
def test_every_code_has_its_value(name: str) -> None:
    codes = np.arange(256, dtype=np.uint8).view(getattr(ml_dtypes, name))
    np.testing.assert_array_equal(converter(name, "float32")(codes), codes.astype(np.float32))


@pytest.mark.parametrize("name", FORMATS)
def test_rounds_to_the_nearest_and_halves_to_even(name: str) -> None:
    dtype = np.dtype(getattr(ml_dtypes, name))
    values = np.arange(256, dtype=np.uint8).view(dtype).astype(np.float32)
    values = np.sort(values[np.isfinite(values)])
    middles = (values[1:] + values[:-1]) / 2
    near = [np.nextafter(middles, np.float32(s * np.inf)) for s in (-1, 1)]
    special = np.array([np.inf, -np.inf, np.nan, 1e30, -1e30, 1e-30, 0.0, -0.0], np.float32)
    top = values[-1] * np.linspace(0.9, 1.5, 99, dtype=np.float32)
    x = np.concatenate([values, middles, *near, special, top, -top]).astype(np.float32)
    got, want = converter("float32", name)(x), x.astype(dtype)
    np.testing.assert_array_equal(got.astype(np.float32), want.astype(np.float32))
    np.testing.assert_array_equal(np.signbit(got.astype("f4")), np.signbit(want.astype("f4")))


def test_exponents_round_to_the_nearest_power() -> None:
    dtype = np.dtype(ml_dtypes.float8_e8m0fnu)
    powers = np.ldexp(np.float32(1), np.arange(-125, 128)).astype(np.float32)
    scale = np.float32([[1], [1.2], [1.4999999], [1.5], [1.75], [0.75], [0.7499999]])
    special = np.float32(
        [
            2.0**-126,
            2.0**-127,
            1.5 * 2.0**-127,
            2.0**-128,
            0,
            -0.0,
            -1,
            -1e-40,
            np.inf,
            -np.inf,
            np.nan,
            3e38,
            1e-45,
        ]
    )
    with np.errstate(over="ignore"):
        x = np.concatenate([(powers * scale).ravel(), special]).astype(np.float32)
    got = converter("float32", EXPONENT)(x)
    np.testing.assert_array_equal(got.view(np.uint8), x.astype(dtype).view(np.uint8))
