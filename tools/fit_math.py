# SPDX-License-Identifier: Apache-2.0
"""Prints the polynomial coefficients of src/codegen/llvm/math/*.cc with the error of each fit; with the word
`tables`, src/codegen/llvm/math/tables.h.  Start it with `python -P`: this folder has a bisect.py.

Each row is a function on an interval and a number of terms; the fit interpolates at Chebyshev nodes in 60 digits, which
is within a small factor of the best possible.  Coefficients go from the highest power to the constant, for Horner.
"""

from __future__ import annotations

import dataclasses
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


def _erfc_weighted(
    center: float,
) -> Callable[[mp.mpf], mp.mpf]:  # the same, times 1 + 2 x: between 1 and 1.2
    def f(u: mp.mpf) -> mp.mpf:
        return _erfc_scaled(center)(u) * (1 + 2 * center * (1 + u) / (1 - u))

    return f


def _sin_tail(z: mp.mpf) -> mp.mpf:  # sin(x) = x + x^3 * this(x^2)
    x = _root(z)
    return (mp.sin(x) / x - 1) / z if z else -mp.mpf(1) / 6


def _cos_tail(z: mp.mpf) -> mp.mpf:  # cos(x) = 1 - x^2 / 2 + x^4 * this(x^2)
    x = _root(z)
    return (mp.cos(x) - 1 + z / 2) / z**2 if z else mp.mpf(1) / 24


def _log2_ratio(f: mp.mpf) -> mp.mpf:  # log2(1 + f) = f * this
    return mp.log1p(f) / f / mp.log(2) if abs(f) > 1e-20 else 1 / mp.log(2)


def _power_of_two(r: mp.mpf) -> mp.mpf:
    return mp.power(2, r)


def _sinh_tail(z: mp.mpf) -> mp.mpf:  # sinh(x) = x + x^3 * this(x^2)
    x = _root(z)
    return (mp.sinh(x) / x - 1) / z if z else mp.mpf(1) / 6


def _log_gamma_tail(t: mp.mpf) -> mp.mpf:  # log(gamma(2 + t)) = t (1 + t) * this
    if abs(t) < 1e-20:
        return mp.digamma(2)
    return mp.loggamma(2 + t) / t / (1 + t)


def _erf_inverse_near(w: mp.mpf) -> mp.mpf:  # erfinv(x) = x * this(-log(1 - x^2))
    x = mp.sqrt(-mp.expm1(-w))
    return mp.erfinv(x) / x if w > 1e-15 else mp.sqrt(mp.pi) / 2


def _erf_inverse_far(v: mp.mpf) -> mp.mpf:  # v = sqrt(w)
    return _erf_inverse_near(v * v)


def _erf_inverse_near_shifted(u: mp.mpf) -> mp.mpf:
    return _erf_inverse_near(u + mp.mpf("2.5"))


def _erf_inverse_far_shifted(u: mp.mpf) -> mp.mpf:
    return _erf_inverse_far(u + 3)


def _u(x: float, center: float) -> mp.mpf:
    return (mp.mpf(x) - center) / (mp.mpf(x) + center)


HALF_LN2 = mp.log(2) / 2 * mp.mpf("1.001")
ROWS = [
    ("kExpTail32", _exp_tail, -HALF_LN2, HALF_LN2, 5, "f"),
    ("kLogTail32", _log_tail, mp.sqrt(0.5) - 1, mp.sqrt(2) - 1, 9, "f"),
    ("kErfSmall32", _erf_small, mp.mpf(0), mp.mpf(1), 7, "f"),
    ("kErfcScaled32", _erfc_scaled(2.0), _u(1.0, 2.0), _u(4.0, 2.0), 7, "f"),
    ("kErfcWeighted32", _erfc_weighted(2.0), _u(0.5, 2.0), _u(10.1, 2.0), 10, "f"),
    ("kErfInverseNear32", _erf_inverse_near_shifted, mp.mpf("-2.5"), mp.mpf("2.5"), 9, "f"),
    ("kErfInverseFar32", _erf_inverse_far_shifted, mp.sqrt(5) - 3, mp.mpf("1.02"), 9, "f"),
    ("kSinTail32", _sin_tail, mp.mpf(0), mp.mpf("0.63"), 3, "f"),
    ("kCosTail32", _cos_tail, mp.mpf(0), mp.mpf("0.63"), 3, "f"),
    ("kSinhTail32", _sinh_tail, mp.mpf(0), mp.mpf(1), 4, "f"),
    ("kAtanTail32", _atan_tail, mp.mpf(0), (mp.sqrt(2) - 1) ** 2 * mp.mpf("1.0001"), 5, "f"),
    ("kAsinTail32", _asin_tail, mp.mpf(0), mp.mpf("0.25"), 5, "f"),
    ("kLog2Ratio", _log2_ratio, mp.sqrt(0.5) - 1, mp.sqrt(2) - 1, 13, "d"),
    ("kPowerOfTwo", _power_of_two, mp.mpf("-0.5001"), mp.mpf("0.5001"), 7, "d"),
    ("kAtanTail64", _atan_tail, mp.mpf(0), (mp.sqrt(2) - 1) ** 2 * mp.mpf("1.0001"), 12, "d"),
    ("kAsinTail64", _asin_tail, mp.mpf(0), mp.mpf("0.25"), 14, "d"),
    ("kErfSmall64", _erf_small, mp.mpf(0), mp.mpf(1), 13, "d"),
    ("kErfcScaled64", _erfc_scaled(3.0), _u(1.0, 3.0), _u(6.0, 3.0), 17, "d"),
    ("kErfcWeighted64", _erfc_weighted(4.0), _u(0.5, 4.0), _u(27.3, 4.0), 22, "d"),
    ("kLogGammaTail64", _log_gamma_tail, mp.mpf("-0.5"), mp.mpf("0.5"), 19, "d"),
    ("kErfInverseNear64", _erf_inverse_near, mp.mpf(0), mp.mpf(5), 8, "d"),
    ("kErfInverseFar64", _erf_inverse_far, mp.sqrt(5), mp.mpf("6.2"), 11, "d"),
]


# ---- functions in pieces: a polynomial around the middle of each
#
# The piece of a magnitude a is the integer nearest to a (slope + bend a): short where the function is steep.


@dataclasses.dataclass(frozen=True)
class Pieces:
    f: Callable[[mp.mpf], mp.mpf]  # of a magnitude; 0 at 0, and relatively exact there
    limit: float  # the end of the last piece
    count: int
    terms: int
    slope: float

    @property
    def bend(self) -> float:
        return (self.count - 0.51 - self.slope * self.limit) / self.limit**2

    def start(self, number: int) -> float:
        """Where the piece before ends."""
        if number == 0:
            return 0.0
        root = np.sqrt(self.slope**2 + 4 * self.bend * (number - 0.5))
        return float(2 * (number - 0.5) / (self.slope + root))


def _gelu_below(a: mp.mpf) -> mp.mpf:  # of -a
    return -a * mp.erfc(a / mp.sqrt(2)) / 2


PIECES_STRUCT = """
// Piece number a (slope + bend a), rounded to an integer, holds a polynomial in a - center.
template <int kTerms, int kCount>
struct Pieces {
  double limit, slope, bend;
  float centers[kCount];
  float terms[kTerms][kCount];
};
"""
# Slopes by trial.  With these limits erf and tanh end in 1, which they keep for all greater numbers.
PIECES = {
    "Erf16": Pieces(mp.erf, 4.03, 16, 5, 6.809),
    "Tanh16": Pieces(mp.tanh, 9.02, 16, 6, 3.37),
    "Gelu16": Pieces(_gelu_below, 5.42, 16, 7, 1.476),
    "Erf8": Pieces(mp.erf, 3.92, 8, 6, 3.163),
    "Gelu8": Pieces(_gelu_below, 5.42, 8, 9, 0.73),
}


def least_squares(
    f: Callable[[mp.mpf], mp.mpf], nodes: list[mp.mpf], known: list[float], terms: int
) -> np.ndarray:
    """Coefficients from the constant up, for a small relative error; the first ones are given."""
    scale = float(max(abs(d) for d in nodes))
    x = np.array([float(d) / scale for d in nodes])
    y = np.array([float(f(d)) for d in nodes])
    rest = y - sum(c * (x * scale) ** k for k, c in enumerate(known))
    order = np.arange(len(known), terms)
    found = np.linalg.lstsq(x[:, None] ** order / y[:, None], rest / y, rcond=None)[0]
    return np.append(known, found / scale**order)


def piece(p: Pieces, number: int) -> tuple[float, np.ndarray]:
    """The middle and the coefficients."""
    # A little wider than the piece: the index is rounded.
    low = p.start(number) - (1e-6 if number else 0.0)
    high = p.start(number + 1) + 1e-6 if number < p.count - 1 else p.limit
    center = float(np.float32((low + high) / 2)) if number else 0.0
    middle, half = (mp.mpf(low) + high) / 2, (mp.mpf(high) - low) / 2
    nodes = [middle + half * mp.cos(mp.pi * (2 * k + 1) / 160) - center for k in range(80)]
    if number == 0:
        known = [0.0, float(np.float32(mp.diff(p.f, 0)))]
    else:
        known = [float(np.float32(p.f(mp.mpf(center))))]
    return center, least_squares(lambda d: p.f(center + d), nodes, known, p.terms)


def print_tables() -> None:
    print("// SPDX-License-Identifier: Apache-2.0")
    print("// Made by tools/fit_math.py: coefficients of functions in pieces, constants first.")
    print("#pragma once\n\nnamespace relaxvm::codegen::math {")
    print(PIECES_STRUCT, end="")
    for name, p in PIECES.items():
        fits = [piece(p, number) for number in range(p.count)]
        print(f"\ninline constexpr Pieces<{p.terms}, {p.count}> k{name} = {{")
        print(f"{p.limit:.9g}, {np.float32(p.slope):.9g}, {np.float32(p.bend):.9g},")
        print("{" + ", ".join(f"{center:.9g}" for center, _ in fits) + "}, {")
        for term in range(p.terms):
            print("{" + ", ".join(f"{np.float32(c[term]):.9g}" for _, c in fits) + "},")
        print("}};")
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
