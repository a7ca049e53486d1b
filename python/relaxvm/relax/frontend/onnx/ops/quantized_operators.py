# SPDX-License-Identifier: Apache-2.0
"""Operators on small numbers with a scale and a zero point."""

from __future__ import annotations

from relaxvm.relax import op

from .. import byte_products
from ..errors import InvalidModel, UnsupportedModel
from ..graph import Graph
from ..registry import Expr, onnx_op
from .activations import softmax, softmax_1
from .convolution import add_bias, conv_of_bytes, convolved
from .linear import gemm, matmul_integer, turned
from .pooling import average_of_all, average_pool
from .quantization import (
    along,
    dequantized,
    dynamic_quantize_linear,
    quantized,
    ratio,
    requantized_sum,
    saturated,
    typed,
)


def _requantized(g, y, scale, zero):
    return quantized(g, g.emit(y), scale, zero, g.dtype(zero), g.elem_type_of(g.dtype(zero)))


@onnx_op("ConvInteger", since=10)
def conv_integer(
    g: Graph,
    x: Expr,
    weight: Expr,
    x_zero: Expr | None = None,
    w_zero: Expr | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Expr:
    geometry = (auto_pad, dilations, group, kernel_shape, pads, strides)
    return integer_conv(g, x, weight, x_zero, w_zero, geometry)


def integer_conv(g, x, weight, x_zero, w_zero, geometry, bias=None):
    """The convolution of the integers less their zero points, and `bias` (None: 0), as int32."""
    y = conv_of_bytes(g, x, weight, x_zero, w_zero, geometry)
    if y is not None and bias is not None:
        n = g.rank(weight) - 2
        y = y.plus(g, 1, byte_products.shaped(g, bias, [1, g.shape(bias)[0], *[1] * n]))
    if y is not None:
        return y.total(g)
    x, weight = _centred(g, x, x_zero, 1), _centred(g, weight, w_zero, 0)
    return g.emit(add_bias(g, g.emit(convolved(g, x, weight, geometry)), bias))


def _centred(g, x, zero, axis):
    x = g.emit(typed(g, x, "int32"))
    if zero is None:
        return x
    return g.emit(op.subtract(x, typed(g, along(g, zero, x, axis), "int32")))


@onnx_op("QLinearConv", since=10)
@onnx_op("QLinearConv", since=1, domain="com.microsoft")
def q_linear_conv(
    g: Graph,
    x: Expr,
    x_scale: Expr,
    x_zero: Expr,
    weight: Expr,
    w_scale: Expr,
    w_zero: Expr,
    y_scale: Expr,
    y_zero: Expr,
    bias: Expr | None = None,
    *,
    auto_pad: str = "NOTSET",
    channels_last: int = 0,
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Expr:
    """`channels_last` is com.microsoft's: of the input and the output, not of the weights."""
    rank = g.rank(x)
    if channels_last:
        x = g.emit(op.permute_dims(x, [0, rank - 1, *range(1, rank - 1)]))
    geometry = (auto_pad, dilations, group, kernel_shape, pads, strides)
    y = integer_conv(g, x, weight, x_zero, w_zero, geometry, bias)
    scale = byte_products.times(g, along(g, x_scale, y, 1), along(g, w_scale, y, 1))
    y = g.emit(requantized_sum(g, y, scale, y_scale, y_zero))
    return op.permute_dims(y, [0, *range(2, rank), 1]) if channels_last else y


@onnx_op("QLinearMatMul", since=10)
def q_linear_matmul(
    g: Graph,
    a: Expr,
    a_scale: Expr,
    a_zero: Expr,
    b: Expr,
    b_scale: Expr,
    b_zero: Expr,
    y_scale: Expr,
    y_zero: Expr,
) -> Expr:
    y = g.emit(matmul_integer(g, a, b, a_zero, b_zero))
    rows, columns = g.rank(y) - 2, g.rank(y) - 1
    left = typed(g, along(g, a_scale, y, rows), "float32")
    right = typed(g, along(g, b_scale, y, columns), "float32")
    scale = byte_products.times(g, g.emit(left), g.emit(right))
    return requantized_sum(g, y, scale, y_scale, y_zero)


def _integer_gemm(g, a, b, a_zero, b_zero, c, trans_a, trans_b):
    left = g.emit(op.permute_dims(a, [1, 0])) if trans_a else a
    right = turned(g, b) if trans_b else b
    y = byte_products.matmul(g, left, right, a_zero, b_zero)
    if y is not None and (c is None or g.shape(c) == g.shape(y.plain)[1:]):
        return (y if c is None else y.plus(g, 1, c)).total(g)
    if y is not None:
        return g.emit(op.add(*g.agree(y.total(g), c)))
    a, b = _centred(g, a, a_zero, 0), _centred(g, b, b_zero, 0 if trans_b else 1)
    return g.emit(gemm(g, a, b, c, transA=trans_a, transB=trans_b))


@onnx_op("QGemm", since=1, domain="com.microsoft")
def q_gemm(
    g: Graph,
    a: Expr,
    a_scale: Expr,
    a_zero: Expr,
    b: Expr,
    b_scale: Expr,
    b_zero: Expr,
    c: Expr | None = None,
    y_scale: Expr | None = None,
    y_zero: Expr | None = None,
    *,
    alpha: float = 1.0,
    transA: int = 0,  # noqa: N803: ONNX's name
    transB: int = 0,
) -> Expr:
    y = _integer_gemm(g, a, b, a_zero, b_zero, c, transA, transB)
    scale = byte_products.times(g, along(g, a_scale, y, 0), along(g, b_scale, y, 1))
    if alpha != 1.0:
        scale = op.multiply(g.emit(scale), g.constant(alpha, "float32"))
    if y_scale is not None:
        return requantized_sum(g, y, scale, y_scale, y_zero)
    return op.multiply(op.astype(y, "float32"), g.emit(scale))


@onnx_op("MatMulIntegerToFloat", since=1, domain="com.microsoft")
def matmul_integer_to_float(
    g: Graph,
    a: Expr,
    b: Expr,
    a_scale: Expr,
    b_scale: Expr,
    a_zero: Expr | None = None,
    b_zero: Expr | None = None,
    bias: Expr | None = None,
) -> Expr:
    # A sum of bytes is too large for a float16 before it is scaled.
    dtype, a_scale, b_scale = g.dtype(a_scale), g.widened(a_scale), g.widened(b_scale)
    y = g.emit(op.astype(g.emit(matmul_integer(g, a, b, a_zero, b_zero)), g.dtype(a_scale)))
    rank = g.rank(y)
    scale = op.multiply(along(g, a_scale, y, rank - 2), along(g, b_scale, y, rank - 1))
    y = g.as_type(op.multiply(y, scale), dtype)
    return y if bias is None else op.add(y, bias)


@onnx_op("DynamicQuantizeMatMul", since=1, domain="com.microsoft")
def dynamic_quantize_matmul(
    g: Graph,
    a: Expr,
    b: Expr,
    b_scale: Expr,
    b_zero: Expr | None = None,
    bias: Expr | None = None,
) -> Expr:
    small, scale, zero = dynamic_quantize_linear(g, a)
    small = g.emit(small)
    return matmul_integer_to_float(g, small, b, scale, b_scale, zero, b_zero, bias)


def _q_binary(name, build):
    @onnx_op(name, since=1, domain="com.microsoft")
    def rule(
        g: Graph,
        a: Expr,
        a_scale: Expr,
        a_zero: Expr | None,
        b: Expr,
        b_scale: Expr,
        b_zero: Expr | None = None,
        y_scale: Expr | None = None,
        y_zero: Expr | None = None,
    ) -> Expr:
        left = g.emit(dequantized(g, a, a_scale, a_zero, 1))
        right = g.emit(dequantized(g, b, b_scale, b_zero, 1))
        y = g.emit(build(*g.agree(left, right)))
        dtype = g.dtype(a)
        return quantized(g, y, y_scale, y_zero, dtype, g.elem_type_of(dtype))


_q_binary("QLinearMul", op.multiply)


@onnx_op("QLinearAdd", since=1, domain="com.microsoft")
def q_linear_add(
    g: Graph,
    a: Expr,
    a_scale: Expr,
    a_zero: Expr | None,
    b: Expr,
    b_scale: Expr,
    b_zero: Expr | None = None,
    y_scale: Expr | None = None,
    y_zero: Expr | None = None,
) -> Expr:
    """Halves go to even after the zero point is added, unlike those of QuantizeLinear."""
    dtype = g.dtype(a)
    number = lambda zero: g.constant(0, "float32") if zero is None else typed(g, zero, "float32")
    left, right = ratio(g, a_scale, y_scale), ratio(g, b_scale, y_scale)
    zeros = g.emit(op.multiply(left, number(a_zero)))
    zeros = g.emit(op.add(zeros, op.multiply(right, number(b_zero))))
    fixed = g.emit(op.subtract(number(y_zero), zeros))
    scaled = lambda x, by: g.emit(op.multiply(typed(g, x, "float32"), along(g, by, x, 1)))
    moved = g.emit(op.add(scaled(b, right), along(g, fixed, b, 1)))
    y = g.emit(op.round(op.add(*g.agree(scaled(a, left), moved))))
    return saturated(g, y, None, dtype, g.elem_type_of(dtype))


@onnx_op("QLinearWhere", since=1, domain="com.microsoft")
def q_linear_where(
    g: Graph,
    condition: Expr,
    x: Expr,
    x_scale: Expr,
    x_zero: Expr,
    y: Expr,
    y_scale: Expr,
    y_zero: Expr,
    z_scale: Expr,
    z_zero: Expr,
) -> Expr:
    left = _requantized(g, dequantized(g, x, x_scale, x_zero, 1), z_scale, z_zero)
    right = _requantized(g, dequantized(g, y, y_scale, y_zero, 1), z_scale, z_zero)
    return op.where(*g.agree(condition, g.emit(left), g.emit(right)))


def _q_unary(name, build):
    @onnx_op(name, since=1, domain="com.microsoft")
    def rule(
        g: Graph,
        x: Expr,
        x_scale: Expr,
        x_zero: Expr | None,
        y_scale: Expr,
        y_zero: Expr | None = None,
        *,
        alpha: float = 0.01,
    ) -> Expr:
        y = g.emit(build(g, g.emit(dequantized(g, x, x_scale, x_zero, 1)), alpha))
        dtype = g.dtype(x)
        return quantized(g, y, y_scale, y_zero, dtype, g.elem_type_of(dtype))


_q_unary("QLinearSigmoid", lambda g, x, alpha: op.sigmoid(x))
_q_unary("QLinearLeakyRelu", lambda g, x, alpha: op.nn.leakyrelu(x, alpha))


@onnx_op("QLinearGlobalAveragePool", since=1, domain="com.microsoft")
def q_linear_global_average_pool(
    g: Graph,
    x: Expr,
    x_scale: Expr,
    x_zero: Expr,
    y_scale: Expr,
    y_zero: Expr,
    *,
    channels_last: int = 0,
) -> Expr:
    real = g.emit(dequantized(g, x, x_scale, x_zero, 1))
    rank = g.rank(x)
    axes = list(range(1, rank - 1)) if channels_last else list(range(2, rank))
    return _requantized(g, op.mean(real, axis=axes, keepdims=True), y_scale, y_zero)


@onnx_op("QLinearAveragePool", since=1, domain="com.microsoft")
def q_linear_average_pool(
    g: Graph,
    x: Expr,
    x_scale: Expr,
    x_zero: Expr | None,
    y_scale: Expr,
    y_zero: Expr | None = None,
    *,
    kernel_shape: list[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    channels_last: int = 0,
    count_include_pad: int = 0,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Expr:
    real = g.emit(dequantized(g, x, x_scale, x_zero, 1))
    rank, dtype = g.rank(x), g.dtype(x)
    if channels_last:
        real = g.emit(op.permute_dims(real, [0, rank - 1, *range(1, rank - 1)]))
    # Counted padding is all that a window covers, also what ceil_mode adds.
    if count_include_pad:
        mean = average_of_all(g, real, kernel_shape, auto_pad, ceil_mode, None, pads, strides)
    else:
        mean = average_pool(
            g,
            real,
            kernel_shape=kernel_shape,
            auto_pad=auto_pad,
            ceil_mode=ceil_mode,
            pads=pads,
            strides=strides,
        )
    y = g.emit(quantized(g, g.emit(mean), y_scale, y_zero, dtype, g.elem_type_of(dtype)))
    return op.permute_dims(y, [0, *range(2, rank), 1]) if channels_last else y


@onnx_op("QLinearSoftmax", since=1, domain="com.microsoft")
def q_linear_softmax(
    g: Graph,
    x: Expr,
    x_scale: Expr,
    x_zero: Expr | None,
    y_scale: Expr,
    y_zero: Expr,
    *,
    axis: int = -1,
    opset: int = 13,
) -> Expr:
    real = g.emit(dequantized(g, x, x_scale, x_zero, 1))
    y = softmax(real, axis=axis) if opset >= 13 else softmax_1(g, real, axis=axis)
    return _requantized(g, y, y_scale, y_zero)


@onnx_op("QLinearConcat", since=1, domain="com.microsoft")
def q_linear_concat(g: Graph, y_scale: Expr, y_zero: Expr, *parts: Expr, axis: int) -> Expr:
    """After the result's parameters come three inputs for each part: values, scale, zero point."""
    if len(parts) % 3:
        raise InvalidModel(f"{len(parts)} inputs after the first two are no triples")
    real = [g.emit(dequantized(g, *parts[i : i + 3], axis=1)) for i in range(0, len(parts), 3)]
    joined = g.emit(op.concat(real, axis=g.axis(axis, g.rank(real[0]))))
    return _requantized(g, joined, y_scale, y_zero)


@onnx_op("QAttention", since=1, domain="com.microsoft")
def q_attention(
    g: Graph,
    x: Expr,
    weight: Expr,
    bias: Expr,
    x_scale: Expr,
    w_scale: Expr,
    mask: Expr | None = None,
    x_zero: Expr | None = None,
    w_zero: Expr | None = None,
    past: Expr | None = None,
    *,
    num_heads: int,
    unidirectional: int = 0,
    do_rotary: int = 0,
    mask_filter_value: float = -10000.0,
    past_present_share_buffer: int = 0,
    scale: float = 0.0,
) -> tuple:
    from .attention import attention_ms

    if do_rotary or past_present_share_buffer:
        raise UnsupportedModel("rotary embeddings and shared buffers are not supported")
    real = matmul_integer_to_float(g, x, weight, x_scale, w_scale, x_zero, w_zero, bias)
    return attention_ms(
        g, g.emit(real), num_heads, mask, past, None, bool(unidirectional), mask_filter_value, scale
    )
