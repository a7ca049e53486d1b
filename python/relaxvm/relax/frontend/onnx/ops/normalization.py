# SPDX-License-Identifier: Apache-2.0
"""Normalisations."""

from __future__ import annotations

from relaxvm.relax import TupleGetItem, op

from ..element_types import carrier
from ..errors import InvalidModel, UnsupportedModel
from ..graph import Graph
from ..registry import Expr, onnx_op
from ..scalars import is_symbolic


@onnx_op("BatchNormalization", since=7)
def batch_normalization(
    g: Graph,
    x: Expr,
    scale: Expr,
    bias: Expr,
    mean: Expr,
    variance: Expr,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    spatial: int = 1,
    training_mode: int = 0,
) -> tuple:
    if not spatial:
        raise UnsupportedModel("spatial=0 is not supported")
    if training_mode:
        return _training(g, x, scale, bias, mean, variance, epsilon, momentum)
    if g.num_outputs > 1:
        raise UnsupportedModel("it has outputs of training; export the model for inference")
    x, scale, bias, mean, variance = _of_one_width(g, x, scale, bias, mean, variance)
    out = op.nn.batch_norm(x, scale, bias, mean, variance, axis=1, epsilon=epsilon, training=False)
    return (TupleGetItem(g.emit(out), 0),)


def _of_one_width(g, x, *weights):
    """`x` and its weights, one for each channel: their number is known when that of the first weight is."""
    shape = g.shape(x)
    channels = g.shape(weights[0])[0]
    if is_symbolic(channels):
        channels = shape[1]
    x = g.checked(x, [channels if i == 1 else d for i, d in enumerate(shape)])
    return [x, *(g.checked(v, [channels]) for v in weights)]


def _training(g, x, scale, bias, mean, variance, epsilon, momentum):
    axes = [i for i in range(g.rank(x)) if i != 1]
    now_mean = g.emit(op.mean(x, axis=axes, keepdims=False))
    now_variance = g.emit(op.variance(x, axis=axes, keepdims=False))
    y = _affine(g, _scaled(g, x, axes, epsilon), scale, bias, 1)
    keep, new = g.scalar(momentum, mean), g.scalar(1 - momentum, mean)
    blend = lambda old, now: op.add(op.multiply(old, keep), op.multiply(now, new))
    return y, blend(mean, now_mean), blend(variance, now_variance)


def _scaled(g, x, axes, epsilon):
    """(x - mean) / sqrt(variance + epsilon) over `axes`."""
    centred = g.emit(op.subtract(x, op.mean(x, axis=axes, keepdims=True)))
    variance = op.mean(op.multiply(centred, centred), axis=axes, keepdims=True)
    return op.divide(centred, op.sqrt(op.add(variance, g.scalar(epsilon, x))))


def _affine(g, x, scale, bias, axis):
    """x * scale + bias, with one element of scale and bias for each index of `axis`."""
    x = g.emit(x)
    shape = [1] * g.rank(x)
    shape[axis] = g.shape(scale)[0]
    return op.add(op.multiply(x, op.reshape(scale, shape)), op.reshape(bias, shape))


@onnx_op("InstanceNormalization", since=6)
def instance_normalization(
    g: Graph, x: Expr, scale: Expr, bias: Expr, *, epsilon: float = 1e-5
) -> Expr:
    axes = list(range(2, g.rank(x)))
    x, scale, bias = _of_one_width(g, x, scale, bias)
    return op.nn.instance_norm(x, scale, bias, channel_axis=1, axes=axes, epsilon=epsilon)


@onnx_op("LayerNormalization", since=1)  # exporters write it into models of any opset
def layer_normalization(
    g: Graph,
    x: Expr,
    scale: Expr,
    bias: Expr | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> tuple:
    rank = g.rank(x)
    axes = list(range(g.axis(axis, rank), rank))
    x, scale = g.agree(x, scale)
    if bias is not None:
        x, bias = g.agree(x, bias)
    dims = [g.shape(x)[a] for a in axes]
    plain = len(g.shape(scale)) == len(dims) and all(map(g.scalars.same, g.shape(scale), dims))
    static = all(isinstance(d, int) for d in dims)
    if plain and not g.wants(1) and not g.wants(2) and (bias is not None or static):
        if bias is None:
            bias = g.emit(op.zeros(dims, dtype=g.dtype(x)))
        return (op.nn.layer_norm(x, scale, bias, axes=axes, epsilon=epsilon),)
    dtype, x = g.dtype(x), g.widened(x)
    mean = g.emit(op.mean(x, axis=axes, keepdims=True))
    centred = g.emit(op.subtract(x, mean))
    variance = op.mean(op.multiply(centred, centred), axis=axes, keepdims=True)
    inverse = g.emit(op.divide(g.scalar(1, x), op.sqrt(op.add(variance, g.scalar(epsilon, x)))))
    y = op.multiply(g.as_type(op.multiply(centred, inverse), dtype), scale)
    y = y if bias is None else op.add(y, bias)
    stash = carrier(stash_type)
    return y, g.as_type(mean, stash), g.as_type(inverse, stash)


@onnx_op("RMSNormalization", since=23)
def rms_normalization(
    g: Graph, x: Expr, scale: Expr, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Expr:
    rank = g.rank(x)
    axes = list(range(g.axis(axis, rank), rank))
    dtype, x = g.dtype(x), g.widened(x)
    square = op.mean(op.multiply(x, x), axis=axes, keepdims=True)
    y = op.divide(x, op.sqrt(op.add(square, g.scalar(epsilon, x))))
    return op.multiply(*g.agree(g.as_type(y, dtype), scale))


def _group_axes(rank):
    return list(range(2, rank))


@onnx_op("GroupNormalization", since=18)
def group_normalization_18(
    g: Graph,
    x: Expr,
    scale: Expr,
    bias: Expr,
    *,
    num_groups: int,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> Expr:
    """One scale and bias for each group (from opset 21 on: for each channel)."""
    channels = g.shape(x)[1]
    if num_groups < 1 or isinstance(channels, int) and channels % num_groups:
        raise InvalidModel(f"{channels} channels are not a multiple of {num_groups} groups")
    each = g.scalars.floordiv(channels, num_groups)
    scale, bias = (_of_channels(g, v, num_groups, each, channels) for v in (scale, bias))
    return _group_norm(g, x, scale, bias, num_groups, epsilon)


def _of_channels(g, v, groups, each, channels):
    column = g.emit(op.reshape(g.checked(v, [groups]), [groups, 1]))
    rows = g.emit(
        op.reshape(op.broadcast_to(column, [groups, each]), [g.scalars.mul(groups, each)])
    )
    return g.checked(rows, [channels])


@onnx_op("GroupNormalization", since=21)
def group_normalization(
    g: Graph,
    x: Expr,
    scale: Expr,
    bias: Expr,
    *,
    num_groups: int,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> Expr:
    return _group_norm(g, x, scale, bias, num_groups, epsilon)


def _group_norm(g, x, scale, bias, num_groups, epsilon):
    x, scale, bias = _of_one_width(g, x, scale, bias)
    return op.nn.group_norm(
        x,
        scale,
        bias,
        num_groups=num_groups,
        channel_axis=1,
        axes=_group_axes(g.rank(x)),
        epsilon=epsilon,
    )


@onnx_op("MeanVarianceNormalization", since=9)
def mean_variance_normalization(g: Graph, x: Expr, *, axes: list[int] | None = None) -> Expr:
    axes = [0, 2, 3] if axes is None else axes
    dtype, x = g.dtype(x), g.widened(x)
    mean = op.mean(x, axis=axes, keepdims=True)
    square = op.mean(op.multiply(x, x), axis=axes, keepdims=True)
    deviation = op.sqrt(op.subtract(square, op.multiply(mean, mean)))
    y = op.divide(op.subtract(x, mean), op.add(deviation, g.scalar(1e-9, x)))
    return g.as_type(y, dtype)


@onnx_op("LRN", since=1)
def lrn(
    g: Graph, x: Expr, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0
) -> Expr:
    """Squares summed over a window of `size` channels: a sum of shifted slices."""
    rank, (before, after) = g.rank(x), ((size - 1) // 2, size // 2)
    dtype, x = g.dtype(x), g.widened(x)
    channels = g.shape(x)[1]
    widths = [0, 0, before, after] + [0, 0] * (rank - 2)
    padded = op.nn.pad(op.multiply(x, x), pad_width=widths, pad_value=0.0, pad_mode="constant")
    padded = g.emit(padded)
    total = None
    for i in range(size):
        end = g.scalars.add(channels, i)
        part = op.strided_slice(padded, axes=[1], begin=[i], end=[end], assume_inbound=True)
        total = part if total is None else op.add(total, part)
    scaled = op.add(g.scalar(bias, x), op.multiply(total, g.scalar(alpha / size, x)))
    return g.as_type(op.divide(x, op.power(scaled, g.scalar(beta, x))), dtype)


@onnx_op("LpNormalization", since=1)
def lp_normalization(g: Graph, x: Expr, *, axis: int = -1, p: int = 2) -> Expr:
    axes, dtype, x = [g.axis(axis, g.rank(x))], g.dtype(x), g.widened(x)
    if p == 1:
        norm = op.sum(op.abs(x), axis=axes, keepdims=True)
    else:
        norm = op.sqrt(op.sum(op.multiply(x, x), axis=axes, keepdims=True))
    # A row of zeros stays zeros.
    norm = g.emit(norm)
    safe = op.where(op.equal(norm, g.scalar(0, x)), g.scalar(1, x), norm)
    return g.as_type(op.divide(x, safe), dtype)


@onnx_op("SkipLayerNormalization", since=1, domain="com.microsoft")
def skip_layer_normalization(
    g: Graph,
    x: Expr,
    skip: Expr,
    gamma: Expr,
    beta: Expr | None = None,
    bias: Expr | None = None,
    *,
    epsilon: float = 1e-12,
) -> tuple:
    total = g.emit(op.add(*g.agree(x, skip)))
    total = total if bias is None else g.emit(op.add(*g.agree(total, bias)))
    total, gamma = g.agree(total, gamma)
    dtype, wide = g.dtype(total), g.widened(total)
    y = g.as_type(_scaled(g, wide, [g.rank(total) - 1], epsilon), dtype)
    y = g.emit(op.multiply(y, gamma))
    return (y if beta is None else op.add(*g.agree(y, beta))), None, None, total
