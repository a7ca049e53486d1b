# SPDX-License-Identifier: Apache-2.0
"""Normalisations, softmax, embeddings, attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from relaxvm.relax import TupleGetItem, op

from ..errors import UnsupportedProgram, refuse_training
from ..graph import Graph, dtype_name
from ..registry import aten_op


def _weights(g: Graph, x: Any, shape: Sequence[Any], scale: Any, shift: Any) -> tuple[Any, Any]:
    """Gain and bias; ones and zeros where there are none."""
    if not all(isinstance(d, int) for d in shape):
        raise UnsupportedProgram("normalised axes of a size that is not known")
    dtype = g.dtype(x)
    ones = g.const(np.ones(shape), dtype) if scale is None else scale
    return ones, g.const(np.zeros(shape), dtype) if shift is None else shift


@aten_op("layer_norm.default")
def layer_norm(
    g: Graph, x: Any, shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5, *_: Any
) -> Any:
    gain, shift = _weights(g, x, shape, weight, bias)
    return op.nn.layer_norm(x, gain, shift, axes=[i - len(shape) for i in range(len(shape))], epsilon=eps)  # fmt: skip


@aten_op("native_layer_norm.default")
def native_layer_norm(g: Graph, x: Any, shape: Any, weight: Any, bias: Any, eps: float) -> tuple:
    axes = list(range(g.rank(x) - len(shape), g.rank(x)))
    return layer_norm(g, x, shape, weight, bias, eps), *_statistics(g, x, axes, eps)


def _statistics(g: Graph, x: Any, axes: list[int], eps: float) -> tuple[Any, Any]:
    """The mean of `axes` and 1 / the standard deviation: what a native norm gives beside its result, if it is asked."""
    if not (g.is_used(1) or g.is_used(2)):
        return None, None
    wide = g.cast(x, "float64" if g.dtype(x) == "float64" else "float32")
    mean = g.emit(op.mean(wide, axes))
    variance = g.emit(op.variance(wide, axes))
    inverse = g.emit(op.rsqrt(g.emit(op.add(variance, g.const(eps, g.dtype(wide))))))
    return tuple(
        g.cast(g.emit(op.reshape(v, g.symbols.shape(meta.shape))), dtype_name(meta.dtype))
        for v, meta in zip((mean, inverse), g.result[1:])
    )


@aten_op("rms_norm.default")
def rms_norm(g: Graph, x: Any, shape: Any, weight: Any = None, eps: float | None = None) -> Any:
    gain, _ = _weights(g, x, shape, weight, None)
    if eps is None:
        eps = float(np.finfo("float32" if g.dtype(x) == "bfloat16" else g.dtype(x)).eps)
    return op.nn.rms_norm(x, gain, [i - len(shape) for i in range(len(shape))], eps)


@aten_op("_fused_rms_norm.default")
def fused_rms_norm(g: Graph, x: Any, shape: Any, weight: Any, eps: float | None) -> tuple:
    return rms_norm(g, x, shape, weight, eps), None


def _batch_norm(g: Graph, x: Any, weight: Any, bias: Any, mean: Any, var: Any, eps: float) -> Any:
    gain, shift = _weights(g, x, [g.shape(x)[1]], weight, bias)
    result = op.nn.batch_norm(x, gain, shift, mean, var, axis=1, epsilon=eps, training=False)
    return TupleGetItem(g.emit(result), 0)


@aten_op("_native_batch_norm_legit_no_training.default")
def batch_norm_fixed(
    g: Graph, x: Any, weight: Any, bias: Any, mean: Any, var: Any, momentum: float, eps: float
) -> tuple:
    return _batch_norm(g, x, weight, bias, mean, var, eps), None, None


@aten_op("batch_norm.default")
def batch_norm(
    g: Graph,
    x: Any,
    weight: Any,
    bias: Any,
    mean: Any,
    var: Any,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool = False,
) -> Any:
    if training or mean is None:
        return _over_batch(g, x, weight, bias, eps)
    return _batch_norm(g, x, weight, bias, mean, var, eps)


def _over_batch(g: Graph, x: Any, weight: Any, bias: Any, eps: float) -> Any:
    """By the statistics of the batch itself."""
    gain, shift = _weights(g, x, [g.shape(x)[1]], weight, bias)
    return op.nn.instance_norm(
        x, gain, shift, channel_axis=1, axes=_all_but_channels(g, x), epsilon=eps
    )


def _all_but_channels(g: Graph, x: Any) -> list[int]:
    return [0, *range(2, g.rank(x))]


@aten_op("_native_batch_norm_legit.no_stats")
def batch_norm_no_stats(
    g: Graph, x: Any, weight: Any, bias: Any, training: bool, momentum: float, eps: float
) -> tuple:
    return _over_batch(g, x, weight, bias, eps), *_statistics(g, x, _all_but_channels(g, x), eps)


@aten_op("_native_batch_norm_legit_functional.default")
def batch_norm_functional(
    g: Graph,
    x: Any,
    weight: Any,
    bias: Any,
    mean: Any,
    var: Any,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple:
    """The statistics that it would keep are those of before: what a program writes is not given back."""
    result = batch_norm(g, x, weight, bias, mean, var, training, momentum, eps)
    own = _statistics(g, x, _all_but_channels(g, x), eps) if training else (None, None)
    return result, *own, mean, var


@aten_op("instance_norm.default")
def instance_norm(
    g: Graph,
    x: Any,
    weight: Any,
    bias: Any,
    mean: Any,
    var: Any,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool = False,
) -> Any:
    if not use_input_stats:
        return _batch_norm(g, x, weight, bias, mean, var, eps)
    gain, shift = _weights(g, x, [g.shape(x)[1]], weight, bias)
    axes = list(range(2, g.rank(x)))
    return op.nn.instance_norm(x, gain, shift, channel_axis=1, axes=axes, epsilon=eps)


@aten_op("group_norm.default")
def group_norm(
    g: Graph,
    x: Any,
    groups: int,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = False,
) -> Any:
    gain, shift = _weights(g, x, [g.shape(x)[1]], weight, bias)
    axes = list(range(2, g.rank(x)))
    return op.nn.group_norm(x, gain, shift, groups, channel_axis=1, axes=axes, epsilon=eps)


@aten_op("native_group_norm.default")
def native_group_norm(
    g: Graph, x: Any, weight: Any, bias: Any, n: Any, c: Any, hw: Any, groups: int, eps: float
) -> tuple:
    wide = x
    if g.is_used(1) or g.is_used(2):
        wide = g.emit(op.reshape(x, [g.shape(x)[0], groups, -1]))
    return group_norm(g, x, groups, weight, bias, eps), *_statistics(g, wide, [2], eps)


@aten_op("softmax.int", "_softmax.default")
def softmax(g: Graph, x: Any, dim: int, *_: Any, **__: Any) -> Any:
    return _along(g, op.nn.softmax, x, dim)


@aten_op("log_softmax.int", "_log_softmax.default")
def log_softmax(g: Graph, x: Any, dim: int, *_: Any, **__: Any) -> Any:
    return _along(g, op.nn.log_softmax, x, dim)


def _along(g: Graph, function: Any, x: Any, dim: int) -> Any:
    x = g.cast(x, g.result_dtype())
    if g.rank(x):
        return function(x, dim)
    row = g.emit(op.reshape(x, [1]))
    return op.reshape(g.emit(function(row, 0)), [])


@aten_op("one_hot.default")
def one_hot(g: Graph, indices: Any, classes: int = -1) -> Any:
    if classes < 0:
        raise UnsupportedProgram("give the number of classes: it cannot depend on values")
    places = g.const(np.arange(classes), "int64")
    return op.astype(g.emit(op.equal(g.emit(op.expand_dims(indices, [-1])), places)), "int64")


@aten_op("scaled_dot_product_attention.default")
def attention(
    g: Graph,
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    refuse_training(dropout_p != 0)
    rank = g.rank(query)
    parts = [_four_axes(g, x) for x in (query, key, value)]
    heads = g.shape(parts[0])[1]
    if enable_gqa:
        parts[1:] = [_repeated(g, x, heads) for x in parts[1:]]
    parts = _one_batch(g, parts)
    heads = g.shape(parts[0])[1]
    q, k, v = (g.emit(op.permute_dims(x, [0, 2, 1, 3])) for x in parts)
    masked = "TopLeft" if is_causal else None
    if attn_mask is None:
        result = op.nn.attention(q, k, v, scale=scale, causal_mask=masked)
    else:
        bias = _bias(g, attn_mask, g.dtype(query))
        shape = [g.shape(parts[0])[0], heads, g.shape(parts[0])[2], g.shape(parts[1])[2]]
        bias = g.broadcast(bias, shape)
        result = op.nn.attention_bias(q, k, v, bias, scale=scale, causal_mask=masked)
    result = g.emit(op.permute_dims(g.emit(result), [0, 2, 1, 3]))
    if attn_mask is not None:
        result = g.emit(op.where(_sees_some(g, attn_mask), result, g.const(0, g.dtype(query))))
    return result if rank == 4 else op.reshape(result, g.result_shape())


def _four_axes(g: Graph, x: Any) -> Any:
    """[batch, heads, length, size]; what stands before the heads is one batch."""
    shape = g.shape(x)
    if len(shape) == 4:
        return x
    if len(shape) < 4:
        return g.emit(op.expand_dims(x, list(range(4 - len(shape)))))
    batch: Any = 1
    for d in shape[:-3]:
        batch = batch * d
    return g.emit(op.reshape(x, [batch, *shape[-3:]]))


def _one_batch(g: Graph, parts: list[Any]) -> list[Any]:
    """With the batch and the heads of all where one has 1 of them."""
    shapes = [g.shape(x) for x in parts]
    joint = [next((s[i] for s in shapes if s[i] != 1), 1) for i in range(2)]
    wide = [[j if d == 1 else d for j, d in zip(joint, s)] + s[2:] for s in shapes]
    return [g.broadcast(x, shape) for x, shape in zip(parts, wide)]


def _repeated(g: Graph, x: Any, heads: int) -> Any:
    times = heads // g.shape(x)[1]
    return x if times == 1 else g.emit(op.repeat(x, times, 1))


def _sees_some(g: Graph, mask: Any) -> Any:
    """Rows that the mask leaves something to; PyTorch gives 0 for the others."""
    if g.dtype(mask) == "bool":
        found = g.emit(op.max(g.cast(mask, "int8"), [-1], keepdims=True))
        some = g.cast(found, "bool")
    else:
        top = g.emit(op.max(mask, [-1], keepdims=True))
        some = g.emit(op.greater(top, g.const(float("-inf"), g.dtype(mask))))
    missing = 4 - g.rank(some)
    return g.emit(op.expand_dims(some, list(range(missing)))) if missing > 0 else _four_axes(g, some)  # fmt: skip


def _bias(g: Graph, mask: Any, dtype: str) -> Any:
    if g.dtype(mask) == "bool":
        mask = g.emit(op.where(mask, g.const(0, dtype), g.const(float("-inf"), dtype)))
    mask = g.cast(mask, dtype)
    missing = 4 - g.rank(mask)
    return g.emit(op.expand_dims(mask, list(range(missing)))) if missing > 0 else _four_axes(g, mask)  # fmt: skip
