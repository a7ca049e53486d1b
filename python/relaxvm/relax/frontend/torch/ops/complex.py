# SPDX-License-Identifier: Apache-2.0
"""Complex tensors inside a program: each is a pair of tensors, its real and its imaginary part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from relaxvm.relax import op

from ..graph import Complex, Graph, dtype_name
from ..registry import Rule, complex_op, find, of_both_parts

# What moves elements, and what is linear: of either part as of a real tensor.
of_both_parts(
    *"alias.default as_strided.default cat.default chunk.default clone.default constant_pad_nd.default".split(),
    *"contiguous.default detach.default diagonal.default expand.default expand_as.default flatten.using_ints".split(),
    *"flip.default gather.default index.Tensor index_select.default lift_fresh_copy.default mean.default".split(),
    *"mean.dim movedim.int movedim.intlist narrow.default neg.default pad.default permute.default".split(),
    *"repeat.default reshape.default roll.default select.int slice.Tensor split.Tensor".split(),
    *"split_with_sizes.default squeeze.default squeeze.dim squeeze.dims stack.default".split(),
    *"sum.default sum.dim_IntList t.default".split(),
    *"transpose.int unbind.int unflatten.int unfold.default unsqueeze.default view.default".split(),
    *"_unsafe_view.default zeros_like.default numpy_T.default mT.default".split(),
    *"cumsum.default tril.default triu.default diag_embed.default diagonal_scatter.default tile.default".split(),
    *"slice_scatter.default select_scatter.default index_put.default scatter.src new_zeros.default".split(),
)


def as_complex(g: Graph, x: Any) -> Complex:
    if isinstance(x, Complex):
        return x
    return _pair(g, x, g.result_dtype())


def _pair(g: Graph, x: Any, dtype: str) -> Complex:
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


@complex_op("where.self", "where.ScalarSelf", "where.ScalarOther")
def where(g: Graph, condition: Any, a: Any, b: Any) -> Complex:
    a, b = as_complex(g, a), as_complex(g, b)
    return Complex(op.where(condition, a.real, b.real), op.where(condition, a.imag, b.imag))


@complex_op("masked_fill.Scalar", "masked_fill.Tensor")
def masked_fill(g: Graph, x: Any, mask: Any, value: Any) -> Complex:
    return where(g, mask, value, x)


@complex_op("copy.default")
def copy(g: Graph, x: Any, source: Any, non_blocking: bool = False) -> Complex:
    whole, shape = as_complex(g, source), g.result_shape()
    return Complex(g.broadcast(whole.real, shape), g.broadcast(whole.imag, shape))


@complex_op("full_like.default", "fill.Scalar", "fill.Tensor")
def full_like(g: Graph, x: Any, value: Any, **_: Any) -> Complex:
    return copy(g, x, value)


@complex_op("ones_like.default")
def ones_like(g: Graph, x: Any, **_: Any) -> Complex:
    return copy(g, x, 1.0)


def _test(name: str, ours: Callable[..., Any], joined: Callable[..., Any], *ends: str) -> None:
    @complex_op(*(f"{name}.{end}" for end in ends))
    def test(g: Graph, *args: Any) -> Any:
        """Both parts are, or one of them is."""
        dtype = dtype_name(next(a for a in g.node.args if hasattr(a, "meta")).meta["val"].dtype)
        whole = [a if isinstance(a, Complex) else _pair(g, a, dtype) for a in args]
        parts = (ours(*(v.real for v in whole)), ours(*(v.imag for v in whole)))
        return joined(*(g.emit(part) for part in parts))


_test("eq", op.equal, op.logical_and, "Tensor", "Scalar")
_test("ne", op.not_equal, op.logical_or, "Tensor", "Scalar")
_test("isfinite", op.isfinite, op.logical_and, "default")
_test("isinf", op.isinf, op.logical_or, "default")
_test("isnan", op.isnan, op.logical_or, "default")


# ---- arithmetic


def product(g: Graph, times: Callable[..., Any], a: Complex, b: Complex) -> Complex:
    """(a + bi)(c + di) = (ac - bd) + (ad + bc)i"""
    part = lambda x, y: g.emit(times(x, y))
    real = op.subtract(part(a.real, b.real), part(a.imag, b.imag))
    return Complex(real, op.add(part(a.real, b.imag), part(a.imag, b.real)))


def _square(g: Graph, x: Complex) -> Any:
    """|x|^2"""
    return g.emit(op.add(*(g.emit(op.multiply(v, v)) for v in (x.real, x.imag))))


def emitted(g: Graph, x: Complex) -> Complex:
    return Complex(g.emit(x.real), g.emit(x.imag))


def each(g: Graph, x: Any, function: Callable[[Any], Any]) -> Any:
    if isinstance(x, Complex):
        return emitted(g, Complex(function(x.real), function(x.imag)))
    return g.emit(function(x))


def _is_real(x: Any) -> bool:
    return not isinstance(x, (Complex, complex))


@complex_op("mul.Tensor", "mul.Scalar")
def mul(g: Graph, a: Any, b: Any) -> Complex:
    for x, y in ((a, b), (b, a)):
        if _is_real(x):
            y, x = as_complex(g, y), g.cast(x, g.result_dtype())
            return Complex(op.multiply(y.real, x), op.multiply(y.imag, x))
    return product(g, op.multiply, as_complex(g, a), as_complex(g, b))


@complex_op("div.Tensor", "div.Scalar")
def div(g: Graph, a: Any, b: Any) -> Complex:
    a = as_complex(g, a)
    if _is_real(b):
        b = g.cast(b, g.result_dtype())
        return Complex(op.divide(a.real, b), op.divide(a.imag, b))
    b = as_complex(g, b)
    whole = product(g, op.multiply, a, Complex(b.real, g.emit(op.negative(b.imag))))
    size = _square(g, b)
    return Complex(op.divide(g.emit(whole.real), size), op.divide(g.emit(whole.imag), size))


@complex_op("reciprocal.default")
def reciprocal(g: Graph, x: Complex) -> Complex:
    return div(g, 1.0, x)


def _sum(name: str, function: Callable[..., Any]) -> Rule:
    @complex_op(f"{name}.Tensor", f"{name}.Scalar")
    def both(g: Graph, a: Any, b: Any, alpha: Any = 1) -> Complex:
        a, b = as_complex(g, a), b if alpha == 1 else mul(g, b, alpha)
        b = as_complex(g, b)
        return Complex(function(a.real, g.emit(b.real)), function(a.imag, g.emit(b.imag)))

    return both


add = _sum("add", op.add)
_sum("sub", op.subtract)


@complex_op("mm.default", "bmm.default", "matmul.default", "mv.default", "dot.default")
def matmul(g: Graph, a: Any, b: Any) -> Complex:
    return product(g, op.matmul, as_complex(g, a), as_complex(g, b))


@complex_op("vdot.default")
def vdot(g: Graph, a: Any, b: Any) -> Complex:
    return matmul(g, emitted(g, conj(g, as_complex(g, a))), b)


@complex_op("addmm.default", "addmv.default", "baddbmm.default")
def addmm(g: Graph, x: Any, a: Any, b: Any, beta: Any = 1, alpha: Any = 1) -> Complex:
    found = emitted(g, mul(g, emitted(g, matmul(g, a, b)), alpha))
    return found if beta == 0 else add(g, emitted(g, mul(g, x, beta)), found)


@complex_op("outer.default")
def outer(g: Graph, a: Any, b: Any) -> Complex:
    return mul(g, each(g, a, lambda v: op.expand_dims(v, [1])), b)


@complex_op("sgn.default")
def sgn(g: Graph, x: Complex) -> Complex:
    """On the unit circle; 0 stays."""
    size = g.emit(size_of(g, x))
    zero, one = (g.const(v, g.dtype(size)) for v in (0, 1))
    return div(g, x, g.emit(op.where(g.emit(op.equal(size, zero)), one, size)))


@complex_op("linalg_vector_norm.default")
def vector_norm(g: Graph, x: Complex, *args: Any, **kwargs: Any) -> Any:
    rule = find("linalg_vector_norm.default")
    assert rule is not None
    return rule(g, g.emit(size_of(g, x)), *args, **kwargs)


@complex_op("log.default")
def log(g: Graph, x: Complex) -> Complex:
    return Complex(op.log(g.emit(size_of(g, x))), angle(g, x))


@complex_op("sqrt.default")
def sqrt(g: Graph, x: Complex) -> Complex:
    """The one with a real part of at least 0 (Kahan, 1987): no difference that cancels."""
    dtype = g.dtype(x.real)
    half, zero, one = (g.const(v, dtype) for v in (0.5, 0, 1))
    size = g.emit(size_of(g, x))
    both = g.emit(op.add(size, g.emit(op.abs(x.real))))
    large = g.emit(op.sqrt(g.emit(op.multiply(both, half))))
    twice = g.emit(op.add(large, large))
    twice = g.emit(op.where(g.emit(op.equal(twice, zero)), one, twice))
    small = g.emit(op.divide(x.imag, twice))
    is_right = g.emit(op.greater_equal(x.real, zero))
    is_below = g.emit(op.less(x.imag, zero))
    turned = g.emit(op.where(is_below, g.emit(op.negative(large)), large))
    return Complex(
        op.where(is_right, large, g.emit(op.abs(small))), op.where(is_right, small, turned)
    )


@complex_op("rsqrt.default")
def rsqrt(g: Graph, x: Complex) -> Complex:
    return reciprocal(g, emitted(g, sqrt(g, x)))


@complex_op("sin.default")
def sin(g: Graph, x: Complex) -> Complex:
    return _waved(g, (op.sin, x.real, op.cosh, x.imag), (op.cos, x.real, op.sinh, x.imag))


@complex_op("cos.default")
def cos(g: Graph, x: Complex) -> Complex:
    found = _waved(g, (op.cos, x.real, op.cosh, x.imag), (op.sin, x.real, op.sinh, x.imag))
    return Complex(found.real, op.negative(found.imag))


@complex_op("sinh.default")
def sinh(g: Graph, x: Complex) -> Complex:
    return _waved(g, (op.sinh, x.real, op.cos, x.imag), (op.cosh, x.real, op.sin, x.imag))


@complex_op("cosh.default")
def cosh(g: Graph, x: Complex) -> Complex:
    return _waved(g, (op.cosh, x.real, op.cos, x.imag), (op.sinh, x.real, op.sin, x.imag))


def _waved(g: Graph, *parts: tuple) -> Complex:
    """f(a) h(b) for the real part, and for the imaginary one."""
    return Complex(*(g.emit(op.multiply(g.emit(f(a)), g.emit(h(b)))) for f, a, h, b in parts))


@complex_op("tanh.default")
def tanh(g: Graph, x: Complex) -> Complex:
    """(u + iv) / (1 + iuv) with u = tanh x, v = tan y: what is large does not overflow."""
    return _tangent(g, x.real, x.imag)


@complex_op("tan.default")
def tan(g: Graph, x: Complex) -> Complex:
    found = _tangent(g, x.imag, x.real)  # tan z = -i tanh(iz), conjugated twice
    return Complex(found.imag, found.real)


def _tangent(g: Graph, a: Any, b: Any) -> Complex:
    u, v, one = g.emit(op.tanh(a)), g.emit(op.tan(b)), g.const(1, g.dtype(a))
    uu, vv = (g.emit(op.multiply(t, t)) for t in (u, v))
    below = g.emit(op.add(one, g.emit(op.multiply(uu, vv))))
    parts = ((u, op.add(one, vv)), (v, op.subtract(one, uu)))
    return Complex(
        *(op.divide(g.emit(op.multiply(t, g.emit(factor))), below) for t, factor in parts)
    )


@complex_op("exp.default")
def exp(g: Graph, x: Complex) -> Complex:
    return polar(g, g.emit(op.exp(x.real)), x.imag)


@complex_op("square.default")
def square(g: Graph, x: Complex) -> Complex:
    return product(g, op.multiply, x, x)


@complex_op("pow.Tensor_Scalar")
def power(g: Graph, x: Complex, exponent: Any) -> Any:
    """|x|^p at p times the angle."""
    dtype = g.result_dtype()
    size = g.emit(op.power(g.emit(size_of(g, x)), g.const(exponent, dtype)))
    turned = g.emit(op.multiply(g.emit(angle(g, x)), g.const(exponent, dtype)))
    return polar(g, size, turned)


def partwise(name: str) -> Callable[..., Any]:
    """The rule of a real tensor's operator, for either part."""
    rule = find(name)
    assert rule is not None

    def run(g: Graph, *args: Any, **kwargs: Any) -> Any:
        args = tuple(as_complex(g, a) if _is_real_float(g, a) else a for a in args)
        parts = [rule(g, *_of_part(g, args, which), **kwargs) for which in ("real", "imag")]
        if isinstance(parts[0], (tuple, list)):
            return tuple(Complex(a, b) for a, b in zip(*parts))
        return Complex(*parts)

    return run


def _is_real_float(g: Graph, value: Any) -> bool:
    """A value beside complex ones, not an index or a mask."""
    return not isinstance(value, Complex) and g.is_tensor(value) and g.is_float(value)


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
