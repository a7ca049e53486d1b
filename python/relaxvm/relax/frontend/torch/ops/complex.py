# SPDX-License-Identifier: Apache-2.0
"""Complex tensors inside a program: each is a pair of tensors, its real and its imaginary part."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from relaxvm.relax import op

from ..graph import Complex, Graph
from ..registry import complex_op, find, of_both_parts

# What moves elements, and what is linear: of either part as of a real tensor.
of_both_parts(
    *"alias.default as_strided.default cat.default chunk.default clone.default constant_pad_nd.default".split(),
    *"contiguous.default detach.default diagonal.default expand.default expand_as.default flatten.using_ints".split(),
    *"flip.default gather.default index.Tensor index_select.default lift_fresh_copy.default mean.default".split(),
    *"mean.dim movedim.int movedim.intlist narrow.default neg.default pad.default permute.default".split(),
    *"repeat.default reshape.default roll.default select.int slice.Tensor split.Tensor".split(),
    *"split_with_sizes.default squeeze.default squeeze.dim squeeze.dims stack.default".split(),
    *"sum.default sum.dim_IntList t.default".split(),
    *"transpose.int unbind.int unflatten.int unfold.default unsqueeze.default view.default where.self".split(),
    *"_unsafe_view.default zeros_like.default numpy_T.default mT.default".split(),
)


def as_complex(g: Graph, x: Any) -> Complex:
    if isinstance(x, Complex):
        return x
    dtype = g.result_dtype()
    if isinstance(x, (bool, int, float, complex)):
        return Complex(g.const(complex(x).real, dtype), g.const(complex(x).imag, dtype))
    real = g.cast(x, dtype)
    return Complex(real, g.emit(op.full(g.shape(real), g.const(0, dtype), dtype)))


# ---- parts


@complex_op("view_as_complex.default")
def view_as_complex(g: Graph, x: Any) -> Complex:
    axis = g.rank(x) - 1
    part = lambda i: g.emit(op.strided_slice(x, [axis], [i], [i + 1], [1]))
    return Complex(*(op.squeeze(part(i), [axis]) for i in range(2)))


@complex_op("view_as_real.default", "view_as_real_copy.default")
def view_as_real(g: Graph, x: Complex) -> Any:
    return op.stack([x.real, x.imag], -1)


@complex_op("complex.default")
def complex_(g: Graph, real: Any, imag: Any) -> Complex:
    return Complex(real, imag)


@complex_op("polar.default")
def polar(g: Graph, size: Any, angle: Any) -> Complex:
    cos, sin = g.emit(op.cos(angle)), g.emit(op.sin(angle))
    return Complex(op.multiply(size, cos), op.multiply(size, sin))


@complex_op("real.default")
def real(g: Graph, x: Complex) -> Any:
    return x.real


@complex_op("imag.default")
def imag(g: Graph, x: Complex) -> Any:
    return x.imag


@complex_op("_conj.default", "_conj_physical.default", "conj_physical.default", "conj.default")
def conj(g: Graph, x: Complex) -> Complex:
    return Complex(x.real, op.negative(x.imag))


@complex_op("resolve_conj.default", "resolve_neg.default")
def resolved(g: Graph, x: Complex) -> Complex:
    return x


@complex_op("abs.default")
def size_of(g: Graph, x: Complex) -> Any:
    return op.sqrt(_square(g, x))


@complex_op("angle.default")
def angle(g: Graph, x: Complex) -> Any:
    return op.atan2(x.imag, x.real)


@complex_op(
    "_to_copy.default", "to.device", "to.dtype", "to.dtype_layout", "to.other", "type_as.default"
)
def converted(g: Graph, x: Any, *_: Any, **__: Any) -> Any:
    if g.result.dtype.is_complex:
        whole = as_complex(g, x)
        return Complex(g.cast(whole.real, g.result_dtype()), g.cast(whole.imag, g.result_dtype()))
    return g.cast(x.real, g.result_dtype())


# ---- arithmetic


def _product(g: Graph, times: Callable[..., Any], a: Complex, b: Complex) -> Complex:
    """(a + bi)(c + di) = (ac - bd) + (ad + bc)i"""
    part = lambda x, y: g.emit(times(x, y))
    real = op.subtract(part(a.real, b.real), part(a.imag, b.imag))
    return Complex(real, op.add(part(a.real, b.imag), part(a.imag, b.real)))


def _square(g: Graph, x: Complex) -> Any:
    """|x|^2"""
    return g.emit(op.add(*(g.emit(op.multiply(v, v)) for v in (x.real, x.imag))))


def _is_real(x: Any) -> bool:
    return not isinstance(x, (Complex, complex))


@complex_op("mul.Tensor", "mul.Scalar")
def mul(g: Graph, a: Any, b: Any) -> Complex:
    for x, y in ((a, b), (b, a)):
        if _is_real(x):
            y, x = as_complex(g, y), g.cast(x, g.result_dtype())
            return Complex(op.multiply(y.real, x), op.multiply(y.imag, x))
    return _product(g, op.multiply, as_complex(g, a), as_complex(g, b))


@complex_op("div.Tensor", "div.Scalar")
def div(g: Graph, a: Any, b: Any) -> Complex:
    a = as_complex(g, a)
    if _is_real(b):
        b = g.cast(b, g.result_dtype())
        return Complex(op.divide(a.real, b), op.divide(a.imag, b))
    b = as_complex(g, b)
    whole = _product(g, op.multiply, a, Complex(b.real, g.emit(op.negative(b.imag))))
    size = _square(g, b)
    return Complex(op.divide(g.emit(whole.real), size), op.divide(g.emit(whole.imag), size))


@complex_op("reciprocal.default")
def reciprocal(g: Graph, x: Complex) -> Complex:
    return div(g, 1.0, x)


def _sum(name: str, function: Callable[..., Any]) -> None:
    @complex_op(f"{name}.Tensor", f"{name}.Scalar")
    def both(g: Graph, a: Any, b: Any, alpha: Any = 1) -> Complex:
        a, b = as_complex(g, a), b if alpha == 1 else mul(g, b, alpha)
        b = as_complex(g, b)
        return Complex(function(a.real, g.emit(b.real)), function(a.imag, g.emit(b.imag)))


_sum("add", op.add)
_sum("sub", op.subtract)


@complex_op("mm.default", "bmm.default", "matmul.default")
def matmul(g: Graph, a: Any, b: Any) -> Complex:
    return _product(g, op.matmul, as_complex(g, a), as_complex(g, b))


@complex_op("exp.default")
def exp(g: Graph, x: Complex) -> Complex:
    return polar(g, g.emit(op.exp(x.real)), x.imag)


@complex_op("square.default")
def square(g: Graph, x: Complex) -> Complex:
    return _product(g, op.multiply, x, x)


@complex_op("pow.Tensor_Scalar")
def power(g: Graph, x: Complex, exponent: Any) -> Any:
    """|x|^p at p times the angle."""
    dtype = g.result_dtype()
    size = g.emit(op.power(g.emit(size_of(g, x)), g.const(exponent, dtype)))
    turned = g.emit(op.multiply(g.emit(angle(g, x)), g.const(exponent, dtype)))
    return polar(g, size, turned)


# ---- Fourier transforms

_LARGEST = 2048  # that is one product with a matrix; longer ones are two transforms of its factors


def _waves(g: Graph, rows: Any, columns: Any, n: Any, dtype: str) -> tuple[Any, Any]:
    """cos and sin of 2 pi j k / n, [rows, columns]."""
    if all(isinstance(v, int) for v in (rows, columns, n)):
        turns = np.outer(np.arange(rows), np.arange(columns)) % n * (2 * math.pi / n)
        return g.const(np.cos(turns), dtype), g.const(np.sin(turns), dtype)
    j, k = (g.emit(op.arange(0, v, 1, dtype="int64")) for v in (rows, columns))
    size = g.number(n, "int64")
    product = g.emit(op.multiply(g.emit(op.expand_dims(j, [1])), k))
    part = g.cast(g.emit(op.floor_mod(product, size)), dtype)
    scale = g.emit(op.divide(g.const(2 * math.pi, dtype), g.cast(size, dtype)))
    turns = g.emit(op.multiply(part, scale))
    return g.emit(op.cos(turns)), g.emit(op.sin(turns))


def _times(g: Graph, x: Any, cos: Any, sin: Any, sign: int) -> Complex:
    """x (cos + sign i sin), over the last axis."""
    turned = sin if sign > 0 else g.emit(op.negative(sin))
    if isinstance(x, Complex):
        whole = _product(g, op.matmul, x, Complex(cos, turned))
        return Complex(g.emit(whole.real), g.emit(whole.imag))
    return Complex(g.emit(op.matmul(x, cos)), g.emit(op.matmul(x, turned)))


def _part_of(x: Any) -> Any:
    return x.real if isinstance(x, Complex) else x


def _each(g: Graph, x: Any, function: Callable[[Any], Any]) -> Any:
    if isinstance(x, Complex):
        return Complex(g.emit(function(x.real)), g.emit(function(x.imag)))
    return g.emit(function(x))


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
    x = _each(g, x, lambda v: op.permute_dims(g.emit(op.reshape(v, [*lead, a, b])), swap))
    inner = _transform(g, x, a, sign)  # [.., j2, k1]
    cos, sin = _waves(g, b, a, n, dtype)
    twiddle = Complex(cos, sin if sign > 0 else g.emit(op.negative(sin)))
    turned = _product(g, op.multiply, inner, twiddle)
    turned = Complex(g.emit(turned.real), g.emit(turned.imag))
    turned = _each(g, turned, lambda v: op.permute_dims(v, swap))
    outer = _transform(g, turned, b, sign)  # [.., k1, k2]
    return _each(g, outer, lambda v: op.reshape(g.emit(op.permute_dims(v, swap)), [*lead, n]))


def _factor(n: int) -> int:
    return next(d for d in range(math.isqrt(n), 0, -1) if n % d == 0)


def _along(g: Graph, x: Any, axis: int, function: Callable[[Any], Any]) -> Any:
    """`function` over the last axis, where the axis stands for it."""
    last = g.rank(_part_of(x)) - 1
    if axis == last:
        return function(x)
    order = [i for i in range(last + 1) if i != axis] + [axis]
    back = [int(i) for i in np.argsort(order)]
    moved = _each(g, x, lambda v: op.permute_dims(v, order))
    return _each(g, function(moved), lambda v: op.permute_dims(v, back))


def _normalised(g: Graph, x: Any, count: Any, normalization: int) -> Any:
    """0: as it is, 1: over the root of the number of elements, 2: over the number."""
    if normalization == 0:
        return x
    dtype = g.dtype(_part_of(x))
    divisor = g.number(count, dtype)
    if normalization == 1:
        divisor = g.emit(op.sqrt(divisor))
    return _each(g, x, lambda v: op.divide(v, divisor))


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
        return _each(g, whole, lambda u: op.strided_slice(u, [g.rank(u) - 1], [0], [kept], [1]))

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
        v = _each(g, v, lambda u: op.strided_slice(u, [g.rank(u) - 1], [0], [half], [1]))
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


def partwise(name: str) -> Callable[..., Any]:
    """The rule of a real tensor's operator, for either part."""
    rule = find(name)
    assert rule is not None

    def run(g: Graph, *args: Any, **kwargs: Any) -> Any:
        parts = [rule(g, *_of_part(g, args, which), **kwargs) for which in ("real", "imag")]
        if isinstance(parts[0], (tuple, list)):
            return tuple(Complex(a, b) for a, b in zip(*parts))
        return Complex(*parts)

    return run


def _of_part(g: Graph, value: Any, which: str) -> Any:
    if isinstance(value, Complex):
        return getattr(value, which)
    if isinstance(value, (list, tuple)):
        values = value
        if any(isinstance(v, Complex) for v in value) and isinstance(value, list):
            values = [as_complex(g, v) if g.is_tensor(v) else v for v in value]
        return type(value)(_of_part(g, v, which) for v in values)
    return value


def is_complex(value: Any) -> bool:
    """Is there a complex tensor in it?"""
    if isinstance(value, (list, tuple)):
        return any(is_complex(v) for v in value)
    return isinstance(value, Complex) or (isinstance(value, torch.Tensor) and value.is_complex())
