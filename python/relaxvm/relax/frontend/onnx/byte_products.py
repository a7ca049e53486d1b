# SPDX-License-Identifier: Apache-2.0
"""Products of small integers less their zero points.

sum((a - za) (b - zb)) = sum(a b) - za sum(b) - zb (sum(a) - k za): the first sum is over the integers as they are
stored, which machines multiply four at a time; the others are constants where the weights are."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from relaxvm.relax import op

from .graph import Dequantized, Graph, Product, Sums, known
from .padding import pad_constant

BYTES = ("int8", "uint8")
GROUP = 4  # products that machines add up at once


def matmul(g: Graph, a: Any, b: Any, a_zero: Any, b_zero: Any) -> Sums | None:
    """The product.  None: of another form."""
    if not _are_bytes(g, a, b) or g.rank(a) < 2 or g.rank(b) < 2:
        return None
    if not (is_single(g, a_zero) and (is_single(g, b_zero) or g.rank(b_zero) == 1)):
        return None
    depth = g.shape(a)[-1]
    b, b_zero = _signed(g, a, b, b_zero)
    if isinstance(depth, int) and depth > GROUP and depth % GROUP:
        # Zeros add nothing to any of the sums.
        extra = -depth % GROUP
        a = pad_constant(g, a, [0] * g.rank(a), [*[0] * (g.rank(a) - 1), extra], 0)
        b = pad_constant(g, b, [0] * g.rank(b), [*[0] * (g.rank(b) - 2), extra, 0], 0)
    y = Sums(g.emit(op.matmul(a, b, out_dtype="int32")))
    a_zero, b_zero = _wide(g, a_zero), _wide(g, b_zero)
    if a_zero is not None:
        y = y.plus(g, -1, _added_up(g, b, [-2], True), a_zero)
    if b_zero is not None:
        y = y.plus(g, -1, g.emit(op.sum(op.astype(a, "int32"), axis=[-1], keepdims=True)), b_zero)
        if a_zero is not None:
            y = y.plus(g, depth, a_zero, b_zero)
    return y


def weight_of_conv(g: Graph, x: Any, weight: Any, w_zero: Any, group: int) -> tuple | None:
    """The weight and its zero point (None: 0) in the form that products want.  None: it has no such form."""
    if not _are_bytes(g, x, weight):
        return None
    if group != 1:
        # A product of one channel adds up no neighbours: it may as well have 16 bits.
        values, zero = known(weight), None if w_zero is None else known(w_zero)
        if values is None or (w_zero is not None and zero is None):
            return (weight, None) if g.dtype(weight) == "int8" and w_zero is None else None
        zero = (
            np.int32(0)
            if zero is None
            else zero.astype("int32").reshape(-1, *[1] * (values.ndim - 1))
        )
        centred = values.astype("int32") - zero
        fits = -128 <= centred.min(initial=0) and centred.max(initial=0) <= 127
        return g.constant(centred, "int8" if fits else "int16"), None
    weight, w_zero = _signed(g, x, weight, w_zero)
    return (weight, _wide(g, w_zero)) if g.dtype(weight) == "int8" else None


def unsigned(g: Graph, x: Any, x_zero: Any) -> tuple:
    """Signed bytes plus 128, like their zero point: what made them can write them so."""
    if g.dtype(x) == "uint8":
        return x, x_zero
    offset = g.constant(128, "int32")
    x = g.emit(op.astype(op.add(op.astype(x, "int32"), offset), "uint8"))
    value = known(x_zero) if x_zero is not None else np.zeros((), "int32")
    if value is not None:
        return x, g.constant(value.astype("int32") + 128, "int32")
    return x, g.emit(op.add(_wide(g, x_zero), offset))


def filler(g: Graph, x_zero: Any) -> Any:
    """What stands for 0 around the data: a number, or a scalar tensor."""
    if x_zero is None:
        return 0
    value = known(x_zero)
    if value is not None:
        return int(value.reshape(()))
    return g.emit(op.astype(g.emit(op.reshape(x_zero, [])), "uint8"))


def without_x_zero(g: Graph, y: Sums, weight: Any, x_zero: Any) -> Sums:
    """Takes off what the zero point of the data, which is around it as well, added to a convolution."""
    x_zero = _wide(g, x_zero)
    if x_zero is None:
        return y
    n = g.rank(weight)
    sums = _added_up(g, weight, list(range(1, n)), False)
    sums = shaped(g, sums, [1, g.shape(weight)[0], *[1] * (n - 2)])
    return y.plus(g, -1, sums, x_zero)


def without_w_zero(g: Graph, y: Sums, windows: Any, taps: int, x_zero: Any, w_zero: Any) -> Sums:
    """Takes off what the zero points of the weights added: `windows` are the sums of the data."""
    if g.rank(w_zero) == 1:
        w_zero = shaped(g, w_zero, [1, g.shape(w_zero)[0], *[1] * (g.rank(windows) - 2)])
    x_zero = _wide(g, x_zero)
    if x_zero is not None:
        y = y.plus(g, taps, x_zero, w_zero)
    return y.plus(g, -1, windows, w_zero)


def worth_it(g: Graph, x: Dequantized, weight: Dequantized) -> bool:
    """Have a dequantized tensor and a dequantized weight a product of bytes?"""
    if not is_single(g, x.scale) or not is_single(g, x.zero):
        return False
    return g.dtype(x.scale) == g.dtype(weight.scale) == "float32"


def groups_add_up(g: Graph, x: Any, weight: Any, w_zero: Any, group: int) -> bool:
    """Are the products of a convolution in groups fast ones: of single channels, or of bytes four at a time?"""
    channels = g.shape(weight)[1]
    if channels == 1:
        return True
    small = weight_of_conv(g, x, weight, w_zero, group)
    fits = small is not None and g.dtype(small[0]) == "int8"
    return fits and isinstance(channels, int) and channels % GROUP == 0


def scales_are(g: Graph, weight: Dequantized, axis: int) -> bool:
    """Has the weight one scale, or one for each index of `axis`?"""
    return is_single(g, weight.scale) or weight.axis % g.rank(weight.values) == axis


def scaled(g: Graph, y: Sums, x: Dequantized, weight: Dequantized, axis: int) -> Product:
    """The int32 result, whose scale has one number or one for each index of `axis`."""
    w_scale = weight.scale
    single = g.rank(w_scale) != 1 or g.shape(w_scale) == [1]
    w_scale = shaped(g, w_scale, [] if single else _along(g, w_scale, y.plain, axis))
    return Product(y, times(g, shaped(g, x.scale, []), w_scale), (x, weight))


def with_bias(g: Graph, product: Product, bias: Any, what: Dequantized | None, axis: int) -> Any:
    """The product as a real tensor, and `bias` (None: 0), which has one number for each index of `axis` and was made
    of `what`.  Integers in units of the product are added to its sums: who quantizes the result multiplies once."""
    if bias is None:
        g.products[g.node.output[0]] = product
        return product.real(g)
    shape = _along(g, bias, product.sums.plain, axis)
    if what is not None and _in_units_of(g, what, product.factors):
        sums = product.sums.plus(g, 1, shaped(g, what.values, shape))
        g.products[g.node.output[0]] = dataclasses.replace(product, sums=sums)
    return op.add(g.emit(product.real(g)), shaped(g, bias, shape))


def _along(g, values, y, axis):
    shape = [1] * g.rank(y)
    shape[axis] = g.shape(values)[0]
    return shape


def _in_units_of(g, what, factors):
    """Are the values int32 without zero point, and is their scale that of the product?"""
    scales = [known(i.scale) for i in (what, *factors)]
    if g.dtype(what.values) != "int32" or any(s is None for s in scales):
        return False
    zero = None if what.zero is None else known(what.zero)
    if what.zero is not None and (zero is None or np.any(zero)):
        return False
    unit = scales[1].reshape(-1).astype("float64") * scales[2].reshape(-1)
    return unit.size in (1, scales[0].size) and np.allclose(scales[0].reshape(-1), unit, 1e-6, 0)


def shaped(g: Graph, value: Any, shape: list) -> Any:
    """`value` with as many elements in another shape; a constant stays one."""
    array = known(value)
    if array is not None and all(isinstance(d, int) for d in shape):
        return g.constant(array.reshape(shape))
    return g.emit(op.reshape(value, shape))


def times(g: Graph, a: Any, b: Any) -> Any:
    """a * b, of constants a constant."""
    left, right = known(a), known(b)
    if left is None or right is None:
        return g.emit(op.multiply(a, b))
    with np.errstate(over="ignore"):
        return g.constant(left * right)


def _added_up(g, values, axes, keepdims):
    array = known(values)
    if array is not None:
        return g.constant(array.sum(tuple(axes), np.int32, keepdims=keepdims))
    return g.emit(op.sum(op.astype(values, "int32"), axis=axes, keepdims=keepdims))


def _are_bytes(g, a, b):
    return g.dtype(a) in BYTES and g.dtype(b) in BYTES


def is_single(g: Graph, zero: Any) -> bool:
    """Is it one zero point for the whole tensor, or none?"""
    return zero is None or g.rank(zero) == 0 or g.shape(zero) == [1]


def _signed(g, a, b, b_zero):
    """The right side and its zero point: constants as signed bytes around 0 where they fit, else less 128, as those of
    a run whose left side is unsigned as well (machines multiply unsigned by signed bytes)."""
    values, zero = known(b), known(b_zero) if b_zero is not None else np.zeros((), "uint8")
    if values is None or zero is None:
        if g.dtype(a) != "uint8" or g.dtype(b) != "uint8":
            return b, b_zero
        less = g.constant(-128, "int32")
        moved = g.emit(op.astype(op.add(op.astype(b, "int32"), less), "int8"))
        if zero is not None:
            return moved, g.constant(zero.astype("int32") - 128, "int32")
        return moved, g.emit(op.add(_wide(g, b_zero), less))
    if zero.size == 1:
        centred = values.astype("int32") - zero.astype("int32").reshape(())
        if -128 <= centred.min(initial=0) and centred.max(initial=0) <= 127:
            return g.constant(centred, "int8"), None
    if g.dtype(b) != "uint8":
        return b, b_zero
    moved = g.constant(values.astype("int16") - 128, "int8")
    return moved, g.constant(zero.astype("int32") - 128, "int32")


def _wide(g, zero):
    """A zero point as int32; None for 0."""
    if zero is None:
        return None
    value = known(zero)
    if value is not None and not np.any(value):
        return None
    zero = g.emit(zero)
    if g.shape(zero) == [1]:
        zero = shaped(g, zero, [])
    if value is not None:
        return g.constant(known(zero), "int32")
    return zero if g.dtype(zero) == "int32" else g.emit(op.astype(zero, "int32"))
