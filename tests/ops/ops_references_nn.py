# SPDX-License-Identifier: Apache-2.0
"""NumPy forms of convolutions, pools, norms and attention; everything is computed channels first."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from ops_references_layout import along, spatial_axes, to_layout, trunc_divide

Array = np.ndarray
Ints = Sequence[int]


def _pad_spatial(x: Array, padding: Ints, value: Any, extra: Ints | None = None) -> Array:
    n = x.ndim - 2
    widths = [(0, 0), (0, 0)]
    widths += [(padding[s], padding[n + s] + (extra[s] if extra else 0)) for s in range(n)]
    return np.pad(x, widths, constant_values=value)


def conv(
    x: Array, w: Array, strides: Ints, padding: Ints, dilation: Ints, groups: int,
    data_layout: str, kernel_layout: str, out_layout: str, out_dtype: Any,
) -> Array:  # fmt: skip
    spatial = spatial_axes(data_layout)
    x, w = to_layout(x, data_layout, "NC" + spatial), to_layout(w, kernel_layout, "OI" + spatial)
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
    return to_layout(result, "NC" + spatial, out_layout)


def conv_transpose(
    x: Array, w: Array, strides: Ints, padding: Ints, output_padding: Ints, dilation: Ints,
    groups: int, data_layout: str, kernel_layout: str, out_layout: str,
) -> Array:  # fmt: skip
    spatial = spatial_axes(data_layout)
    x, w = to_layout(x, data_layout, "NC" + spatial), to_layout(w, kernel_layout, "IO" + spatial)
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
    return to_layout(result[(..., *cut)], "NC" + spatial, out_layout)


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
    order = "NC" + spatial_axes(layout)
    x = to_layout(x, layout, order)
    out = _pool_extents(x, size, strides, padding, dilation, ceil)
    least = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    padded = _pad_spatial(x, padding, least, [s - 1 for s in strides] if ceil else None)
    return to_layout(_windows(padded, size, strides, dilation, out).max(0), order, out_layout)


def avg_pool(
    x: Array, size: Ints, strides: Ints, padding: Ints, dilation: Ints, ceil: bool,
    include_pad: bool, layout: str, out_layout: str,
) -> Array:  # fmt: skip
    order = "NC" + spatial_axes(layout)
    x = to_layout(x, layout, order)
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
    return to_layout(result, order, out_layout)


def adaptive_avg_pool(x: Array, output_size: Ints | None, layout: str, out_layout: str) -> Array:
    order = "NC" + spatial_axes(layout)
    x = to_layout(x, layout, order)
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
    return to_layout(x.astype(dtype), order, out_layout)


# ---- normalisation


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
    y = (x - along(use_mean, axis, x.ndim)) / np.sqrt(along(use_var, axis, x.ndim) + epsilon)
    if scale:
        y = y * along(gamma, axis, x.ndim)
    if center:
        y = y + along(beta, axis, x.ndim)
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
        y = y * along(gamma, channel_axis, x.ndim)
    return y + along(beta, channel_axis, x.ndim) if center else y


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
        y = y * along(gamma, c, x.ndim)
    return y + along(beta, c, x.ndim) if center else y


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
    if mode == "circular" and any(max(p) > n == 0 for p, n in zip(grown, x.shape, strict=True)):
        raise ValueError("no elements to go round")
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
