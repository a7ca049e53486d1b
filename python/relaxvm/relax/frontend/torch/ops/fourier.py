# SPDX-License-Identifier: Apache-2.0
"""Fourier transforms: products with matrices of waves."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from relaxvm.relax import op

from ..graph import Complex, Graph
from ..registry import complex_op
from .complex import each, emitted, product

_LARGEST = 2048  # that is one product with a matrix; longer ones are two transforms of its factors


def _waves(g: Graph, rows: Any, columns: Any, n: Any, dtype: str) -> tuple[Any, Any]:
    """cos and sin of 2 pi j k / n, [rows, columns]."""
    if all(isinstance(v, int) for v in (rows, columns, n)):
        turns = np.outer(np.arange(rows), np.arange(columns)) % n * (2 * math.pi / n)
        return g.const(np.cos(turns), dtype), g.const(np.sin(turns), dtype)
    j, k = (g.emit(op.arange(0, v, 1, dtype="int64")) for v in (rows, columns))
    size = g.number(n, "int64")
    both = g.emit(op.multiply(g.emit(op.expand_dims(j, [1])), k))
    part = g.cast(g.emit(op.floor_mod(both, size)), dtype)
    scale = g.emit(op.divide(g.const(2 * math.pi, dtype), g.cast(size, dtype)))
    turns = g.emit(op.multiply(part, scale))
    return g.emit(op.cos(turns)), g.emit(op.sin(turns))


def _times(g: Graph, x: Any, cos: Any, sin: Any, sign: int) -> Complex:
    """x (cos + sign i sin), over the last axis."""
    turned = sin if sign > 0 else g.emit(op.negative(sin))
    if isinstance(x, Complex):
        return emitted(g, product(g, op.matmul, x, Complex(cos, turned)))
    return Complex(g.emit(op.matmul(x, cos)), g.emit(op.matmul(x, turned)))


def _part_of(x: Any) -> Any:
    return x.real if isinstance(x, Complex) else x


def _transform(g: Graph, x: Any, n: Any, sign: int) -> Complex:
    """Over the last axis, of `n` elements."""
    dtype = g.dtype(_part_of(x))
    if not isinstance(n, int) or n <= _LARGEST or (a := _factor(n)) == 1:
        return _times(g, x, *_waves(g, n, n, n, dtype), sign)
    # x_j with j = b j1 + j2 and X_k with k = k1 + a k2 (Cooley and Tukey, 1965)
    b = n // a
    lead = g.shape(_part_of(x))[:-1]
    last = len(lead)
    swap = [*range(last), last + 1, last]
    x = each(g, x, lambda v: op.permute_dims(g.emit(op.reshape(v, [*lead, a, b])), swap))
    inner = _transform(g, x, a, sign)  # [.., j2, k1]
    cos, sin = _waves(g, b, a, n, dtype)
    twiddle = Complex(cos, sin if sign > 0 else g.emit(op.negative(sin)))
    turned = product(g, op.multiply, inner, twiddle)
    turned = Complex(g.emit(turned.real), g.emit(turned.imag))
    turned = each(g, turned, lambda v: op.permute_dims(v, swap))
    outer = _transform(g, turned, b, sign)  # [.., k1, k2]
    return each(g, outer, lambda v: op.reshape(g.emit(op.permute_dims(v, swap)), [*lead, n]))


def _factor(n: int) -> int:
    return next(d for d in range(math.isqrt(n), 0, -1) if n % d == 0)


def _along(g: Graph, x: Any, axis: int, function: Callable[[Any], Any]) -> Any:
    """`function` over the last axis, where the axis stands for it."""
    last = g.rank(_part_of(x)) - 1
    if axis == last:
        return function(x)
    order = [i for i in range(last + 1) if i != axis] + [axis]
    back = [int(i) for i in np.argsort(order)]
    moved = each(g, x, lambda v: op.permute_dims(v, order))
    return each(g, function(moved), lambda v: op.permute_dims(v, back))


def _normalised(g: Graph, x: Any, count: Any, normalization: int) -> Any:
    """0: as it is, 1: over the root of the number of elements, 2: over the number."""
    if normalization == 0:
        return x
    dtype = g.dtype(_part_of(x))
    divisor = g.number(count, dtype)
    if normalization == 1:
        divisor = g.emit(op.sqrt(divisor))
    return each(g, x, lambda v: op.divide(v, divisor))


def _count(shape: Sequence[Any], axes: Sequence[int]) -> Any:
    count: Any = 1
    for axis in axes:
        count = count * shape[axis]
    return count


@complex_op("_fft_c2c.default")
def fft(g: Graph, x: Complex, dims: Sequence[int], normalization: int, forward: bool) -> Complex:
    shape = g.shape(x.real)
    axes = [g.axis(x.real, d) for d in dims]
    for axis in axes:
        n, sign = shape[axis], -1 if forward else 1
        x = _along(g, x, axis, lambda v, n=n, sign=sign: _transform(g, v, n, sign))
    return _normalised(g, x, _count(shape, axes), normalization)


@complex_op("_fft_r2c.default")
def rfft(g: Graph, x: Any, dims: Sequence[int], normalization: int, onesided: bool) -> Complex:
    shape = g.shape(x)
    axes = [g.axis(x, d) for d in dims]
    n = shape[axes[-1]]
    kept = n // 2 + 1 if onesided else n

    def first(v: Any) -> Complex:
        if not isinstance(n, int) or n <= _LARGEST:
            return _times(g, v, *_waves(g, n, kept, n, g.dtype(v)), -1)
        whole = _transform(g, v, n, -1)
        return each(g, whole, lambda u: op.strided_slice(u, [g.rank(u) - 1], [0], [kept], [1]))

    result = _along(g, x, axes[-1], first)
    if len(axes) > 1:
        result = fft(g, result, axes[:-1], 0, True)
    return _normalised(g, result, _count(shape, axes), normalization)


@complex_op("_fft_c2r.default")
def irfft(g: Graph, x: Complex, dims: Sequence[int], normalization: int, last: Any) -> Any:
    """What is left out is the conjugate of what is there."""
    axes = [g.axis(x.real, d) for d in dims]
    if len(axes) > 1:
        x = fft(g, x, axes[:-1], 0, False)
    shape = g.shape(x.real)
    half = last // 2 + 1

    def real(v: Complex) -> Any:
        dtype = g.dtype(v.real)
        v = each(g, v, lambda u: op.strided_slice(u, [g.rank(u) - 1], [0], [half], [1]))
        cos, sin = _waves(g, half, last, last, dtype)
        times = g.number(2, dtype)
        whole = _times(g, v, cos, sin, 1).real
        # All but the first, and the middle one of an even number, stand for two.
        ends = [_end(g, v.real, 0, cos)]
        if not isinstance(last, int):
            even = g.cast(g.number(1 - last % 2, "int64"), dtype)
            ends.append(g.emit(op.multiply(_end(g, v.real, half - 1, cos), even)))
        elif last % 2 == 0:
            ends.append(_end(g, v.real, half - 1, cos))
        result = g.emit(op.multiply(whole, times))
        for end in ends:
            result = g.emit(op.subtract(result, end))
        return result

    result = _along(g, x, axes[-1], real)
    shape[axes[-1]] = last
    return _normalised(g, result, _count(shape, axes), normalization)


def _end(g: Graph, x: Any, k: Any, cos: Any) -> Any:
    """What the k-th element adds."""
    axis = g.rank(x) - 1
    column = g.emit(op.strided_slice(x, [axis], [k], [k + 1], [1]))
    row = g.emit(op.strided_slice(cos, [0], [k], [k + 1], [1]))
    return g.emit(op.matmul(column, row))
