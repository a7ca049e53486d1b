# SPDX-License-Identifier: Apache-2.0
"""NumPy forms of operators that take more than an expression: what `reference` texts of the records may call.  Plain and
slow; independent of the compute rules (convolutions by windows, scatters by loops)."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from ops_references_boxes import (  # noqa: F401
    class_boxes,
    get_valid_counts,
    multibox_transform_loc,
    non_max_suppression,
)
from ops_references_grad import nll_loss_backward, pool_backward, take_backward  # noqa: F401
from ops_references_quantized import quantized_lstm  # noqa: F401

Array = np.ndarray
Ints = Sequence[int]


def trunc_divide(a: Array, b: Array) -> Array:
    """Integer quotient towards zero; 0 where b is 0."""
    a, b = np.broadcast_arrays(a, b)
    safe = np.where(b == 0, np.ones_like(b), b)
    quotient = np.floor_divide(a, safe)
    inexact = (np.remainder(a, safe) != 0) & ((a < 0) != (safe < 0))
    return np.where(b == 0, np.zeros_like(a), quotient + inexact.astype(a.dtype)).astype(a.dtype)


def count(x: Array, axis: Ints | None) -> int:
    return int(np.prod([x.shape[a] for a in (range(x.ndim) if axis is None else axis)], initial=1))


def scan(f: Callable[..., Array], x: Array, axis: int | None, dtype: Any, exclusive: bool) -> Array:
    dtype = dtype or x.dtype
    if axis is None:
        x, axis = x.reshape(-1), 0
    x = x.astype(dtype)
    if exclusive:
        identity = 0 if f is np.cumsum else 1
        first = np.full_like(np.take(x, [0] if x.shape[axis] else [], axis), identity)
        x = np.concatenate([first, np.delete(x, -1, axis) if x.shape[axis] else x], axis)
    return f(x, axis=axis, dtype=dtype)


def split(x: Array, parts: int | Ints, axis: int) -> tuple[Array, ...]:
    n = x.shape[axis]
    if isinstance(parts, int):
        step = -(-n // parts)
        points = [step * k for k in range(1, parts)]
    else:
        points = list(parts)
    bounds = [0, *[min(p, n) for p in points], n]
    take = [slice(None)] * x.ndim
    result = []
    for begin, end in itertools.pairwise(bounds):
        take[axis] = slice(begin, max(begin, end))
        result.append(x[tuple(take)])
    return tuple(result)


def reverse_sequence(x: Array, lengths: Array, seq_axis: int, batch_axis: int) -> Array:
    moved = np.moveaxis(x, (batch_axis, seq_axis), (0, 1)).copy()
    for b, n in enumerate(lengths):
        moved[b, :n] = moved[b, :n][::-1]
    return np.moveaxis(moved, (0, 1), (batch_axis, seq_axis))


def strided_slice(x: Array, axes: Ints, begin: Ints, end: Ints, strides: Ints | None) -> Array:
    take = [slice(None)] * x.ndim
    for axis, b, e, s in zip(axes, begin, end, strides or [1] * len(axes), strict=True):
        take[axis] = slice(b, e, s)
    return x[tuple(take)]


def slice_scatter(x: Array, src: Array, start: int, end: int, step: int | None, axis: int) -> Array:
    out = x.copy()
    take = [slice(None)] * x.ndim
    take[axis] = slice(start, end, step)
    out[tuple(take)] = src
    return out


# ---- layouts: everything is computed channels first


def _axes(layout: str) -> tuple[str, dict[str, int]]:
    """NCHW16c -> ("NCHWc", {"c": 16})"""
    blocks = {letter: int(size) for size, letter in re.findall(r"(\d+)([a-z])", layout)}
    return re.sub(r"\d", "", layout), blocks


def _to(x: Array, layout: str, order: str) -> Array:
    """Channel C * 16 + c of the one is that of the other."""
    have, _ = _axes(layout)
    want, blocks = _axes(order)
    plain = [c for c in have if c.isupper()]
    split = [c for outer in plain for c in (outer, outer.lower()) if c in have]
    x = np.transpose(x, [have.index(c) for c in split])
    sizes = dict(zip(split, x.shape))
    x = x.reshape([sizes[c] * sizes.get(c.lower(), 1) for c in plain])
    joined = []
    for outer, size in zip(plain, x.shape):
        block = blocks.get(outer.lower())
        joined += (
            [(outer, size)] if block is None else [(outer, size // block), (outer.lower(), block)]
        )
    x = x.reshape([size for _, size in joined])
    letters = [c for c, _ in joined]
    return np.transpose(x, [letters.index(c) for c in want])


def _spatial(layout: str) -> str:
    return "".join(c for c in "DHW" if c in layout)


def _pad_spatial(x: Array, padding: Ints, value: Any, extra: Ints | None = None) -> Array:
    n = x.ndim - 2
    widths = [(0, 0), (0, 0)]
    widths += [(padding[s], padding[n + s] + (extra[s] if extra else 0)) for s in range(n)]
    return np.pad(x, widths, constant_values=value)


def conv(
    x: Array, w: Array, strides: Ints, padding: Ints, dilation: Ints, groups: int,
    data_layout: str, kernel_layout: str, out_layout: str, out_dtype: Any,
) -> Array:  # fmt: skip
    spatial = _spatial(data_layout)
    x, w = _to(x, data_layout, "NC" + spatial), _to(w, kernel_layout, "OI" + spatial)
    x = x.astype(out_dtype or x.dtype)
    x = _pad_spatial(x, padding, 0)
    n = len(spatial)
    out = [
        (x.shape[2 + s] - dilation[s] * (w.shape[2 + s] - 1) - 1) // strides[s] + 1
        for s in range(n)
    ]
    if min(out) < 0:
        raise ValueError("the kernel is larger than data")
    inputs, filters = w.shape[1], w.shape[0] // groups
    result = np.zeros((x.shape[0], w.shape[0], *out), x.dtype)
    for g in range(groups):
        xs = x[:, g * inputs : (g + 1) * inputs]
        ws = w[g * filters : (g + 1) * filters]
        for tap in itertools.product(*[range(k) for k in w.shape[2:]]):
            window = tuple(
                slice(t * d, t * d + s * (o - 1) + 1 if o else t * d, s)
                for t, d, s, o in zip(tap, dilation, strides, out, strict=True)
            )
            part = np.einsum("nc...,oc->no...", xs[(..., *window)], ws[(..., *tap)])
            result[:, g * filters : (g + 1) * filters] += part
    return _to(result, "NC" + spatial, out_layout)


def conv_transpose(
    x: Array, w: Array, strides: Ints, padding: Ints, output_padding: Ints, dilation: Ints,
    groups: int, data_layout: str, kernel_layout: str, out_layout: str,
) -> Array:  # fmt: skip
    spatial = _spatial(data_layout)
    x, w = _to(x, data_layout, "NC" + spatial), _to(w, kernel_layout, "IO" + spatial)
    n = len(spatial)
    full = [(x.shape[2 + s] - 1) * strides[s] + dilation[s] * (w.shape[2 + s] - 1) + 1 + output_padding[s]
            for s in range(n)]  # fmt: skip
    if min(full) - max(padding) * 2 < 0 or 0 in x.shape:
        raise ValueError("nothing is left")
    inputs, filters = x.shape[1] // groups, w.shape[1]
    result = np.zeros((x.shape[0], filters * groups, *full), x.dtype)
    for g in range(groups):
        xs = x[:, g * inputs : (g + 1) * inputs]
        ws = w[g * inputs : (g + 1) * inputs]
        for tap in itertools.product(*[range(k) for k in w.shape[2:]]):
            window = tuple(
                slice(t * d, t * d + s * (i - 1) + 1, s)
                for t, d, s, i in zip(tap, dilation, strides, x.shape[2:], strict=True)
            )
            part = np.einsum("nc...,co->no...", xs, ws[(..., *tap)])
            result[(slice(None), slice(g * filters, (g + 1) * filters), *window)] += part
    cut = tuple(slice(padding[s], full[s] - padding[n + s]) for s in range(n))
    return _to(result[(..., *cut)], "NC" + spatial, out_layout)


def _windows(x: Array, size: Ints, strides: Ints, dilation: Ints, out: Ints) -> Array:
    """[taps, N, C, out...]"""
    taps = []
    for tap in itertools.product(*[range(k) for k in size]):
        window = tuple(
            slice(t * d, t * d + s * (o - 1) + 1 if o else t * d, s)
            for t, d, s, o in zip(tap, dilation, strides, out, strict=True)
        )
        taps.append(x[(..., *window)])
    return np.stack(taps)


def _pool_extents(
    x: Array, size: Ints, strides: Ints, padding: Ints, dilation: Ints, ceil: bool
) -> list[int]:
    n = len(size)
    room = [
        x.shape[2 + s] + padding[s] + padding[n + s] - dilation[s] * (size[s] - 1) - 1
        for s in range(n)
    ]
    if min(room) < -1:
        raise ValueError("the window is larger than data")
    return [(r + (st - 1 if ceil else 0)) // st + 1 for r, st in zip(room, strides, strict=True)]


def max_pool(
    x: Array, size: Ints, strides: Ints, padding: Ints, dilation: Ints, ceil: bool, layout: str,
    out_layout: str,
) -> Array:  # fmt: skip
    order = "NC" + _spatial(layout)
    x = _to(x, layout, order)
    out = _pool_extents(x, size, strides, padding, dilation, ceil)
    least = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    padded = _pad_spatial(x, padding, least, [s - 1 for s in strides] if ceil else None)
    return _to(_windows(padded, size, strides, dilation, out).max(0), order, out_layout)


def avg_pool(
    x: Array, size: Ints, strides: Ints, padding: Ints, dilation: Ints, ceil: bool,
    include_pad: bool, layout: str, out_layout: str,
) -> Array:  # fmt: skip
    order = "NC" + _spatial(layout)
    x = _to(x, layout, order)
    out = _pool_extents(x, size, strides, padding, dilation, ceil)
    extra = [s - 1 for s in strides] if ceil else None
    total = _windows(_pad_spatial(x, padding, 0, extra), size, strides, dilation, out).sum(
        0, dtype=x.dtype
    )
    ones = _windows(
        _pad_spatial(np.ones_like(x), padding, 0, extra), size, strides, dilation, out
    ).sum(0, dtype=x.dtype)
    number = np.full_like(ones, np.prod(size)) if include_pad else np.maximum(ones, 1)
    result = total / number if x.dtype.kind == "f" else trunc_divide(total, number)
    return _to(result, order, out_layout)


def adaptive_avg_pool(x: Array, output_size: Ints | None, layout: str, out_layout: str) -> Array:
    order = "NC" + _spatial(layout)
    x = _to(x, layout, order)
    dtype, count = x.dtype, np.ones([1] * x.ndim, "int64")
    x = x.astype({"i": "int64", "u": "uint64"}.get(dtype.kind, dtype))
    for s, n in enumerate(output_size or x.shape[2:]):
        extent = x.shape[2 + s]
        if extent == 0:
            raise ValueError("windows without elements")
        ranges = [range(o * extent // n, -(-(o + 1) * extent // n)) for o in range(n)]
        x = np.stack([x.take(r, 2 + s).sum(2 + s, dtype=x.dtype) for r in ranges], 2 + s)
        shape = [n if d == 2 + s else 1 for d in range(x.ndim)]
        count = count * np.array([len(r) for r in ranges]).reshape(shape)
    x = trunc_divide(x, count) if dtype.kind in "iu" else x / count
    return _to(x.astype(dtype), order, out_layout)


# ---- normalisation


def _along(v: Array, axis: int, ndim: int) -> Array:
    return v.reshape([-1 if d == axis % ndim else 1 for d in range(ndim)])


def batch_norm(
    x: Array, gamma: Array, beta: Array, mean: Array, var: Array, axis: int, epsilon: float,
    center: bool, scale: bool, momentum: float, training: bool,
) -> tuple[Array, Array, Array]:  # fmt: skip
    use_mean, use_var = mean, var
    new_mean, new_var = mean, var
    if training:
        others = tuple(d for d in range(x.ndim) if d != axis % x.ndim)
        use_mean, use_var = x.mean(others), x.var(others)
        new_mean = mean * (1 - momentum) + use_mean * momentum
        new_var = var * (1 - momentum) + use_var * momentum
    y = (x - _along(use_mean, axis, x.ndim)) / np.sqrt(_along(use_var, axis, x.ndim) + epsilon)
    if scale:
        y = y * _along(gamma, axis, x.ndim)
    if center:
        y = y + _along(beta, axis, x.ndim)
    return y, new_mean, new_var


def _normalise(x: Array, axes: tuple[int, ...], epsilon: float) -> Array:
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + epsilon)


def _weights(w: Array, axes: Ints, ndim: int) -> Array:
    order = np.argsort([a % ndim for a in axes])
    shape = [1] * ndim
    for k, a in enumerate(axes):
        shape[a % ndim] = w.shape[k]
    return np.transpose(w, order).reshape(shape)


def layer_norm(
    x: Array, gamma: Array, beta: Array, axes: Ints, epsilon: float, center: bool, scale: bool
) -> Array:
    y = _normalise(x, tuple(axes), epsilon)
    if scale:
        y = y * _weights(gamma, axes, x.ndim)
    return y + _weights(beta, axes, x.ndim) if center else y


def rms_norm(x: Array, weight: Array, axes: Ints, epsilon: float) -> Array:
    scale = np.sqrt((x * x).mean(tuple(axes), keepdims=True) + epsilon)
    return x / scale * _weights(weight, axes, x.ndim)


def instance_norm(
    x: Array, gamma: Array, beta: Array, channel_axis: int, axes: Ints, epsilon: float, center: bool,
    scale: bool,
) -> Array:  # fmt: skip
    y = _normalise(x, tuple(axes), epsilon)
    if scale:
        y = y * _along(gamma, channel_axis, x.ndim)
    return y + _along(beta, channel_axis, x.ndim) if center else y


def group_norm(
    x: Array, gamma: Array, beta: Array, num_groups: int, channel_axis: int, axes: Ints,
    epsilon: float, center: bool, scale: bool,
) -> Array:  # fmt: skip
    c = channel_axis % x.ndim
    apart = x.reshape(*x.shape[:c], num_groups, x.shape[c] // num_groups, *x.shape[c + 1 :])
    own = tuple(a % x.ndim for a in axes)
    over = (c + 1, *[a if a < c else a + 1 for a in own])
    y = _normalise(apart, over, epsilon).reshape(x.shape)
    if scale:
        y = y * _along(gamma, c, x.ndim)
    return y + _along(beta, c, x.ndim) if center else y


# ---- the rest of nn


def pad(x: Array, width: Ints, value: float, mode: str) -> Array:
    pairs = [(width[2 * d], width[2 * d + 1]) for d in range(x.ndim)]
    if any(n + b + a < 0 for (b, a), n in zip(pairs, x.shape, strict=True)):
        raise ValueError("more is cut off than there is")
    cut = tuple(slice(max(-b, 0), n - max(-a, 0)) for (b, a), n in zip(pairs, x.shape, strict=True))
    grown = [(max(b, 0), max(a, 0)) for b, a in pairs]
    if mode == "constant":
        return np.pad(x[cut], grown, constant_values=value)
    names = {"reflect": "reflect", "edge": "edge", "replicate": "edge", "circular": "wrap"}
    if mode == "reflect" and any(max(p) >= n > 0 for p, n in zip(grown, x.shape, strict=True)):
        raise ValueError("too few elements to reflect")
    if mode == "circular" and any(max(p) > n for p, n in zip(grown, x.shape, strict=True)):
        raise ValueError("too few elements to go round")
    return np.pad(x[cut], grown, mode=names[mode])  # type: ignore[call-overload]


def pixel_shuffle(x: Array, r: int) -> Array:
    *lead, c, h, w = x.shape
    y = x.reshape(*lead, c // (r * r), r, r, h, w)
    n = len(lead)
    y = np.transpose(y, [*range(n), n, n + 3, n + 1, n + 4, n + 2])
    return y.reshape(*lead, c // (r * r), h * r, w * r)


def nll_loss(p: Array, t: Array, w: Array | None, reduction: str, ignore: int) -> Array:
    w = np.ones(p.shape[0 if p.ndim == 1 else 1], p.dtype) if w is None else w
    if p.ndim == 1:
        p, t = p[None], np.asarray(t)[None]
        squeezed = True
    else:
        squeezed = False
    weight = np.where(t == ignore, 0, w[np.where(t == ignore, 0, t)])
    safe = np.where(t == ignore, 0, t)
    loss = -weight * np.take_along_axis(p, safe[:, None], 1)[:, 0]
    if reduction == "none":
        return loss[0] if squeezed else loss
    return loss.sum() if reduction == "sum" else loss.sum() / weight.sum()


def attention(
    q: Array, k: Array, v: Array, bias: Array | None, scale: float | None, mask: str | None,
    window: int | None, softcap: float | None,
) -> Array:  # fmt: skip
    repeat = q.shape[2] // k.shape[2]
    k, v = np.repeat(k, repeat, 2), np.repeat(v, repeat, 2)
    scores = np.einsum("bshd,bthd->bhst", q, k) * (q.shape[3] ** -0.5 if scale is None else scale)
    if softcap is not None:
        scores = softcap * np.tanh(scores / softcap)
    if bias is not None:
        scores = scores + bias
    if mask:
        queries, keys = np.arange(q.shape[1])[:, None], np.arange(k.shape[1])[None]
        last = queries if mask == "TopLeft" else queries + k.shape[1] - q.shape[1]
        seen = keys <= last
        if window is not None:
            seen = seen & (keys > last - window)
        scores = np.where(seen, scores, -np.inf)
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("bhst,bthe->bshe", e / e.sum(-1, keepdims=True), v)


# ---- indices


def gather_nd(x: Array, indices: Array, batch_dims: int) -> Array:
    if batch_dims == 0:
        return x[tuple(np.moveaxis(indices, -1, 0))]
    parts = [gather_nd(a, i, batch_dims - 1) for a, i in zip(x, indices, strict=True)]
    return np.stack(parts)


def one_hot(indices: Array, on: Any, off: Any, depth: int, axis: int) -> Array:
    hot = np.expand_dims(indices, axis) == _along(np.arange(depth), axis, indices.ndim + 1)
    return np.where(hot, on, off)


_COMBINE: dict[str, Callable[[Any, Any], Any]] = {
    "update": lambda old, new: new,
    "add": lambda old, new: old + new,
    "mul": lambda old, new: old * new,
    "mean": lambda old, new: (old + new) / 2,
    "max": max,
    "min": min,
}


def scatter_elements(x: Array, indices: Array, updates: Array, axis: int, reduction: str) -> Array:
    out = x.copy()
    for place in np.ndindex(*indices.shape):
        to = list(place)
        to[axis] = indices[place]
        out[tuple(to)] = _COMBINE[reduction](out[tuple(to)], updates[place])
    return out


def scatter_nd(x: Array, indices: Array, updates: Array, reduction: str) -> Array:
    out = x.copy()
    for place in np.ndindex(*indices.shape[:-1]):
        to = tuple(indices[place])
        if reduction in ("max", "min"):
            f = np.maximum if reduction == "max" else np.minimum
            out[to] = f(out[to], updates[place])
        else:
            out[to] = _COMBINE[reduction](out[to], updates[place])
    return out


def index_put(x: Array, indices: Sequence[Array], values: Array, accumulate: bool) -> Array:
    out = x.copy()
    if accumulate:
        np.add.at(out, tuple(indices), values)
    else:
        out[tuple(indices)] = values
    return out


def argsort(x: Array, axis: int, descending: bool) -> Array:
    if not descending:
        return np.argsort(x, axis, kind="stable")
    flipped = np.argsort(np.flip(x, axis), axis, kind="stable")
    return np.flip(x.shape[axis] - 1 - flipped, axis)


def topk(x: Array, k: int, axis: int, ret_type: str, largest: bool) -> Any:
    order = argsort(x, axis, largest)
    if k > 0:
        order = np.take(order, range(min(k, x.shape[axis])), axis)
    values = np.take_along_axis(x, order, axis)
    missing = max(k - x.shape[axis], 0)  # an axis that turns out to be shorter
    widths = [(0, missing if d == axis % x.ndim else 0) for d in range(x.ndim)]
    values, order = np.pad(values, widths), np.pad(order, widths, constant_values=-1)
    return {"both": (values, order), "values": values, "indices": order}[ret_type]


def collapse_sum(x: Array, shape: Ints) -> Array:
    x = x.sum(tuple(range(x.ndim - len(shape))), dtype=x.dtype)
    axes = tuple(d for d, n in enumerate(shape) if n == 1 and x.shape[d] != 1)
    return x.sum(axes, keepdims=True, dtype=x.dtype)


# ---- quantisation


def _of_axis(v: Array, x: Array, axis: int) -> Array:
    return _along(v, axis, x.ndim) if v.ndim == 1 else v


def quantize(x: Array, scale: Array, zero: Array, out_dtype: Any, axis: int) -> Array:
    # In float32, as the operator defines it: halves must fall where they do there.
    x, scale = x.astype("float32"), scale.astype("float32")
    scaled = np.round(x / _of_axis(scale, x, axis)) + _of_axis(zero, x, axis).astype("float32")
    limits = np.iinfo(out_dtype)
    return np.clip(scaled, limits.min, limits.max).astype(out_dtype)


def dequantize(x: Array, scale: Array, zero: Array, out_dtype: Any, axis: int) -> Array:
    distance = x.astype("float64") - _of_axis(zero, x, axis).astype("float64")
    return distance * _of_axis(scale, x, axis).astype("float64")


# ---- images


def _position(mode: str, i: Array, have: int, want: int, begin: float, end: float) -> Array:
    if mode == "half_pixel":
        return (i + 0.5) * have / want - 0.5
    if mode == "pytorch_half_pixel":
        return (i + 0.5) * have / want - 0.5 if want > 1 else np.zeros_like(i)
    if mode == "tf_half_pixel_for_nn":
        return (i + 0.5) * have / want
    if mode == "asymmetric":
        return i * have / want
    if mode == "align_corners":
        return i * (have - 1) / max(want - 1, 1)
    if want == 1:
        return np.full_like(i, 0.5 * (begin + end) * (have - 1))
    return begin * (have - 1) + i * (end - begin) * (have - 1) / (want - 1)


def _nearest(at: Array, rounding: str, mode: str) -> Array:
    rounding = rounding or ("round" if mode == "align_corners" else "floor")
    at = at.astype(np.float32)  # ties are ties of the operator's own precision
    rules: dict[str, Callable[[Array], Array]] = {
        "round": np.round,
        "floor": np.floor,
        "ceil": np.ceil,
        "round_prefer_floor": lambda v: np.ceil(v - np.float32(0.5)),
        "round_prefer_ceil": lambda v: np.floor(v + np.float32(0.5)),
    }
    return rules[rounding](at)


def _taps(
    method: str, at: Array, have: int, rounding: str, mode: str, a: float, exclude: int
) -> Array:
    """[positions, have]: the weight of every element."""
    weights = np.zeros((len(at), have))
    rows = np.arange(len(at))
    if method == "nearest_neighbor":
        weights[rows, np.clip(_nearest(at, rounding, mode), 0, have - 1).astype(int)] = 1
        return weights
    base = np.floor(at)
    t = at - base
    if method == "linear":
        for offset, w in ((0, 1 - t), (1, t)):
            np.add.at(weights, (rows, np.clip(base + offset, 0, have - 1).astype(int)), w)
        return weights
    total = np.zeros(len(at))
    for offset in range(-1, 3):
        d = np.abs(t - offset)
        near = (a + 2) * d**3 - (a + 3) * d**2 + 1
        far = a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a
        w = np.where(d <= 1, near, far)
        index = base + offset
        if exclude:
            w = np.where((index >= 0) & (index < have), w, 0)
            total += w
        np.add.at(weights, (rows, np.clip(index, 0, have - 1).astype(int)), w)
    return weights / total[:, None] if exclude else weights


def resize(
    x: Array, size: Ints, roi: Sequence[float], layout: str, method: str, mode: str, rounding: str,
    alpha: float, exclude: int, extrapolation: float, out_dtype: Any,
) -> Array:  # fmt: skip
    spatial = _spatial(layout)
    order = "NC" + spatial
    y = _to(x, layout, order).astype(np.float64)
    outside = np.zeros(list(size), bool)
    for s, want in enumerate(size):
        have = x.shape[layout.index(spatial[s])]
        if have == 0:
            raise ValueError("nothing to resize")
        roi_s = (roi[s], roi[len(spatial) + s])
        at = _position(mode, np.arange(want, dtype=np.float64), have, want, *roi_s)
        beyond = (at < 0) | (at > have - 1)
        outside |= beyond.reshape([-1 if d == s else 1 for d in range(len(spatial))])
        weights = _taps(method, at, have, rounding, mode, alpha, exclude)
        y = np.moveaxis(np.tensordot(y, weights, ([2 + s], [1])), -1, 2 + s)
    if mode == "tf_crop_and_resize":
        y = np.where(outside, extrapolation, y)
    if x.dtype.kind in "iu":
        y = np.round(y)
    return _to(y, order, layout)


def hamming_window(
    size: int, periodic: bool = True, alpha: float = 0.54, beta: float = 0.46
) -> Array:
    if size == 1:
        return np.ones(1)
    return alpha - beta * np.cos(2 * np.pi * np.arange(size) / (size if periodic else size - 1))


# ---- recurrent layers, one row, one step and one unit block after the other


def _activation(name: str, a: float | None, b: float | None) -> Callable[[Array], Array]:
    pick = lambda value, default: default if value is None else value
    table: dict[str, Callable[[Array], Array]] = {
        "Relu": lambda x: np.maximum(x, 0),
        "Tanh": np.tanh,
        "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
        "Affine": lambda x: pick(a, 1.0) * x + pick(b, 0.0),
        "LeakyRelu": lambda x: np.where(x < 0, pick(a, 0.01) * x, x),
        "ThresholdedRelu": lambda x: np.where(x > pick(a, 1.0), x, 0),
        "ScaledTanh": lambda x: pick(a, 1.0) * np.tanh(pick(b, 1.0) * x),
        "HardSigmoid": lambda x: np.clip(pick(a, 0.2) * x + pick(b, 0.5), 0, 1),
        "Elu": lambda x: np.where(x < 0, pick(a, 1.0) * np.expm1(x), x),
        "Softsign": lambda x: x / (1 + np.abs(x)),
        "Softplus": lambda x: np.logaddexp(0, x),
    }
    return table[name]


def _recurrent(x: Array, r: Array, states: Sequence[Array], lengths: Array | None, activations: str, alpha: Sequence[float],  # fmt: skip
    beta: Sequence[float], clip: float, direction: str, cell: Callable[..., tuple[Array, ...]]) -> tuple[Array, ...]:  # fmt: skip
    names = activations.split()
    at = lambda values, i: values[i] if i < len(values) else None
    functions = [_activation(n, at(alpha, i), at(beta, i)) for i, n in enumerate(names)]
    steps, batch, directions, blocks, gates, width = x.shape
    hidden = r.shape[2]
    bound = (lambda v: np.clip(v, -clip, clip)) if clip > 0 else (lambda v: v)
    y = np.zeros((steps, directions, batch, hidden))
    last = [s.copy() for s in states]
    for d in range(directions):
        weights = r[d].transpose(2, 1, 0, 3).reshape(gates, hidden, blocks * width)[:, :, :hidden]
        inputs = x[:, :, d].transpose(3, 0, 1, 2, 4).reshape(gates, steps, batch, blocks * width)
        backwards = direction == "reverse" or (direction == "bidirectional" and d == 1)
        for b in range(batch):
            n = steps if lengths is None else min(int(lengths[b]), steps)
            now = tuple(s[d, b] for s in states)
            for t in reversed(range(n)) if backwards else range(n):
                now = cell(inputs[:, t, b, :hidden], weights, now, functions, bound, d)
                y[t, d, b] = now[0]
            for s, value in zip(last, now, strict=True):
                s[d, b] = value
    return (y, *last)


def lstm(x: Array, r: Array, h: Array, c: Array, lengths: Array | None, peepholes: Array | None, activations: str,  # fmt: skip
    alpha: Sequence[float], beta: Sequence[float], clip: float, direction: str, input_forget: bool) -> tuple[Array, ...]:  # fmt: skip
    hidden = r.shape[2]

    def cell(xs: Array, w: Array, now: Any, f: Any, bound: Any, d: int) -> tuple[Array, ...]:
        old_h, old_c = now
        pre = [xs[g] + old_h @ w[g] for g in range(4)]
        p = np.zeros((3, hidden))
        if peepholes is not None:
            p = peepholes[d].transpose(1, 0, 2).reshape(3, -1)[:, :hidden]
        i = f[0](bound(pre[0] + p[0] * old_c))
        forget = 1 - i if input_forget else f[0](bound(pre[2] + p[2] * old_c))
        new_c = forget * old_c + i * f[1](bound(pre[3]))
        o = f[0](bound(pre[1] + p[1] * new_c))
        return o * f[2](new_c), new_c

    return _recurrent(x, r, [h, c], lengths, activations, alpha, beta, clip, direction, cell)


def gru(x: Array, r: Array, h: Array, bias: Array, lengths: Array | None, activations: str, alpha: Sequence[float],  # fmt: skip
    beta: Sequence[float], clip: float, direction: str, linear_before_reset: bool) -> tuple[Array, ...]:  # fmt: skip
    hidden = r.shape[2]

    def cell(xs: Array, w: Array, now: Any, f: Any, bound: Any, d: int) -> tuple[Array, ...]:
        (old,) = now
        z, reset = f[0](bound(xs[0] + old @ w[0])), f[0](bound(xs[1] + old @ w[1]))
        extra = bias[d].reshape(-1)[:hidden]
        inner = reset * (old @ w[2] + extra) if linear_before_reset else (reset * old) @ w[2]
        return ((1 - z) * f[1](bound(xs[2] + inner)) + z * old,)

    return _recurrent(x, r, [h], lengths, activations, alpha, beta, clip, direction, cell)


def rnn(x: Array, r: Array, h: Array, lengths: Array | None, activations: str, alpha: Sequence[float], beta: Sequence[float],  # fmt: skip
    clip: float, direction: str) -> tuple[Array, ...]:  # fmt: skip
    def cell(xs: Array, w: Array, now: Any, f: Any, bound: Any, d: int) -> tuple[Array, ...]:
        return (f[0](bound(xs[0] + now[0] @ w[0])),)

    return _recurrent(x, r, [h], lengths, activations, alpha, beta, clip, direction, cell)


# ---- grids and resizing, one element after the other


def affine_grid(maps: Array, size: Ints, align_corners: bool) -> Array:
    def places(n: int) -> Array:
        i = np.arange(n)
        return i * 2 / max(n - 1, 1) - 1 if align_corners else (2 * i + 1) / n - 1

    rows, columns = np.meshgrid(places(size[0]), places(size[1]), indexing="ij")
    base = np.stack([columns, rows, np.ones_like(rows)])
    return np.einsum("bij,jhw->bihw", maps, base)


def _cubic(d: Array, a: float) -> Array:
    d = np.abs(d)
    near = (a + 2) * d**3 - (a + 3) * d**2 + 1
    far = a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0))


def grid_sample(
    x: Array, grid: Array, method: str, padding_mode: str, align_corners: bool
) -> Array:
    count = x.ndim - 2

    def fold(p: float, n: int) -> float:
        if padding_mode == "reflection":
            low, span = (0.0, n - 1) if align_corners else (-0.5, n)
            if span <= 0:
                return 0.0
            turns, rest = divmod(abs(p - low), span)
            p = (span - rest if turns % 2 else rest) + low
        return min(max(p, 0.0), n - 1) if padding_mode != "zeros" else p

    def taps(g: float, n: int) -> list[tuple[int, float]]:
        p = (g + 1) / 2 * (n - 1) if align_corners else ((g + 1) * n - 1) / 2
        if method != "bicubic":
            p = fold(p, n)
        if method == "nearest":
            return [(int(np.round(p)), 1.0)]
        first = int(np.floor(p))
        if method == "bilinear":
            return [(first, 1 - (p - first)), (first + 1, p - first)]
        pairs = [(first + k, float(_cubic(np.float64(p - first - k), -0.75))) for k in range(-1, 3)]
        return [(int(np.round(fold(i, n))) if padding_mode != "zeros" else i, w) for i, w in pairs]

    out = np.zeros((*x.shape[:2], *grid.shape[2:]))
    for at in np.ndindex(grid.shape[0], *grid.shape[2:]):
        b, place = at[0], at[1:]
        axes = [taps(float(grid[(b, count - 1 - s, *place)]), x.shape[2 + s]) for s in range(count)]
        for picks in itertools.product(*axes):
            index = [i for i, _ in picks]
            weight = np.prod([w for _, w in picks])
            inside = all(0 <= i < n for i, n in zip(index, x.shape[2:], strict=True))
            if not inside and padding_mode != "zeros" and weight == 0:
                continue  # the second tap of a position on the last element
            if inside:
                out[(b, slice(None), *place)] += weight * x[(b, slice(None), *index)]
    return out


def resize_weights(scale: Array, window: Array, sizes: Ints, mode: str, coordinates: str, rounding: str, alpha: float,  # fmt: skip
    exclude_outside: bool, antialias: bool) -> tuple[Array, Array]:  # fmt: skip
    size, out = sizes
    f, i = float(scale), np.arange(out)
    begin, end = (float(v) for v in window)
    spread = (i + 0.5) / f - 0.5
    x = (
        {
            "half_pixel": lambda: spread,
            "pytorch_half_pixel": lambda: spread if f * size > 1 else np.zeros(out),
            "half_pixel_symmetric": lambda: size / 2 * (1 - out / (f * size)) + spread,
            "asymmetric": lambda: i / f,
            "tf_half_pixel_for_nn": lambda: (i + 0.5) / f,
            "align_corners": lambda: (
                i * (size - 1) / (f * size - 1) if f * size != 1 else np.zeros(out)
            ),
            "tf_crop_and_resize": lambda: (
                begin * (size - 1) + i * (end - begin) * (size - 1) / max(out - 1, 1)
                if out > 1
                else np.full(out, 0.5 * (begin + end) * (size - 1))
            ),
        }[coordinates]()
        if size
        else np.zeros(out)
    )
    matrix, outside = np.zeros((size, out)), np.zeros(out)
    if coordinates == "tf_crop_and_resize":
        outside = ((x < 0) | (x > size - 1)).astype(float)
    shrink = min(f, 1.0) if antialias else 1.0
    support = (1 if mode == "linear" else 2) / shrink
    for o in range(out if size else 0):
        if outside[o]:
            continue
        if mode == "nearest":
            place = {"floor": np.floor(x[o]), "ceil": np.ceil(x[o]), "round_prefer_floor": np.ceil(x[o] - 0.5),
                     "round_prefer_ceil": np.floor(x[o] + 0.5)}[rounding]  # fmt: skip
            matrix[int(np.clip(place, 0, size - 1)), o] = 1
            continue
        tap = np.arange(np.floor(x[o] - support) + 1, np.ceil(x[o] + support))
        d = (tap - x[o]) * shrink
        share = np.maximum(1 - np.abs(d), 0) if mode == "linear" else _cubic(d, alpha)
        if exclude_outside:
            share = np.where((tap >= 0) & (tap < size), share, 0)
        np.add.at(matrix[:, o], np.clip(tap, 0, size - 1).astype(int), share)
        if exclude_outside or antialias:
            matrix[:, o] /= share.sum()
    return matrix, outside


# ---- regions of images


def _image_of(rois: Array, r: int, count: int) -> int:
    return int(np.clip(int(rois[r, 0]), 0, count - 1))


def roi_align(data: Array, rois: Array, pooled_size: Ints, scale: float, ratio: int, aligned: bool, mode: str, layout: str = "NCHW") -> Array:  # fmt: skip
    if layout == "NHWC":
        moved = np.moveaxis(data, 3, 1)
        return np.moveaxis(roi_align(moved, rois, pooled_size, scale, ratio, aligned, mode), 1, 3)
    count, channels, height, width = data.shape
    cells = (pooled_size, pooled_size) if isinstance(pooled_size, int) else tuple(pooled_size)
    cells = cells * 2 if len(cells) == 1 else cells
    out = np.zeros((len(rois), channels, *cells))
    if data.size == 0:
        return out
    offset = 0.5 if aligned else 0.0

    def around(p: float, n: int) -> tuple[int, int, float]:
        p = max(p, 0.0)
        low = min(int(p), n - 1)
        return (low, low, 0.0) if low >= n - 1 else (low, low + 1, p - low)

    for r, (_, x1, y1, x2, y2) in enumerate(rois * [1, scale, scale, scale, scale]):
        image = data[_image_of(rois, r, count)]
        begin = (y1 - offset, x1 - offset)
        extent = [e - offset - b for e, b in zip((y2, x2), begin, strict=True)]
        extent = extent if aligned else [max(e, 1.0) for e in extent]
        cell = [e / n for e, n in zip(extent, cells, strict=True)]
        samples = [ratio if ratio > 0 else max(int(np.ceil(c)), 0) for c in cell]
        for i in np.ndindex(*cells):
            found = []
            for k in np.ndindex(*samples):
                y, x = (
                    begin[a] + i[a] * cell[a] + (k[a] + 0.5) * cell[a] / samples[a] for a in (0, 1)
                )
                if y < -1 or y > height or x < -1 or x > width:
                    found.append(np.zeros(channels))
                    continue
                (y0, y1_, v), (x0, x1_, h) = around(y, height), around(x, width)
                parts = [image[:, y0, x0] * (1 - v) * (1 - h), image[:, y0, x1_] * (1 - v) * h,
                         image[:, y1_, x0] * v * (1 - h), image[:, y1_, x1_] * v * h]  # fmt: skip
                found.append(sum(parts) if mode == "avg" else np.max(parts, axis=0))
            if found:
                reduce = np.mean if mode == "avg" else np.max
                out[(r, slice(None), *i)] = reduce(found, axis=0)
    return out


def roi_pool(data: Array, rois: Array, pooled_size: Ints, scale: float) -> Array:
    count, channels, height, width = data.shape
    cells = (pooled_size, pooled_size) if isinstance(pooled_size, int) else tuple(pooled_size)
    cells = cells * 2 if len(cells) == 1 else cells
    out = np.zeros((len(rois), channels, *cells))
    if data.size == 0:
        return out
    for r, row in enumerate(rois):
        image = data[_image_of(rois, r, count)]
        x1, y1, x2, y2 = (int(np.floor(v * scale + 0.5)) for v in row[1:])
        for i in np.ndindex(*cells):
            ranges = []
            for a, (first, last, n) in enumerate(((y1, y2, height), (x1, x2, width))):
                size = max(last - first + 1, 1) / cells[a]
                low, high = int(np.floor(i[a] * size)), int(np.ceil((i[a] + 1) * size))
                ranges.append([int(np.clip(v + first, 0, n)) for v in (low, high)])
            (r0, r1), (c0, c1) = ranges
            if r1 > r0 and c1 > c0:
                out[(r, slice(None), *i)] = image[:, r0:r1, c0:c1].max(axis=(1, 2))
    return out


def multinomial(prob: Array, uniform: Array, rows: Array) -> Array:
    out = np.zeros((len(uniform), 1), np.int64)
    for i, (u, row) in enumerate(zip(uniform[:, 0], rows[:, 0], strict=True)):
        if len(prob) == 0 or prob.shape[1] == 0:
            out[i] = max(prob.shape[1] - 1, 0)
            continue
        above = np.flatnonzero(np.cumsum(prob[int(np.clip(row, 0, len(prob) - 1))]) > u)
        out[i] = above[0] if above.size else prob.shape[1] - 1
    return out


def tree_sums(x: Array, splits: Array, links: Array, roots: Array, weights: Array, columns: int, compare: str,  # fmt: skip
    combine: str, missing: bool, groups: int) -> Array:  # fmt: skip
    holds = {
        "<=": np.less_equal,
        "<": np.less,
        ">=": np.greater_equal,
        ">": np.greater,
        "==": np.equal,
    }[compare]
    add, start = {"sum": (np.add, 0), "min": (np.minimum, np.inf), "max": (np.maximum, -np.inf)}[
        combine
    ]
    out = np.full((groups, len(x), columns), start, x.dtype)
    for group, row in np.ndindex(groups, len(x)):
        for tree in range(len(roots) * group // groups, len(roots) * (group + 1) // groups):
            node, pairs, column = roots[tree]
            for _ in range(2 * pairs):
                value = x[row, links[node, 0] >> 1]
                tracks = missing and links[node, 0] & 1 and np.isnan(value)
                node = links[node, 1] + bool(holds(value, splits[node]) or tracks)
            part = out[group, row, column : column + weights.shape[1]]
            part[:] = add(part, weights[node])
    return out


def slice_bounds(extents: Array, begin: Array, end: Array, strides: Array) -> Any:
    rows = zip(extents, begin, end, strides, strict=True)
    ranges = [range(n)[b:e:s] for n, b, e, s in rows]
    first = [slice(b, e, s).indices(n)[0] for n, b, e, s in zip(extents, begin, end, strides)]
    return np.array(first, np.int64), np.array([len(r) for r in ranges], np.int64)


def median(data: Array, axis: Ints | int | None, keepdims: bool) -> Any:
    axes = tuple(range(data.ndim)) if axis is None else (axis,) if isinstance(axis, int) else axis
    axes = sorted(a % data.ndim for a in axes)
    rest = [a for a in range(data.ndim) if a not in axes]
    shape = [data.shape[a] for a in rest]
    lines = data.transpose(*rest, *axes).reshape(*shape, -1)
    order = np.argsort(lines, axis=-1, kind="stable")
    middle = np.take(order, (lines.shape[-1] - 1) // 2, axis=-1)
    value = np.take_along_axis(lines, middle[..., None], -1)[..., 0]
    if keepdims:
        value, middle = np.expand_dims(value, axes), np.expand_dims(middle, axes)
    return value if axis is None else (value, middle)
