# SPDX-License-Identifier: Apache-2.0
"""Prints the polynomial coefficients of src/codegen/llvm/math_*.cc with the error of each fit; with the word
`tables`, src/codegen/llvm/math_tables.h.

Each row is a function on an interval and a number of terms; the fit interpolates at Chebyshev nodes in 60 digits, which
is within a small factor of the best possible.  Coefficients go from the highest power to the constant, for Horner.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import mpmath as mp
import numpy as np

mp.mp.dps = 60


def _root(z: mp.mpf) -> mp.mpf:
    return mp.sqrt(z)


def _exp_tail(r: mp.mpf) -> mp.mpf:  # exp(r) = 1 + r + r^2 * this
    return (mp.exp(r) - 1 - r) / r**2 if abs(r) > 1e-15 else mp.mpf(1) / 2 + r / 6


def _log_tail(f: mp.mpf) -> mp.mpf:  # log(1 + f) = f - f^2 / 2 + f^3 * this
    return (mp.log1p(f) - f + f * f / 2) / f**3 if abs(f) > 1e-12 else mp.mpf(1) / 3 - f / 4


def _tanh_tail(z: mp.mpf) -> mp.mpf:  # tanh(x) = x + x^3 * this(x^2)
    x = _root(z)
    return (mp.tanh(x) / x - 1) / z if z else -mp.mpf(1) / 3


def _atan_tail(z: mp.mpf) -> mp.mpf:  # atan(x) = x + x^3 * this(x^2)
    x = _root(z)
    return (mp.atan(x) / x - 1) / z if z else -mp.mpf(1) / 3


def _asin_tail(z: mp.mpf) -> mp.mpf:  # asin(x) = x + x^3 * this(x^2)
    x = _root(z)
    return (mp.asin(x) / x - 1) / z if z else mp.mpf(1) / 6


def _erf_small(z: mp.mpf) -> mp.mpf:  # erf(x) = x * this(x^2)
    x = _root(z)
    return mp.erf(x) / x if z else 2 / mp.sqrt(mp.pi)


def _erfc_scaled(
    center: float,
) -> Callable[[mp.mpf], mp.mpf]:  # erfc(x) = exp(-x^2) * this((x - c) / (x + c))
    def f(u: mp.mpf) -> mp.mpf:
        x = center * (1 + u) / (1 - u)
        return mp.erfc(x) * mp.exp(x * x)

    return f


def _sin_tail(z: mp.mpf) -> mp.mpf:  # sin(x) = x + x^3 * this(x^2)
    x = _root(z)
    return (mp.sin(x) / x - 1) / z if z else -mp.mpf(1) / 6


def _cos_tail(z: mp.mpf) -> mp.mpf:  # cos(x) = 1 - x^2 / 2 + x^4 * this(x^2)
    x = _root(z)
    return (mp.cos(x) - 1 + z / 2) / z**2 if z else mp.mpf(1) / 24


def _u(x: float, center: float) -> mp.mpf:
    return (mp.mpf(x) - center) / (mp.mpf(x) + center)


HALF_LN2 = mp.log(2) / 2 * mp.mpf("1.001")
ROWS = [
    ("kExpTail32", _exp_tail, -HALF_LN2, HALF_LN2, 6, "f"),
    ("kLogTail32", _log_tail, mp.sqrt(0.5) - 1, mp.sqrt(2) - 1, 9, "f"),
    ("kTanhTail32", _tanh_tail, mp.mpf(0), mp.mpf("0.625") ** 2, 5, "f"),
    ("kErfSmall32", _erf_small, mp.mpf(0), mp.mpf(1), 7, "f"),
    ("kErfcScaled32", _erfc_scaled(2.0), _u(1.0, 2.0), _u(4.0, 2.0), 7, "f"),
    ("kSinTail32", _sin_tail, mp.mpf(0), mp.mpf("0.63"), 3, "f"),
    ("kCosTail32", _cos_tail, mp.mpf(0), mp.mpf("0.63"), 3, "f"),
    ("kAtanTail64", _atan_tail, mp.mpf(0), (mp.sqrt(2) - 1) ** 2 * mp.mpf("1.0001"), 12, "d"),
    ("kAsinTail64", _asin_tail, mp.mpf(0), mp.mpf("0.25"), 14, "d"),
    ("kErfSmall64", _erf_small, mp.mpf(0), mp.mpf(1), 13, "d"),
    ("kErfcScaled64", _erfc_scaled(3.0), _u(1.0, 3.0), _u(6.0, 3.0), 17, "d"),
]


# ---- functions in pieces: 16 polynomials around the multiples of a step

NUM_PIECES = 16
# name -> function of a magnitude, step, terms, does it start at 0 (and is relatively exact there)?
PIECES = {
    "Erf": (mp.erf, 0.27, 6, True),
    "Tanh": (mp.tanh, 0.59, 8, True),
    "Sigmoid": (lambda a: 1 / (1 + mp.exp(a)), 1.12, 7, False),  # of -a
    "Gelu": (lambda a: a * mp.erfc(a / mp.sqrt(2)) / 2, 0.35, 8, True),  # of -a, negated
}


def least_squares(
    f: Callable[[mp.mpf], mp.mpf], nodes: list[mp.mpf], first: float, terms: int
) -> np.ndarray:
    """Coefficients from the constant up, for a small relative error; the constant is given."""
    scale = float(max(abs(d) for d in nodes))
    x = np.array([float(d) / scale for d in nodes])
    y = np.array([float(f(d)) for d in nodes])
    powers = x[:, None] ** np.arange(1, terms)
    found = np.linalg.lstsq(powers / y[:, None], (y - first) / y, rcond=None)[0]
    return np.append(first, found / scale ** np.arange(1, terms))


def piece(name: str, number: int) -> np.ndarray:
    f, step, terms, from_zero = PIECES[name]
    center = mp.mpf(float(np.float32(step))) * number
    half = mp.mpf(step) * mp.mpf("0.50025")
    nodes = [half * mp.cos(mp.pi * (2 * k + 1) / 80) for k in range(40)]
    if from_zero and number == 0:
        up = [(half + d) / 2 for d in nodes]
        slope = float(np.float32(mp.diff(f, 0)))
        return np.append(0.0, least_squares(lambda d: f(d) / d, up, slope, terms - 1))
    return least_squares(lambda d: f(center + d), nodes, float(np.float32(f(center))), terms)


def print_tables() -> None:
    print("// SPDX-License-Identifier: Apache-2.0")
    print("// Made by tools/fit_math.py: coefficients of functions in 16 pieces, constants first.")
    print("#pragma once\n\nnamespace relaxvm::codegen::math {")
    for name, (_, step, terms, _) in PIECES.items():
        pieces = [piece(name, number) for number in range(NUM_PIECES)]
        print(f"\ninline constexpr double k{name}Step = {float(np.float32(step))!r};")
        print(f"inline constexpr float k{name}Pieces[{terms}][{NUM_PIECES}] = {{")
        for term in range(terms):
            print("{" + ", ".join(f"{np.float32(p[term]):.9g}" for p in pieces) + "},")
        print("};")
    powers = ", ".join(mp.nstr(mp.mpf(2) ** (mp.mpf(k) / 32), 9) for k in range(32))
    print(f"\n// 2^(k / 32)\ninline constexpr float kPowersOfTwo[32] = {{{powers}}};")
    print("\n}  // namespace relaxvm::codegen::math")


def main() -> None:
    if sys.argv[1:] == ["tables"]:
        return print_tables()
    for name, f, low, high, terms, kind in ROWS:
        coefficients, error = mp.chebyfit(f, [low, high], terms, error=True)
        digits = 9 if kind == "f" else 17
        numbers = ", ".join(mp.nstr(c, digits, strip_zeros=False) for c in coefficients)
        print(f"// {name}: error {mp.nstr(error, 3)}\nconstexpr double {name}[] = {{{numbers}}};")


if __name__ == "__main__":
    main()
