# SPDX-License-Identifier: Apache-2.0
"""Largest errors of the elementary functions on float32, in units of the last place, against mpmath.

./dev bench accuracy [--points 100000] [--only NAME,..]

Half of the points are random bit patterns (every exponent, both signs), half lie where the function is not constant;
zeros, infinities, NaN, the least and the greatest numbers are always among them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

import mpmath
import numpy as np

import relaxvm
from relaxvm import relax
from relaxvm.relax import op

SPECIAL = [
    0.0,
    -0.0,
    np.inf,
    -np.inf,
    np.nan,
    1e-45,
    -1e-45,
    1.1754944e-38,
    3.4028235e38,
    -3.4028235e38,
    1.0,
    -1.0,
]


def sigmoid(x: mpmath.mpf) -> mpmath.mpf:
    return 1 / (1 + mpmath.exp(-x))


def softplus(x: mpmath.mpf) -> mpmath.mpf:
    return mpmath.log1p(mpmath.exp(x)) if x < 200 else x


def gelu(x: mpmath.mpf) -> mpmath.mpf:
    return x * mpmath.erfc(-x / mpmath.sqrt(2)) / 2


# name -> operator, exact function, interval where it is interesting
FUNCTIONS: dict[str, tuple[Callable, Callable, tuple[float, float]]] = {
    "exp": (op.exp, mpmath.exp, (-104, 90)),
    "log": (op.log, mpmath.log, (1e-3, 10)),
    "tanh": (op.tanh, mpmath.tanh, (-10, 10)),
    "erf": (op.erf, mpmath.erf, (-4.5, 4.5)),
    "sigmoid": (op.sigmoid, sigmoid, (-104, 20)),
    "gelu": (op.nn.gelu, gelu, (-14.5, 8)),
    "softplus": (op.nn.softplus, softplus, (-104, 30)),
    "sin": (op.sin, mpmath.sin, (-50, 50)),
    "cos": (op.cos, mpmath.cos, (-50, 50)),
    "tan": (op.tan, mpmath.tan, (-50, 50)),
    "sinh": (op.sinh, mpmath.sinh, (-90, 90)),
    "cosh": (op.cosh, mpmath.cosh, (-90, 90)),
    "asin": (op.asin, mpmath.asin, (-1, 1)),
    "acos": (op.acos, mpmath.acos, (-1, 1)),
    "atan": (op.atan, mpmath.atan, (-5, 5)),
    "rsqrt": (op.rsqrt, lambda x: 1 / mpmath.sqrt(x), (1e-3, 1e3)),
    "pow": (op.power, mpmath.power, (0, 20)),
    "exp2": (op.rvm.exp2, lambda x: mpmath.mpf(2) ** x, (-150, 130)),
    "expm1": (op.rvm.expm1, mpmath.expm1, (-20, 90)),
    "log2": (op.rvm.log2, lambda x: mpmath.log(x, 2), (1e-3, 10)),
    "log10": (op.rvm.log10, mpmath.log10, (1e-3, 10)),
    "log1p": (op.rvm.log1p, mpmath.log1p, (-1, 2)),
    "erfc": (op.rvm.erfc, mpmath.erfc, (-4, 10.5)),
    "erfinv": (op.rvm.erfinv, mpmath.erfinv, (-1, 1)),
}
ABOVE = {
    "log": 0,
    "log2": 0,
    "log10": 0,
    "log1p": -1,
    "rsqrt": 0,
    "pow": 0,
}  # where they are finite
# What is beyond all numbers of float32 far outside, and what is there below 0.
FAR = {"exp": (2, 0), "exp2": (2, 0), "expm1": (2, -1), "sinh": (2, -2), "cosh": (2, 2)}
UP_TO_ONE = {"asin", "acos", "erfinv"}


def points(name: str, count: int) -> np.ndarray:
    rng = np.random.default_rng(len(name))
    bits = rng.integers(0, 1 << 32, count // 2, dtype=np.uint32).view(np.float32)
    low, high = FUNCTIONS[name][2]
    near = rng.uniform(low, high, count - len(bits)).astype(np.float32)
    return np.concatenate([bits, near, np.array(SPECIAL, np.float32)])


def results(name: str, args: list[np.ndarray], target: str = "llvm") -> np.ndarray:
    n = relaxvm.tirx.Var("n", "int64")
    params = [relax.Var(f"x{i}", relax.TensorType([n], "float32")) for i in range(len(args))]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(FUNCTIONS[name][0](*params))
        builder.emit_func_output(result)
    vm = relax.VirtualMachine(relaxvm.compile(builder.get(), target=target), relaxvm.cpu())
    return vm["main"](*[relaxvm.runtime.tensor(a) for a in args]).numpy()


def error_in_ulps(got: float, exact: mpmath.mpf) -> float:
    """Distance from the exact value, in units of the last place of float32 there."""
    limit = mpmath.mpf(2) ** 128
    if abs(exact) >= limit * (1 - mpmath.mpf(2) ** -25):
        if np.isinf(got):
            return 0.0 if (got > 0) == (exact > 0) else float("inf")
        return float(abs(got - exact) / mpmath.mpf(2) ** 104)
    if not np.isfinite(got):
        # Rounding to infinity counts as the next number above the greatest.
        return (
            float(abs(mpmath.sign(got) * limit - exact) / mpmath.mpf(2) ** 104)
            if np.isinf(got)
            else float("inf")
        )
    exponent = max(mpmath.frexp(exact)[1] if exact else -148, -125)
    return float(abs(mpmath.mpf(got) - exact) / mpmath.mpf(2) ** (exponent - 24))


def worst(name: str, count: int, target: str = "llvm") -> tuple[float, float]:
    """The largest error in ulps, and where."""
    mpmath.mp.prec = 80
    x = points(name, count)
    args = [x]
    if name == "pow":
        args.append(np.random.default_rng(1).uniform(-30, 30, len(x)).astype(np.float32))
    with np.errstate(all="ignore"):
        got = results(name, args, target)
    exact = FUNCTIONS[name][1]
    largest, where = 0.0, 0.0
    for i, value in enumerate(got):
        a = [float(v[i]) for v in args]
        if not all(np.isfinite(v) for v in a) or a[0] <= ABOVE.get(name, -np.inf):
            continue
        if name in UP_TO_ONE and abs(a[0]) > (1 if name != "erfinv" else 1 - 2**-24):
            continue
        if name in ("sin", "cos", "tan"):
            mpmath.mp.prec = 80 + max(0, int(np.frexp(a[0])[1]))
        if name == "gelu" and a[0] < -40 or name == "sigmoid" and a[0] < -1e4:
            reference = mpmath.mpf(0)
        elif name == "sigmoid" and a[0] > 1e4:
            reference = mpmath.mpf(1)
        elif name == "erfc" and abs(a[0]) > 40:
            reference = mpmath.mpf(0 if a[0] > 0 else 2)
        elif name in FAR and abs(a[0]) > 1e4:
            base = FAR[name][a[0] < 0]
            reference = mpmath.mpf(base) ** 201
        else:
            reference = exact(*[mpmath.mpf(v) for v in a])
        if (error := error_in_ulps(float(value), reference)) > largest:
            largest, where = error, a[0]
    return largest, where


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=100_000)
    parser.add_argument("--only", help="names, with commas between")
    args = parser.parse_args()
    for name in args.only.split(",") if args.only else FUNCTIONS:
        error, where = worst(name, args.points)
        print(f"{name:8s} {error:6.2f} ulp at {where!r}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
