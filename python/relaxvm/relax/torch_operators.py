# SPDX-License-Identifier: Apache-2.0
"""The operators of Relax as PyTorch computes them: functions of a call's attributes and its arguments' values, by the
operator's name.  Tensors are PyTorch's, shapes tuples of numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

Number = Callable[[Any], Any]


class Attributes:
    """Attributes of a call as plain values of Python."""

    def __init__(self, call: Any, number: Number) -> None:
        self._call, self._number = call, number

    def __getattr__(self, name: str) -> Any:
        return self._plain(getattr(self._call.attrs, name))

    def _plain(self, value: Any) -> Any:
        if value is None or isinstance(value, (bool, int, float, str)):
            return str(value) if isinstance(value, str) else value
        if hasattr(value, "__len__") and hasattr(value, "__getitem__"):
            return [self._plain(v) for v in value]
        number = self._number(value) if hasattr(value, "dtype") else None
        return str(value) if number is None else number

    @property
    def result_dtype(self) -> Any:
        return dtype_of(self._call.ty.dtype)


def dtype_of(name: Any) -> Any:
    return getattr(torch, str(name))


def _axes(a: Attributes, x: Any) -> list[int]:
    axis = a.axis
    if axis is None:
        return list(range(x.dim()))
    return [axis] if isinstance(axis, int) else list(axis)


def _only(layout: str, wanted: str, what: str) -> None:
    if layout not in (wanted, ""):
        raise NotImplementedError(f"{what} over the layout {layout}; PyTorch's is {wanted}")


def _spatial(rank: int) -> str:
    return "DHW"[-rank:]


def _reduce(function: Callable[..., Any]) -> Callable[..., Any]:
    def run(a: Attributes, x: Any) -> Any:
        axes = _axes(a, x)
        return function(x, axes, bool(a.keepdims)) if axes else x

    return run


def _prod(x: Any, axes: Sequence[int], keepdims: bool) -> Any:
    for axis in sorted((i % x.dim() for i in axes), reverse=True):
        x = torch.prod(x, axis, keepdim=keepdims, dtype=x.dtype)
    return x


def _place(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda a, x: function(x, a.axis, bool(a.keepdims))


def _running(function: Callable[..., Any]) -> Callable[..., Any]:
    def run(a: Attributes, x: Any) -> Any:
        dtype = a.result_dtype
        if a.axis is None:
            x, axis = x.reshape(-1), 0
        else:
            axis = a.axis
        if a.exclusive:
            first = torch.full_like(x.narrow(axis, 0, 1), 0 if function is torch.cumsum else 1)
            x = torch.cat([first, x.narrow(axis, 0, x.shape[axis] - 1)], axis)
        return function(x, axis, dtype=dtype)

    return run


def _scaled(a: Attributes, x: Any, value: Any) -> Any:
    """A scale or zero point of each channel along the axis."""
    if not isinstance(value, torch.Tensor) or value.dim() == 0:
        return value
    axis = a.axis % x.dim()
    return value.reshape([-1 if i == axis else 1 for i in range(x.dim())])


def _quantize(a: Attributes, x: Any, scale: Any, zero: Any) -> Any:
    dtype = dtype_of(a.out_dtype)
    moved = torch.round(x / _scaled(a, x, scale)) + _scaled(a, x, zero)
    if dtype.is_floating_point:
        return moved.to(dtype)
    limits = torch.iinfo(dtype)
    return moved.clamp(limits.min, limits.max).to(dtype)


def _dequantize(a: Attributes, x: Any, scale: Any, zero: Any) -> Any:
    dtype = dtype_of(a.out_dtype)
    return ((x.to(torch.float32) - _scaled(a, x, zero)) * _scaled(a, x, scale)).to(dtype)


def _padded(x: Any, padding: Sequence[int], rank: int, value: float) -> tuple[Any, list[int]]:
    """The tensor, padded where both sides differ, and what is left for the operator."""
    before, after = list(padding[:rank]), list(padding[rank:]) or list(padding[:rank])
    if len(padding) == 1:
        before = after = list(padding) * rank
    if before == after:
        return x, before
    pairs = [p for i in reversed(range(rank)) for p in (before[i], after[i])]
    return F.pad(x, pairs, value=value), [0] * rank


def _convolution(rank: int, function: Callable[..., Any], turned: bool) -> Callable[..., Any]:
    def run(a: Attributes, x: Any, weight: Any) -> Any:
        _only(a.data_layout, "NC" + _spatial(rank), "a convolution")
        kernel = ("IO" if turned else "OI") + _spatial(rank)
        _only(a.kernel_layout, kernel, "the weights of a convolution")
        if turned:
            before, after = list(a.padding[:rank]), list(a.padding[rank:])
            if before != after:
                raise NotImplementedError("a transposed convolution with unequal padding")
            more = (before, a.output_padding, a.groups, a.dilation)
            return function(x, weight, None, a.strides, *more)
        x, pads = _padded(x, a.padding, rank, 0)
        return function(x, weight, None, a.strides, pads, a.dilation, a.groups)

    return run


def _max_pool(rank: int, function: Callable[..., Any]) -> Callable[..., Any]:
    def run(a: Attributes, x: Any) -> Any:
        _only(a.layout, "NC" + _spatial(rank), "a pooling")
        x, pads = _padded(x, a.padding, rank, -math.inf)
        return function(x, a.pool_size, a.strides, pads, a.dilation, bool(a.ceil_mode))

    return run


def _avg_pool(rank: int, function: Callable[..., Any]) -> Callable[..., Any]:
    def run(a: Attributes, x: Any) -> Any:
        _only(a.layout, "NC" + _spatial(rank), "a pooling")
        pads = list(a.padding[:rank])
        if pads != list(a.padding[rank:]) or any(d != 1 for d in a.dilation):
            raise NotImplementedError("an average over dilated windows or with unequal padding")
        options = (bool(a.ceil_mode), bool(a.count_include_pad))
        return function(x, a.pool_size, a.strides, pads, *options)

    return run


def _adaptive(rank: int, function: Callable[..., Any]) -> Callable[..., Any]:
    def run(a: Attributes, x: Any) -> Any:
        _only(a.layout, "NC" + _spatial(rank), "a pooling")
        return function(x, list(x.shape[2:]) if a.output_size is None else a.output_size)

    return run


def _along(value: Any, x: Any, axes: Sequence[int]) -> Any:
    """A gain or bias over `axes`, as it is broadcast against `x`."""
    kept = {i % x.dim() for i in axes}
    return value.reshape([x.shape[i] if i in kept else 1 for i in range(x.dim())])


def _normalised(x: Any, axes: Sequence[int], epsilon: float) -> Any:
    mean = x.mean(list(axes), keepdim=True)
    variance = x.var(list(axes), unbiased=False, keepdim=True)
    return (x - mean) / torch.sqrt(variance + epsilon)


def _affine(a: Attributes, y: Any, gamma: Any, beta: Any, axes: Sequence[int]) -> Any:
    if a.scale:
        y = y * _along(gamma, y, axes)
    return y + _along(beta, y, axes) if a.center else y


def _layer_norm(a: Attributes, x: Any, gamma: Any, beta: Any) -> Any:
    return _affine(a, _normalised(x, a.axes, a.epsilon), gamma, beta, a.axes)


def _instance_norm(a: Attributes, x: Any, gamma: Any, beta: Any) -> Any:
    return _affine(a, _normalised(x, a.axes, a.epsilon), gamma, beta, [a.channel_axis])


def _group_norm(a: Attributes, x: Any, gamma: Any, beta: Any) -> Any:
    channel = a.channel_axis % x.dim()
    if channel != 1 or [i % x.dim() for i in a.axes] != list(range(2, x.dim())):
        raise NotImplementedError("groups over other axes than PyTorch's")
    y = F.group_norm(x, a.num_groups, None, None, a.epsilon)
    return _affine(a, y, gamma, beta, [channel])


def _rms_norm(a: Attributes, x: Any, weight: Any) -> Any:
    size = x.to(torch.float32).pow(2).mean(list(a.axes), keepdim=True)
    return ((x * torch.rsqrt(size + a.epsilon)).to(x.dtype)) * _along(weight, x, a.axes)


def _batch_norm(a: Attributes, x: Any, gamma: Any, beta: Any, mean: Any, variance: Any) -> Any:
    if a.training:
        raise NotImplementedError("a batch norm in training")
    axis = [a.axis]
    y = (x - _along(mean, x, axis)) / torch.sqrt(_along(variance, x, axis) + a.epsilon)
    return _affine(a, y, gamma, beta, axis), mean, variance


def _attention(a: Attributes, q: Any, k: Any, v: Any, bias: Any = None) -> Any:
    """Of [batch, rows, heads, size]."""
    if a.window_size is not None or a.softcap is not None:
        raise NotImplementedError("attention over a window, or with capped scores")
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    repeat = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(repeat, 1), v.repeat_interleave(repeat, 1)
    scores = q @ k.transpose(-1, -2)
    scores = scores * (1 / math.sqrt(q.shape[-1]) if a.scale is None else a.scale)
    scores = scores if bias is None else scores + bias
    if a.causal_mask is not None:
        rows, columns = scores.shape[-2:]
        shift = columns - rows if a.causal_mask == "BottomRight" else 0
        seen = torch.ones(rows, columns, dtype=torch.bool).tril(shift)
        scores = scores.masked_fill(~seen, -math.inf)
    return (torch.softmax(scores, -1) @ v).transpose(1, 2)


def _take(a: Attributes, x: Any, indices: Any) -> Any:
    if not isinstance(indices, torch.Tensor):
        indices = torch.tensor(indices)
    if a.axis is None:
        return torch.take(x, indices.long())
    shape = x.shape
    axis = a.axis % x.dim()
    rows = torch.index_select(x, axis, indices.long().reshape(-1))
    return rows.reshape([*shape[:axis], *indices.shape, *shape[axis + 1 :]])


def _split(a: Attributes, x: Any) -> Any:
    where, axis = a.indices_or_sections, a.axis
    if isinstance(where, int):
        return tuple(torch.split(x, -(-x.shape[axis] // where), axis))
    return tuple(torch.tensor_split(x, [int(i) for i in where], axis))


def _strided_slice(a: Attributes, x: Any, axes: Any, begin: Any, end: Any, strides: Any = None) -> Any:  # fmt: skip
    steps = [1] * len(axes) if strides is None else strides
    for axis, first, last, step in zip(axes, begin, end, steps):
        places = range(*slice(first, last, step).indices(x.shape[axis]))
        x = torch.index_select(x, axis % x.dim(), torch.tensor(list(places), dtype=torch.int64))
    return x


def _pad(a: Attributes, x: Any) -> Any:
    width = a.pad_width
    pairs = [w for i in reversed(range(len(width) // 2)) for w in width[2 * i : 2 * i + 2]]
    if a.pad_mode == "constant":
        return F.pad(x, pairs, value=float(a.pad_value))
    raise NotImplementedError(f"padding by {a.pad_mode}")


def _scatter(a: Attributes, x: Any, indices: Any, updates: Any) -> Any:
    ways = {"add": "sum", "mul": "prod", "min": "amin", "max": "amax", "mean": "mean"}
    if a.reduction == "update":
        return x.scatter(a.axis, indices.long(), updates)
    return x.scatter_reduce(a.axis, indices.long(), updates, ways[a.reduction])


def _topk(a: Attributes, x: Any) -> Any:
    axis = a.axis % x.dim()
    count = x.shape[axis] if a.k < 1 else a.k
    values, places = torch.topk(x, count, axis, bool(a.largest))
    both = values, places.to(dtype_of(a.dtype))
    return both if a.ret_type == "both" else both[a.ret_type == "indices"]


def _argsort(a: Attributes, x: Any) -> Any:
    order = torch.sort(x, stable=True, dim=a.axis, descending=bool(a.descending))[1]
    return order.to(dtype_of(a.dtype))


def _one_hot(a: Attributes, indices: Any, on: Any, off: Any) -> Any:
    marks = F.one_hot(indices.long(), a.depth).bool()
    marks = torch.movedim(marks, -1, a.axis)
    on, off = (torch.as_tensor(v, dtype=a.result_dtype) for v in (on, off))
    return torch.where(marks, on, off)


def _softplus(a: Attributes, x: Any) -> Any:
    return F.softplus(x, float(a.beta), float(a.threshold))


def _prelu(a: Attributes, x: Any, alpha: Any) -> Any:
    return torch.where(x > 0, x, x * _along(alpha, x, [a.axis]))


def _squeeze(a: Attributes, x: Any) -> Any:
    return x.squeeze() if a.axis is None else x.squeeze(tuple(a.axis))


def _expand_dims(a: Attributes, x: Any) -> Any:
    axes = [a.axis] if isinstance(a.axis, int) else a.axis
    for axis in sorted(i % (x.dim() + len(axes)) for i in axes):
        x = x.unsqueeze(axis)
    return x


def _arange(a: Attributes, start: Any, end: Any, step: Any) -> Any:
    return torch.arange(start, end, step, dtype=dtype_of(a.dtype))


def _full(a: Attributes, shape: Any, value: Any) -> Any:
    return torch.as_tensor(value, dtype=a.result_dtype).expand(shape).clone()


def _repeat(a: Attributes, x: Any) -> Any:
    return torch.repeat_interleave(x, a.repeats, a.axis)


def _divide(a: Attributes, x: Any, y: Any) -> Any:
    return torch.div(x, y, rounding_mode=None if a.result_dtype.is_floating_point else "trunc")


# PyTorch's function of the same arguments -> the operators' names, "ours" or "ours=theirs"
_PLAIN = (
    "abs acos acosh add asin asinh atan atan2 atanh bitwise_and bitwise_not bitwise_or bitwise_xor ceil cos cosh "
    "equal=eq erf exp floor floor_divide floor_mod=remainder greater=gt greater_equal=ge isfinite isinf isnan "
    "left_shift=bitwise_left_shift less=lt less_equal=le log log_add_exp=logaddexp logical_and logical_not logical_or "
    "logical_xor maximum minimum mod=fmod multiply=mul negative=neg not_equal=ne outer power=pow "
    "right_shift=bitwise_right_shift round rsqrt sigmoid sign sin sinh sqrt square subtract=sub tan tanh trunc where "
    "rvm.digamma=digamma rvm.erfc=erfc rvm.erfinv=erfinv rvm.exp2=exp2 rvm.expm1=expm1 rvm.lgamma=lgamma "
    "rvm.log10=log10 rvm.log1p=log1p rvm.log2=log2"
)
_FUNCTIONAL = "nn.gelu=gelu nn.relu=relu nn.selu=selu nn.silu=silu"

OPERATORS: dict[str, Callable[..., Any]] = {
    "arange": _arange,
    "argmax": _place(torch.argmax),
    "argmin": _place(torch.argmin),
    "argsort": _argsort,
    "astype": lambda a, x: x.to(dtype_of(a.dtype)),
    "broadcast_to": lambda a, x, shape: torch.broadcast_to(x, shape),
    "builtin.stop_lift_params": lambda a, x: x,
    "clip": lambda a, x, low, high: torch.clamp(x, low, high),
    "collapse_sum_to": lambda a, x, shape: x.sum_to_size(shape),
    "concat": lambda a, xs: torch.cat(xs, 0 if a.axis is None else a.axis),
    "cumprod": _running(torch.cumprod),
    "cumsum": _running(torch.cumsum),
    "dequantize": _dequantize,
    "divide": _divide,
    "einsum": lambda a, xs: torch.einsum(a.subscripts, *xs),
    "ewise_fma": lambda a, x, y, z: x * y + z,
    "expand_dims": _expand_dims,
    "flatten": lambda a, x: x.reshape(-1),
    "flip": lambda a, x: torch.flip(x, [a.axis]),
    "full": _full,
    "full_like": lambda a, x, value: _full(a, x.shape, value),
    "gather_elements": lambda a, x, i: torch.gather(x, a.axis, i.long()),
    "matmul": lambda a, x, y: torch.matmul(x, y).to(a.result_dtype),
    "max": _reduce(torch.amax),
    "mean": _reduce(torch.mean),
    "meshgrid": lambda a, xs: tuple(torch.meshgrid(*xs, indexing=a.indexing or "ij")),
    "min": _reduce(torch.amin),
    "nn.adaptive_avg_pool1d": _adaptive(1, F.adaptive_avg_pool1d),
    "nn.adaptive_avg_pool2d": _adaptive(2, F.adaptive_avg_pool2d),
    "nn.adaptive_avg_pool3d": _adaptive(3, F.adaptive_avg_pool3d),
    "nn.attention": _attention,
    "nn.attention_bias": _attention,
    "nn.avg_pool1d": _avg_pool(1, F.avg_pool1d),
    "nn.avg_pool2d": _avg_pool(2, F.avg_pool2d),
    "nn.avg_pool3d": _avg_pool(3, F.avg_pool3d),
    "nn.batch_flatten": lambda a, x: x.flatten(1),
    "nn.batch_norm": _batch_norm,
    "nn.conv1d": _convolution(1, F.conv1d, False),
    "nn.conv1d_transpose": _convolution(1, F.conv_transpose1d, True),
    "nn.conv2d": _convolution(2, F.conv2d, False),
    "nn.conv2d_transpose": _convolution(2, F.conv_transpose2d, True),
    "nn.conv3d": _convolution(3, F.conv3d, False),
    "nn.conv3d_transpose": _convolution(3, F.conv_transpose3d, True),
    "nn.gelu_tanh": lambda a, x: F.gelu(x, approximate="tanh"),
    "nn.group_norm": _group_norm,
    "nn.instance_norm": _instance_norm,
    "nn.layer_norm": _layer_norm,
    "nn.leakyrelu": lambda a, x: F.leaky_relu(x, float(a.alpha)),
    "nn.log_softmax": lambda a, x: F.log_softmax(x, a.axis),
    "nn.max_pool1d": _max_pool(1, F.max_pool1d),
    "nn.max_pool2d": _max_pool(2, F.max_pool2d),
    "nn.max_pool3d": _max_pool(3, F.max_pool3d),
    "nn.pad": _pad,
    "nn.pixel_shuffle": lambda a, x: F.pixel_shuffle(x, a.upscale_factor),
    "nn.prelu": _prelu,
    "nn.rms_norm": _rms_norm,
    "nn.softmax": lambda a, x: F.softmax(x, a.axis),
    "nn.softplus": _softplus,
    "nonzero": lambda a, x: torch.nonzero(x).T,
    "one_hot": _one_hot,
    "ones": lambda a, shape: torch.ones(shape, dtype=dtype_of(a.dtype)),
    "ones_like": lambda a, x: torch.ones_like(x, dtype=a.result_dtype),
    "permute_dims": lambda a, x: x.permute(list(range(x.dim()))[::-1] if a.axes is None else a.axes),
    "prod": _reduce(_prod),
    "quantize": _quantize,
    "repeat": _repeat,
    "reshape": lambda a, x, shape: x.reshape(shape),
    "scatter_elements": _scatter,
    "shape_of": lambda a, x: tuple(x.shape),
    "shape_to_tensor": lambda a, shape: torch.tensor(shape, dtype=torch.int64),
    "sort": lambda a, x: torch.sort(x, a.axis, bool(a.descending))[0],
    "split": _split,
    "squeeze": _squeeze,
    "stack": lambda a, xs: torch.stack(xs, 0 if a.axis is None else a.axis),
    "std": _reduce(lambda x, axes, keep: torch.std(x, axes, unbiased=False, keepdim=keep)),
    "strided_slice": _strided_slice,
    "sum": _reduce(lambda x, axes, keep: torch.sum(x, axes, keep, dtype=x.dtype)),
    "take": _take,
    "tensor_to_shape": lambda a, x: tuple(int(v) for v in x),
    "tile": lambda a, x: torch.tile(x, tuple(a.repeats)),
    "topk": _topk,
    "tril": lambda a, x, k: torch.tril(x, k),
    "triu": lambda a, x, k: torch.triu(x, k),
    "variance": _reduce(lambda x, axes, keep: torch.var(x, axes, unbiased=False, keepdim=keep)),
    "zeros": lambda a, shape: torch.zeros(shape, dtype=dtype_of(a.dtype)),
    "zeros_like": lambda a, x: torch.zeros_like(x, dtype=a.result_dtype),
}  # fmt: skip


def _register(names: str, home: Any) -> None:
    for pair in names.split():
        ours, _, theirs = pair.partition("=")
        function = getattr(home, theirs or ours)
        OPERATORS[ours] = lambda a, *xs, function=function: function(*xs)


_register(_PLAIN, torch)
_register(_FUNCTIONAL, F)
