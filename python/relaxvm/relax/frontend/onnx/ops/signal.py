# SPDX-License-Identifier: Apache-2.0
"""Fourier transforms as products with matrices of sines and cosines, and what audio models do around them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from relaxvm.relax import op

from ..errors import UnsupportedModel
from ..graph import Graph
from ..padding import pad_constant
from ..registry import Axes, Dims, Expr, onnx_op
from ..values import Value

TURN = 6.283185307179586
_MOST_KNOWN = 1 << 20  # elements of a matrix of waves that a program carries along


def _waves(g: Graph, rows: Any, columns: Any, length: Any, dtype: str) -> tuple[Any, Any]:
    """cos and sin of 2 pi j k / length for j < rows, k < columns; the product is reduced exactly.

    In float64: the sine of half a turn is then 0 within the rounding of every smaller type.
    """
    known = all(isinstance(n, int) for n in (rows, columns, length))
    if known and rows * columns <= _MOST_KNOWN and dtype != "bfloat16":
        place = np.arange(rows)[:, None] * np.arange(columns) % length
        angle = place / length * TURN
        return g.constant(np.cos(angle), dtype), g.constant(np.sin(angle), dtype)
    j = op.reshape(op.arange(0, rows, 1, dtype="int64"), [rows, 1])
    k = op.reshape(op.arange(0, columns, 1, dtype="int64"), [1, columns])
    n = g.as_expr(g.dims_value([length], ()), "length")
    place = g.emit(op.floor_mod(op.multiply(j, k), n))
    part = op.divide(op.astype(place, "float64"), op.astype(n, "float64"))
    angle = g.emit(op.multiply(part, g.constant(TURN, "float64")))
    return tuple(g.emit(op.astype(wave(angle), dtype)) for wave in (op.cos, op.sin))


def _turns(
    g: Graph, rows: Any, columns: Any, length: Any, dtype: str, inverse: bool
) -> tuple[Any, Any]:
    """Real and imaginary parts of what a place is multiplied by: forward transforms turn clockwise."""
    cos, sin = _waves(g, rows, columns, length, dtype)
    return cos, sin if inverse else g.emit(op.negative(sin))


def _fourier(g: Graph, re: Any, im: Any | None, length: Any, bins: Any, inverse: bool) -> tuple:
    """Of the last axis: real and imaginary parts; `im` None is a real signal."""
    size, dtype = g.shape(re)[-1], g.dtype(re)
    if not g.scalars.same(size, length):
        re, im = (None if x is None else _fitted(g, x, size, length) for x in (re, im))
    factors = None if dtype == "bfloat16" else _factors(length, bins, im is None)
    if factors:
        a, b = _in_two_steps(g, (re, im), *factors, bins, inverse)
    else:
        a, b = _product(g, op.matmul, (re, im), _turns(g, length, bins, length, dtype, inverse))
    if inverse:
        n = op.astype(g.as_expr(g.dims_value([length], ()), "length"), dtype)
        a, b = g.emit(op.divide(a, n)), g.emit(op.divide(b, n))
    return a, b


def _product(g: Graph, multiply: Callable, x: tuple, waves: tuple) -> tuple:
    """Of complex numbers, each a pair of its parts; `x` may lack the imaginary one."""
    (a, b), (cos, sin) = x, waves
    real, imaginary = g.emit(multiply(a, cos)), g.emit(multiply(a, sin))
    if b is None:
        return real, imaginary
    real = g.emit(op.subtract(real, g.emit(multiply(b, sin))))
    return real, g.emit(op.add(imaginary, g.emit(multiply(b, cos))))


def _factors(length: Any, bins: Any, is_real: bool) -> tuple[int, int] | None:
    """Two factors of a known length, as near to each other as there are, if sums in two steps are half the work."""
    if not isinstance(length, int) or not isinstance(bins, int):
        return None
    p = next((p for p in range(math.isqrt(length), 7, -1) if length % p == 0), None)
    if p is None:
        return None
    q, sides = length // p, 1 if is_real else 2
    if q * -(-bins // p) > _MOST_KNOWN:
        return None
    steps = 2 * sides * p + 4 * q * bins / length + 16
    return (p, q) if sides * bins > steps else None


def _in_two_steps(g: Graph, x: tuple, p: int, q: int, bins: int, inverse: bool) -> tuple[Any, Any]:
    """A transform of length p q by transforms of length p and q (Cooley and Tukey, 1965).

    With places q a + b and bins c + p d: for each b a sum over a, a turn by b c / (p q), for each c a sum over b.
    """
    shape, dtype = g.shape(x[0]), g.dtype(x[0])
    waves = lambda rows, columns, length: _turns(g, rows, columns, length, dtype, inverse)
    x = tuple(None if part is None else g.emit(op.reshape(part, [*shape[:-1], p, q])) for part in x)
    x = _product(g, lambda part, wave: op.matmul(wave, part), x, waves(p, p, p))
    x = _product(g, op.multiply, x, waves(p, q, p * q))
    asked = -(-bins // p)
    x = _product(g, op.matmul, x, waves(q, asked, q))
    rank = len(shape) + 1
    order = [*range(rank - 2), rank - 1, rank - 2]
    found = []
    for part in x:
        part = op.reshape(g.emit(op.permute_dims(part, order)), [*shape[:-1], asked * p])
        if asked * p != bins:
            part = op.strided_slice(g.emit(part), axes=[rank - 2], begin=[0], end=[bins])
        found.append(g.emit(part))
    return found[0], found[1]


def _fitted(g: Graph, x: Any, size: Any, length: Any) -> Any:
    """Cut, or filled up with zeros."""
    axis = g.rank(x) - 1
    return pad_constant(g, x, [0] * (axis + 1), [0] * axis + [g.scalars.sub(length, size)], 0.0)


def _parts(g: Graph, x: Any) -> tuple:
    """A signal whose last axis holds one or two numbers."""
    last = g.rank(x) - 1
    count = g.shape(x)[last]
    cut = lambda i: g.emit(
        op.squeeze(op.strided_slice(x, axes=[last], begin=[i], end=[i + 1]), axis=[last])
    )
    return (cut(0), None) if count == 1 else (cut(0), cut(1))


def _dft(g: Graph, x: Any, length: Any | None, axis: int, inverse: bool, onesided: bool) -> Any:
    re, im = _parts(g, x)
    rank = g.rank(re)
    axis = g.axis(axis, rank + 1)
    order = [a for a in range(rank) if a != axis] + [axis]
    back = [order.index(a) for a in range(rank)]
    re, im = (None if p is None else g.emit(op.permute_dims(p, order)) for p in (re, im))
    size = g.shape(re)[-1]
    length = size if length is None else length
    s = g.scalars
    if inverse and onesided:
        # The other half is the mirror image, conjugated.
        full_length = length if length is not size else s.mul(s.sub(size, 1), 2)
        return _half_inverse(g, re, im, full_length, back)
    bins = s.add(s.floordiv(length, 2), 1) if onesided else length
    a, b = _fourier(g, re, im, length, bins, inverse)
    a, b = (g.emit(op.permute_dims(p, back)) for p in (a, b))
    return op.stack([a, b], axis=rank)


def _half_inverse(g: Graph, re: Any, im: Any, length: Any, back: list[int]) -> Any:
    dtype, size = g.dtype(re), g.shape(re)[-1]
    cos, sin = _waves(g, size, length, length, dtype)
    k = op.arange(0, size, 1, dtype="int64")
    n = g.as_expr(g.dims_value([length], ()), "length")
    single = op.logical_or(
        op.equal(k, g.constant(0, "int64")), op.equal(op.multiply(k, g.constant(2, "int64")), n)
    )
    weight = g.emit(op.where(single, g.constant(1, dtype), g.constant(2, dtype)))
    total = op.matmul(op.multiply(re, weight), cos)
    if im is not None:
        total = op.subtract(total, op.matmul(op.multiply(im, weight), sin))
    y = g.emit(op.divide(g.emit(total), op.astype(n, dtype)))
    return op.expand_dims(op.permute_dims(y, back), axis=[g.rank(y)])


@onnx_op("DFT", since=17)
def dft_17(
    g: Graph,
    x: Expr,
    dft_length: Dims | None = None,
    *,
    axis: int = 1,
    inverse: int = 0,
    onesided: int = 0,
) -> Expr:
    length = None if dft_length is None else dft_length[0]
    return _dft(g, x, length, axis, bool(inverse), bool(onesided))


@onnx_op("DFT", since=20)
def dft(
    g: Graph,
    x: Expr,
    dft_length: Dims | None = None,
    axis: Axes | None = None,
    *,
    inverse: int = 0,
    onesided: int = 0,
) -> Expr:
    length = None if dft_length is None else dft_length[0]
    where = -2 if axis is None else axis[0]
    return _dft(g, x, length, where, bool(inverse), bool(onesided))


@onnx_op("STFT", since=17)
def stft(
    g: Graph,
    x: Expr,
    frame_step: Dims,
    window: Expr | None = None,
    frame_length: Value | None = None,
    *,
    onesided: int = 1,
) -> Expr:
    step = frame_step[0]
    if window is not None:
        length = g.shape(window)[0]
    elif frame_length is not None:
        length = g.as_dims(frame_length, "frame_length")[0]
    else:
        raise UnsupportedModel("needs a window or a frame_length")
    s = g.scalars
    x = x if g.rank(x) == 3 else g.emit(op.expand_dims(x, axis=[g.rank(x)]))
    size = g.shape(x)[1]
    frames = s.add(s.floordiv(s.sub(size, length), step), 1)
    start = op.reshape(op.arange(0, frames, 1, dtype="int64"), [frames, 1])
    inside = op.reshape(op.arange(0, length, 1, dtype="int64"), [1, length])
    stride = g.as_expr(g.dims_value([step], ()), "frame_step")
    index = g.emit(op.add(op.multiply(start, stride), inside))
    parts = []
    for part in _parts(g, x):
        if part is None:
            parts.append(None)
            continue
        framed = g.emit(op.take(part, index, axis=1))  # [batch, frames, length]
        parts.append(framed if window is None else g.emit(op.multiply(framed, window)))
    bins = s.add(s.floordiv(length, 2), 1) if onesided else length
    return op.stack(list(_fourier(g, *parts, length, bins, False)), axis=3)


@onnx_op("MelWeightMatrix", since=17)
def mel_weight_matrix(
    g: Graph,
    num_mel_bins: Dims,
    dft_length: Dims,
    sample_rate: Expr,
    lower: Expr,
    upper: Expr,
    *,
    output_datatype: int = 1,
) -> Expr:
    from ..element_types import carrier

    mels, s = num_mel_bins[0], g.scalars
    spectrum = s.add(s.floordiv(dft_length[0], 2), 1)
    f = lambda v: g.constant(v, "float32")
    number = lambda e: g.emit(op.reshape(op.astype(e, "float32"), []))
    size = lambda d: op.astype(g.as_expr(g.dims_value([d], ()), "size"), "float32")
    mel = lambda hz: op.multiply(
        f(2595.0), op.divide(op.log(op.add(f(1.0), op.divide(hz, f(700.0)))), f(2.302585092994046))
    )
    low, high = g.emit(mel(number(lower))), g.emit(mel(number(upper)))
    points = s.add(mels, 2)
    step = op.divide(op.subtract(high, low), size(points))
    i = op.astype(op.arange(0, points, 1, dtype="int64"), "float32")
    place = g.emit(op.add(op.multiply(i, step), low))
    ten = op.power(f(10.0), op.divide(place, f(2595.0)))
    hertz = op.multiply(f(700.0), op.subtract(ten, f(1.0)))
    scaled = op.multiply(hertz, size(s.add(dft_length[0], 1)))
    bins = g.emit(op.floor(op.divide(scaled, number(sample_rate))))
    part = lambda k: g.emit(
        op.reshape(op.strided_slice(bins, axes=[0], begin=[k], end=[s.add(mels, k)]), [1, mels])
    )
    left, centre, right = part(0), part(1), part(2)
    row = op.astype(op.arange(0, spectrum, 1, dtype="int64"), "float32")
    row = g.emit(op.reshape(row, [spectrum, 1]))
    one = f(1.0)
    rising = op.divide(op.subtract(row, left), op.maximum(op.subtract(centre, left), one))
    falling = op.divide(op.subtract(right, row), op.maximum(op.subtract(right, centre), one))
    up = op.logical_and(op.greater_equal(row, left), op.less(row, centre))
    down = op.logical_and(op.greater_equal(row, centre), op.less(row, right))
    # A bin without a left or a right half has its centre all the same.
    peak = op.equal(row, centre)
    value = op.where(up, rising, op.where(down, falling, f(0.0)))
    value = op.where(peak, one, value)
    return op.astype(value, carrier(output_datatype)) if output_datatype != 1 else value
