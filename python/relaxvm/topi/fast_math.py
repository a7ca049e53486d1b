# SPDX-License-Identifier: Apache-2.0
"""Functions computed by polynomials: a little less exact, and free of branches and tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import te, tirx
from ..te.tensor import Tensor


def _floats(*values: float) -> tuple[float, ...]:
    """The values as float32 holds them."""
    return tuple(float(np.float32(v)) for v in values)


# exp on [-ln(2) / 2, ln(2) / 2], highest power first: 1 + f + f^2 p(f) (Cephes, expf).
_EXP = _floats(
    1.9875691500e-4,
    1.3981999507e-3,
    8.3334519073e-3,
    4.1665795894e-2,
    1.6666665459e-1,
    5.0000001201e-1,
)
_EXP_LIMITS = _floats(-88.3762626647949, 88.3762626647950)
_LOG2_E, _LN_2 = _floats(1.44269504088896341, 0.6931471805599453)
# x p(x^2) / q(x^2) on [-4, 4] and on [-9, 9] (Eigen).
_ERF = _floats(
    -2.72614225801306e-10,
    2.77068142495902e-08,
    -2.10102402082508e-06,
    -5.69250639462346e-05,
    -7.34990630326855e-04,
    -2.95459980854025e-03,
    -1.60960333262415e-02,
)
_ERF_DIVISOR = _floats(
    -1.45660718464996e-05,
    -2.13374055278905e-04,
    -1.68282697438203e-03,
    -7.37332916720468e-03,
    -1.42647390514189e-02,
)
_TANH = (
    -2.76076847742355e-16,
    2.00018790482477e-13,
    -8.60467152213735e-11,
    5.12229709037114e-08,
    1.48572235717979e-05,
    6.37261928875436e-04,
    4.89352455891786e-03,
)
_TANH_DIVISOR = (
    1.19825839466702e-06,
    1.18534705686654e-04,
    2.26843463243900e-03,
    4.89352518554385e-03,
)


def _polynomial(square: Any, coefficients: Sequence[float], dtype: str) -> Any:
    """c0 s^n + ... + cn by Horner's rule."""
    total = tirx.const(coefficients[0], dtype)
    for c in coefficients[1:]:
        total = square * total + tirx.const(c, dtype)
    return total


def fast_exp(x: Tensor) -> Tensor:
    """e^x of float32, off by at most 2e-6 of it; other element types get the exact function."""
    dtype = str(x.dtype)
    if dtype != "float32":
        return te.compute(x.shape, lambda *i: tirx.exp(x(*i)), name="T_fast_exp")
    low, high = (tirx.const(v, dtype) for v in _EXP_LIMITS)

    def formula(*i: Any) -> Any:
        value = x(*i)
        clipped = tirx.max(tirx.min(value, high), low)
        # x = n ln(2) + f, so that e^x = 2^n e^f.
        n = tirx.floor(clipped * tirx.const(_LOG2_E, dtype) + tirx.const(0.5, dtype))
        f = clipped - n * tirx.const(_LN_2, dtype)
        y = tirx.const(_EXP[0], dtype)
        for c in _EXP[1:]:
            y = y * f + tirx.const(c, dtype)
        y = y * f * f + f + tirx.const(1, dtype)
        exponent = tirx.cast("int32", n + tirx.const(127, dtype))
        power = tirx.reinterpret("float32", tirx.shift_left(exponent, tirx.const(23, "int32")))
        return tirx.max(power * y, value)  # e^x > x: infinity stays

    return te.compute(x.shape, formula, name="T_fast_exp")


def fast_erf(x: Tensor) -> Tensor:
    """erf(x) of float32 and float16 within 1e-6; float64 gets the exact function."""
    dtype = str(x.dtype)
    if dtype not in ("float32", "float16"):
        return te.compute(x.shape, lambda *i: tirx.erf(x(*i)), name="T_erf")

    def formula(*i: Any) -> Any:
        value = tirx.max(tirx.min(x(*i), tirx.const(4, dtype)), tirx.const(-4, dtype))
        square = value * value
        return value * _polynomial(square, _ERF, dtype) / _polynomial(square, _ERF_DIVISOR, dtype)

    return te.compute(x.shape, formula, name="T_fast_erf")


def fast_tanh(x: Tensor) -> Tensor:
    """tanh(x) of float32 within 1e-6; other element types get the exact function."""
    dtype = str(x.dtype)
    if dtype != "float32":
        return te.compute(x.shape, lambda *i: tirx.tanh(x(*i)), name="T_fast_tanh")
    limit = tirx.const(9, dtype)
    capped = te.compute(x.shape, lambda *i: tirx.min(limit, x(*i)), name="T_minimum")
    clipped = te.compute(
        x.shape, lambda *i: tirx.max(tirx.const(-9, dtype), capped(*i)), name="T_maximum"
    )

    def formula(*i: Any) -> Any:
        value = clipped(*i)
        square = value * value
        return value * _polynomial(square, _TANH, dtype) / _polynomial(square, _TANH_DIVISOR, dtype)

    return te.compute(x.shape, formula, name="T_fast_tanh")


def fast_softmax(x: Tensor, axis: int = -1) -> Tensor:
    """softmax along `axis` with fast_exp.  Raises ValueError for an axis that `x` does not have."""
    ndim = len(x.shape)
    if not -ndim <= axis < ndim:
        raise ValueError(f"fast_softmax: axis {axis} is out of range for {ndim} dimensions")
    axis %= ndim
    rest = [d for k, d in enumerate(x.shape) if k != axis]

    def without_axis(i: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(index for k, index in enumerate(i) if k != axis)

    def with_axis(i: Sequence[Any], k: Any) -> tuple[Any, ...]:
        return (*i[:axis], k, *i[axis:])

    def reduced(reduce: Any, of: Tensor, name: str) -> Tensor:
        k = te.reduce_axis((0, x.shape[axis]), name="k")
        return te.compute(rest, lambda *i: reduce(of(*with_axis(i, k.var)), axis=k), name=name)

    greatest = reduced(te.max, x, "T_softmax_maxelem")
    shifted = te.compute(
        x.shape, lambda *i: x(*i) - greatest(*without_axis(i)), name="T_softmax_delta"
    )
    powers = fast_exp(shifted)
    total = reduced(te.sum, powers, "T_softmax_expsum")
    return te.compute(
        x.shape, lambda *i: powers(*i) / total(*without_axis(i)), name="T_softmax_norm"
    )
