# SPDX-License-Identifier: Apache-2.0
"""Prints the polynomial coefficients of src/codegen/llvm/math_*.cc with the error of each fit.

Each row is a function on an interval and a number of terms; the fit interpolates at Chebyshev nodes in 60 digits, which
is within a small factor of the best possible.  Coefficients go from the highest power to the constant, for Horner.
"""

from __future__ import annotations

from collections.abc import Callable

import mpmath as mp

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


def _u(x: float, center: float) -> mp.mpf:
    return (mp.mpf(x) - center) / (mp.mpf(x) + center)


HALF_LN2 = mp.log(2) / 2 * mp.mpf("1.001")
ROWS = [
    ("kExpTail32", _exp_tail, -HALF_LN2, HALF_LN2, 6, "f"),
    ("kLogTail32", _log_tail, mp.sqrt(0.5) - 1, mp.sqrt(2) - 1, 9, "f"),
    ("kTanhTail32", _tanh_tail, mp.mpf(0), mp.mpf("0.625") ** 2, 5, "f"),
    ("kErfSmall32", _erf_small, mp.mpf(0), mp.mpf(1), 7, "f"),
    ("kErfcScaled32", _erfc_scaled(2.0), _u(1.0, 2.0), _u(4.0, 2.0), 7, "f"),
    ("kAtanTail64", _atan_tail, mp.mpf(0), (mp.sqrt(2) - 1) ** 2 * mp.mpf("1.0001"), 12, "d"),
    ("kAsinTail64", _asin_tail, mp.mpf(0), mp.mpf("0.25"), 14, "d"),
    ("kErfSmall64", _erf_small, mp.mpf(0), mp.mpf(1), 13, "d"),
    ("kErfcScaled64", _erfc_scaled(3.0), _u(1.0, 3.0), _u(6.0, 3.0), 17, "d"),
]


def main() -> None:
    for name, f, low, high, terms, kind in ROWS:
        coefficients, error = mp.chebyfit(f, [low, high], terms, error=True)
        digits = 9 if kind == "f" else 17
        numbers = ", ".join(mp.nstr(c, digits, strip_zeros=False) for c in coefficients)
        print(f"// {name}: error {mp.nstr(error, 3)}\nconstexpr double {name}[] = {{{numbers}}};")


if __name__ == "__main__":
    main()
