# SPDX-License-Identifier: Apache-2.0
"""Convolutions, pooling, padding, sampling."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from relaxvm import relax
from relaxvm.relax import op

from ..errors import UnsupportedProgram
from ..graph import Graph
from ..registry import aten_op

_AXES = {1: "W", 2: "HW", 3: "DHW"}


def each(value: Sequence[int] | int, rank: int) -> list[int]:
    values = [value] if isinstance(value, int) else list(value)
    return values * rank if len(values) == 1 else values


def with_batch(g: Graph, x: Any, rank: int, function: Callable[..., Any], **options: Any) -> Any:
    """`function` of `x` with an axis for the batch where there is none."""
    single = g.rank(x) == rank + 1
    if single:
        x = g.emit(op.expand_dims(x, [0]))
    result = function(x, **options)
    return op.squeeze(g.emit(result), [0]) if single else result


@aten_op("convolution.default")
def convolution(
    g: Graph,
    x: Any,
    weight: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> Any:
    rank = g.rank(x) - 2
    axes = _AXES[rank]
    pads = each(padding, rank) * 2
    options = dict(
        strides=each(stride, rank),
        padding=pads,
        dilation=each(dilation, rank),
        groups=groups,
        data_layout=f"NC{axes}",
        kernel_layout=f"{'IO' if transposed else 'OI'}{axes}",
        out_dtype=g.dtype(x),
    )
    if transposed:
        options["output_padding"] = each(output_padding, rank)
    function = getattr(op.nn, f"conv{rank}d{'_transpose' if transposed else ''}")
    result = function(x, weight, **options)
    if bias is None:
        return result
    row = g.emit(op.reshape(bias, [1, g.shape(bias)[0]] + [1] * rank))
    return op.add(g.emit(result), row)


# ---- pooling


def _avg_pool(rank: int) -> None:
    @aten_op(f"avg_pool{rank}d.default")
    def avg_pool(
        g: Graph,
        x: Any,
        kernel: Any,
        stride: Any = (),
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Any:
        if not g.is_float(x):
            real, rest = g.cast(x, "float64"), (ceil_mode, count_include_pad, divisor_override)
            return _whole(g, g.emit(avg_pool(g, real, kernel, stride, padding, *rest)), g.dtype(x))
        size, pads = each(kernel, rank), each(padding, rank)
        pool = getattr(op.nn, f"avg_pool{rank}d")
        options = dict(pool_size=size, strides=each(stride or size, rank))
        if divisor_override is not None and ceil_mode:
            # All of a window is there, so that a mean tells the sum.
            x = _padded(g, x, pads, [p + k for p, k in zip(pads, size)])
            return _divided(g, _first(g, with_batch(g, x, rank, pool, **options)), size, divisor_override)  # fmt: skip
        if count_include_pad and ceil_mode:
            # A window that reaches beyond the padding has the elements that are there.
            x = _padded(g, x, pads, pads)
            options |= dict(ceil_mode=True, count_include_pad=False)
            return _first(g, with_batch(g, x, rank, pool, **options))
        options |= dict(padding=pads * 2, ceil_mode=ceil_mode)
        options["count_include_pad"] = count_include_pad or divisor_override is not None
        result = with_batch(g, x, rank, pool, **options)
        return result if divisor_override is None else _divided(g, result, size, divisor_override)


def _whole(g: Graph, mean: Any, dtype: str) -> Any:
    """A mean of integers, towards 0; what is a whole number but for rounding is that."""
    nearest = g.emit(op.round(mean))
    off = g.emit(op.abs(g.emit(op.subtract(mean, nearest))))
    is_near = g.emit(op.less(off, g.const(1e-9, "float64")))
    return op.astype(g.emit(op.where(is_near, nearest, g.emit(op.trunc(mean)))), dtype)


def _padded(g: Graph, x: Any, before: list, after: list) -> Any:
    width = [0, 0] * (g.rank(x) - len(before)) + [v for pair in zip(before, after) for v in pair]
    return g.emit(op.nn.pad(x, width)) if any(width) else x


def _first(g: Graph, x: Any) -> Any:
    """As many windows as PyTorch finds."""
    shape = g.result_shape()
    zeros = [0] * len(shape)
    return op.strided_slice(g.emit(x), list(range(len(shape))), zeros, shape, assume_inbound=True)


def _divided(g: Graph, mean: Any, size: list, divisor: int) -> Any:
    mean = g.emit(mean)
    return op.multiply(mean, g.const(float(np.prod(size)) / divisor, g.dtype(mean)))


def max_pool_values(
    g: Graph,
    x: Any,
    rank: int,
    kernel: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
) -> Any:
    size = each(kernel, rank)
    options = dict(
        pool_size=size,
        strides=each(stride or size, rank),
        padding=each(padding, rank) * 2,
        dilation=each(dilation, rank),
        ceil_mode=ceil_mode,
    )
    return with_batch(g, x, rank, getattr(op.nn, f"max_pool{rank}d"), **options)


def _max_pool(rank: int) -> None:
    @aten_op(f"max_pool{rank}d_with_indices.default")
    def max_pool(
        g: Graph,
        x: Any,
        kernel: Any,
        stride: Any = (),
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
    ) -> tuple:
        result = max_pool_values(g, x, rank, kernel, stride, padding, dilation, ceil_mode)
        if not g.is_used(1):
            return result, None
        size = each(kernel, rank)
        strides, pads, steps = each(stride or size, rank), each(padding, rank), each(dilation, rank)  # fmt: skip
        return result, _places(g, x, size, strides, pads, steps)


def _places(g: Graph, x: Any, size: list, strides: list, pads: list, steps: list) -> Any:
    """Where the greatest value of each window lies in its plane: a window's places are looked at in order."""
    rank, shape = len(size), g.shape(x)
    spatial = shape[-rank:]
    out = [int(d) for d in g.symbols.shape(g.result[0].shape)[-rank:] if isinstance(d, int)]
    if len(out) != rank or not all(isinstance(d, int) for d in spatial):
        raise UnsupportedProgram("the places of the greatest values, of sizes that are not known")
    lead = g.rank(x) - rank
    after = [
        max(0, (o - 1) * s + (k - 1) * d + 1 - p - n)
        for o, s, k, d, p, n in zip(out, strides, size, steps, pads, spatial)
    ]
    width = [0, 0] * lead + [v for pair in zip(pads, after) for v in pair]
    lowest = float("-inf") if g.is_float(x) else int(np.iinfo(g.dtype(x)).min)
    padded = g.emit(op.nn.pad(x, width, pad_value=lowest))
    plane = np.arange(int(np.prod(spatial))).reshape(spatial)
    plane = np.pad(plane, [(p, a) for p, a in zip(pads, after)])
    axes = list(range(lead, lead + rank))
    found = []
    for offset in itertools.product(*(range(k) for k in size)):
        begin = [o * d for o, d in zip(offset, steps)]
        end = [b + (n - 1) * s + 1 for b, n, s in zip(begin, out, strides)]
        value = g.emit(op.strided_slice(padded, axes, begin, end, strides))
        index = plane[tuple(slice(b, e, s) for b, e, s in zip(begin, end, strides))]
        found.append((value, index))
    return _first_greatest(g, found)[1]


def _first_greatest(g: Graph, found: list[tuple[Any, np.ndarray]]) -> tuple[Any, Any]:
    """The greatest of several values, and the number that belongs to it: the first of equal ones, the last NaN."""
    best, first = found[0]
    place = g.broadcast(g.const(first, "int64"), g.shape(best))
    for value, number in found[1:]:
        better = g.emit(op.greater(value, best))
        if g.is_float(value):
            better = g.emit(op.logical_or(better, g.emit(op.isnan(value))))
        best = g.emit(op.where(better, value, best))
        place = g.emit(op.where(better, g.const(number, "int64"), place))
    return best, place


def _adaptive_pool(rank: int) -> None:
    names = [f"adaptive_avg_pool{rank}d.default", f"_adaptive_avg_pool{rank}d.default"]

    @aten_op(*(names if rank > 1 else names[:1]))
    def average(g: Graph, x: Any, size: Any) -> Any:
        function, sizes = getattr(op.nn, f"adaptive_avg_pool{rank}d"), each(size, rank)
        if not all(s is None or isinstance(s, int) for s in sizes):
            raise UnsupportedProgram("a number of adaptive windows that is not known")
        return with_batch(g, x, rank, function, output_size=sizes)

    if rank == 1:
        return

    @aten_op(f"adaptive_max_pool{rank}d.default")
    def greatest(g: Graph, x: Any, size: Any) -> tuple:
        counts, shape = each(size, rank), g.shape(x)
        extents = shape[-rank:]
        counts = [e if c is None else c for c, e in zip(counts, extents)]
        if g.is_used(1):
            return _adaptive_places(g, x, counts)
        for i, (count, extent) in enumerate(zip(counts, extents)):
            axis = g.rank(x) - rank + i
            if count == 1:
                x = g.emit(op.max(x, [axis], keepdims=True))
                continue
            if not isinstance(count, int):
                raise UnsupportedProgram("a number of adaptive windows that is not known")
            parts = []
            for k in range(count):
                begin, end = k * extent // count, ((k + 1) * extent + count - 1) // count
                cut = op.strided_slice(x, [axis], [begin], [end], [1], assume_inbound=True)
                parts.append(g.emit(op.max(g.emit(cut), [axis], keepdims=True)))
            x = g.emit(op.concat(parts, axis))
        return x, None


def _adaptive_places(g: Graph, x: Any, counts: list) -> tuple[Any, Any]:
    """The greatest values of adaptive windows, and where they lie in their plane."""
    rank, shape = len(counts), g.shape(x)
    extents = shape[-rank:]
    if not all(isinstance(d, int) for d in [*extents, *counts]):
        raise UnsupportedProgram("the places of the greatest values, of sizes that are not known")
    rows = []  # of each axis: for each offset where the windows are; short ones stay at their end
    for count, extent in zip(counts, extents):
        begin = np.arange(count) * extent // count
        end = -(-(np.arange(count) + 1) * extent // count)
        rows.append([np.minimum(begin + k, end - 1) for k in range((end - begin).max())])
    plane, found = np.arange(int(np.prod(extents))).reshape(extents), []
    for picks in itertools.product(*rows):
        value = x
        for i, pick in enumerate(picks):
            value = g.emit(op.take(value, g.const(pick, "int64"), axis=g.rank(x) - rank + i))
        found.append((value, plane[np.ix_(*picks)]))
    return _first_greatest(g, found)


for _rank in (1, 2, 3):
    _avg_pool(_rank)
    _adaptive_pool(_rank)
    if _rank > 1:
        _max_pool(_rank)


# ---- padding


@aten_op("constant_pad_nd.default")
def constant_pad(g: Graph, x: Any, pad: Sequence[int], value: float = 0.0) -> Any:
    """`pad` counts from the last axis on; what is negative is cut off."""
    before, after = _by_axis(g, x, pad)
    if not all(isinstance(v, int) for v in before + after):
        return op.rvm.pad(x, before, after, g.const(value, g.dtype(x)))
    width = [v for pair in zip(before, after) for v in pair]
    return op.nn.pad(x, width, pad_value=value) if any(width) else x


def _by_axis(g: Graph, x: Any, pad: Sequence[int]) -> tuple[list, list]:
    missing = [0] * (g.rank(x) - len(pad) // 2)
    return missing + list(pad[0::2])[::-1], missing + list(pad[1::2])[::-1]


def _negative(value: Any) -> bool:
    return isinstance(value, int) and value < 0


def bordered(g: Graph, x: Any, padding: Sequence[int], mode: str) -> Any:
    """Padding by what stands at the border, or at the other end."""
    before, after = _by_axis(g, x, padding)
    if any(_negative(v) for v in before + after):
        raise UnsupportedProgram("negative padding that reads the border")
    width = [v for pair in zip(before, after) for v in pair]
    return op.nn.pad(x, width, mode)


def _mirror(name: str, mode: str) -> None:
    @aten_op(*(f"{name}{rank}d.default" for rank in (1, 2, 3)))
    def pad(g: Graph, x: Any, padding: Sequence[int]) -> Any:
        return bordered(g, x, padding, mode)


_mirror("reflection_pad", "reflect")
_mirror("replication_pad", "replicate")


# ---- sampling

_METHODS = {0: "bilinear", 1: "nearest", 2: "bicubic"}
_PADDING = {0: "zeros", 1: "border", 2: "reflection"}


@aten_op("grid_sampler_2d.default", "grid_sampler_3d.default", "grid_sampler.default")
def grid_sampler(g: Graph, x: Any, grid: Any, method: int, padding: int, aligned: bool) -> Any:
    rank = g.rank(x)
    places = g.emit(op.permute_dims(grid, [0, rank - 1, *range(1, rank - 1)]))
    layout = "NCHW" if rank == 4 else "NCDHW"
    return op.image.grid_sample(x, places, _METHODS[method], layout, _PADDING[padding], aligned)


@aten_op("torchvision::roi_align.default")
def roi_align(
    g: Graph,
    x: Any,
    rois: Any,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
    aligned: bool,
) -> Any:
    size = [pooled_height, pooled_width]
    return op.vision.roi_align(x, rois, size, spatial_scale, sampling_ratio, aligned)


@aten_op("torchvision::roi_pool.default")
def roi_pool(
    g: Graph, x: Any, rois: Any, spatial_scale: float, pooled_height: int, pooled_width: int
) -> tuple:
    return op.vision.roi_pool(x, rois, [pooled_height, pooled_width], spatial_scale), None


@aten_op("torchvision::nms.default")
def nms(g: Graph, boxes: Any, scores: Any, iou_threshold: float) -> Any:
    """The boxes that no better one covers, best first."""
    count = g.shape(boxes)[0]
    args = [
        g.emit(op.expand_dims(boxes, [0])),
        g.emit(op.expand_dims(scores, [0, 1])),
        g.number(count, "int64"),
        g.const(iou_threshold, "float32"),
        relax.prim_value(0),
    ]
    kind = relax.TensorType(None, "int64", ndim=2)
    found = g.emit(op.call_pure_packed("relax.run.non_max_suppression", *args, ty_args=[kind]))
    size = g.symbols.variable(g.result.shape[0].node.expr.name)
    found = g.builder.match_cast(found, relax.TensorType([size, 3], "int64"))
    column = g.emit(op.strided_slice(found, [1], [2], [3], [1]))
    return op.reshape(column, [size])
