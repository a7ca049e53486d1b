# SPDX-License-Identifier: Apache-2.0
"""Elementary functions on float32 stay within a few units of the last place of the exact value; special values are exact.

bench/accuracy.py has the functions and measures them at 100,000 points.
"""

from __future__ import annotations

import importlib.util
import pathlib
import types

import numpy as np
import pytest

pytest.importorskip("mpmath")


@pytest.fixture(scope="module")
def accuracy() -> types.ModuleType:
    path = pathlib.Path(__file__).parents[2] / "bench" / "accuracy.py"
    spec = importlib.util.spec_from_file_location("bench_accuracy", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


NAMES = ["exp", "log", "tanh", "erf", "sigmoid", "gelu", "softplus", "sin", "cos", "rsqrt", "pow"]
NAMES += ["tan", "sinh", "cosh", "asin", "acos", "atan"]
NAMES += ["exp2", "expm1", "log2", "log10", "log1p", "erfc", "erfinv"]


# Functions have another form where registers are shorter.
@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=haswell"])
@pytest.mark.parametrize("name", NAMES)
def test_error_in_units_of_the_last_place(
    accuracy: types.ModuleType, name: str, target: str
) -> None:
    error, where = accuracy.worst(name, 600, target)
    assert error <= 4, where


SPECIAL = {
    "exp": ([-np.inf, np.inf, np.nan, 0], [0, np.inf, np.nan, 1]),
    "log": ([0, np.inf, -1, 1], [-np.inf, np.inf, np.nan, 0]),
    "tanh": ([-np.inf, np.inf, np.nan, 0], [-1, 1, np.nan, 0]),
    "erf": ([-np.inf, np.inf, np.nan, 0], [-1, 1, np.nan, 0]),
    "sigmoid": ([-np.inf, np.inf, np.nan, 0], [0, 1, np.nan, 0.5]),
    "gelu": ([-np.inf, np.inf, np.nan, 0, -40], [0, np.inf, np.nan, 0, 0]),
    "softplus": ([-np.inf, np.inf, np.nan, 0], [0, np.inf, np.nan, np.log(np.float32(2))]),
    "sin": ([np.inf, np.nan, 0], [np.nan, np.nan, 0]),
    "tan": ([np.inf, np.nan, 0], [np.nan, np.nan, 0]),
    "sinh": ([-np.inf, np.inf, np.nan, 0, 89.5], [-np.inf, np.inf, np.nan, 0, np.inf]),
    "cosh": ([-np.inf, np.inf, np.nan, 0, 89.5], [np.inf, np.inf, np.nan, 1, np.inf]),
    "asin": ([1.5, -np.inf, np.nan, 0, 1, -1], [np.nan, np.nan, np.nan, 0, np.pi / 2, -np.pi / 2]),
    "acos": ([1.5, -np.inf, np.nan, 0, 1, -1], [np.nan, np.nan, np.nan, np.pi / 2, 0, np.pi]),
    "atan": ([np.inf, -np.inf, np.nan, 0], [np.pi / 2, -np.pi / 2, np.nan, 0]),
    "rsqrt": ([0, np.inf, np.nan, 4], [np.inf, 0, np.nan, 0.5]),
    "exp2": ([-np.inf, np.inf, np.nan, 0, 10, -149], [0, np.inf, np.nan, 1, 1024, 1e-45]),
    "expm1": ([-np.inf, np.inf, np.nan, 0, 1e-30], [-1, np.inf, np.nan, 0, 1e-30]),
    "log2": ([0, np.inf, -1, 1, 8, 1e-45], [-np.inf, np.inf, np.nan, 0, 3, -149]),
    "log10": ([0, np.inf, -1, 1, 1000], [-np.inf, np.inf, np.nan, 0, 3]),
    "log1p": ([-1, np.inf, -2, 0, 1e-30], [-np.inf, np.inf, np.nan, 0, 1e-30]),
    "erfc": ([-np.inf, np.inf, np.nan, 0], [2, 0, np.nan, 1]),
    "erfinv": ([-1, 1, np.nan, 0, 2], [-np.inf, np.inf, np.nan, 0, np.nan]),
}


@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=haswell"])
@pytest.mark.parametrize("name", SPECIAL)
def test_special_values(accuracy: types.ModuleType, name: str, target: str) -> None:
    given, wanted = (np.array(v, np.float32) for v in SPECIAL[name])
    np.testing.assert_array_equal(accuracy.results(name, [given], target), wanted)


@pytest.mark.parametrize("name", ["tanh", "erf", "sigmoid", "gelu", "sin", "exp", "log"])
def test_a_value_has_one_result_wherever_it_stands_in_a_tensor(
    accuracy: types.ModuleType, name: str
) -> None:
    # Some of them far outside of tables.
    value = np.linspace(-40, 40, 37, dtype=np.float32)
    value[::9] = 3e5
    alone = np.concatenate([accuracy.results(name, [value[i : i + 1]]) for i in range(37)])
    np.testing.assert_array_equal(accuracy.results(name, [value]), alone)


@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=haswell", "llvm -mcpu=nehalem"])
@pytest.mark.parametrize("name", ["exp", "log", "sigmoid"])
def test_a_nan_of_any_bits_stays_one(accuracy: types.ModuleType, name: str, target: str) -> None:
    bits = np.array([0x7F800001, 0x7FC00001, 0xFFC0017F, 0xFFFFFFFF] * 2, np.uint32)
    assert np.isnan(accuracy.results(name, [bits.view(np.float32)], target)).all()


@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=haswell", "llvm -mcpu=nehalem"])
def test_logarithms_of_rare_numbers_stand_beside_usual_ones(
    accuracy: types.ModuleType, target: str
) -> None:
    given = np.array([1, 0, -0.0, 1e-45, 1e-38, -1e-45, np.inf, 2], np.float32)
    with np.errstate(all="ignore"):
        wanted = np.log(given.astype(np.float64)).astype(np.float32)
    np.testing.assert_allclose(accuracy.results("log", [given], target), wanted, rtol=2e-7)


@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=haswell", "llvm -mcpu=nehalem"])
def test_exponentials_are_rounded_once_where_they_are_subnormal(
    accuracy: types.ModuleType, target: str
) -> None:
    given = np.linspace(-104, -87, 999, dtype=np.float32)
    least = np.float64(2) ** -149
    error = accuracy.results("exp", [given], target) - np.exp(given.astype(np.float64))
    assert np.abs(error).max() <= 0.52 * least + 1e-7 * 1.7e-38
