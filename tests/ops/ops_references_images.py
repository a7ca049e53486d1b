# SPDX-License-Identifier: Apache-2.0
"""NumPy forms of resizing, of sampling on grids and of regions of images."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from ops_references_layout import spatial_axes, to_layout

Array = np.ndarray
Ints = Sequence[int]


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


def _triangles(at: Array, have: int, scale: float) -> Array:
    """The same for elements under a triangle of 1 / scale to each side; the border goes on."""
    weights = np.zeros((len(at), have))
    for row, x in zip(weights, at):
        places = np.arange(np.floor(x - 1 / scale), np.ceil(x + 1 / scale) + 1)
        share = np.maximum(1 - np.abs(places - x) * scale, 0)
        np.add.at(row, np.clip(places, 0, have - 1).astype(int), share / share.sum())
    return weights


def resize(
    x: Array, size: Ints, roi: Sequence[float], layout: str, method: str, mode: str, rounding: str,
    alpha: float, exclude: int, extrapolation: float, out_dtype: Any, antialias: bool,
    scales: Sequence[float],
) -> Array:  # fmt: skip
    spatial = spatial_axes(layout)
    order = "NC" + spatial
    y = to_layout(x, layout, order).astype(np.float64)
    outside = np.zeros(list(size), bool)
    for s, want in enumerate(size):
        have = x.shape[layout.index(spatial[s])]
        if have == 0:
            raise ValueError("nothing to resize")
        roi_s = (roi[s], roi[len(spatial) + s])
        length = have * scales[s] if scales and scales[s] > 0 else want
        at = _position(mode, np.arange(want, dtype=np.float64), have, length, *roi_s)
        beyond = (at < 0) | (at > have - 1)
        outside |= beyond.reshape([-1 if d == s else 1 for d in range(len(spatial))])
        if antialias and length < have:
            weights = _triangles(at, have, length / have)
        else:
            weights = _taps(method, at, have, rounding, mode, alpha, exclude)
        y = np.moveaxis(np.tensordot(y, weights, ([2 + s], [1])), -1, 2 + s)
    if mode == "tf_crop_and_resize":
        y = np.where(outside, extrapolation, y)
    if x.dtype.kind in "iu":
        y = np.round(y)
    return to_layout(y, order, layout)


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
    x: Array, grid: Array, method: str, layout: str, padding_mode: str, align_corners: bool
) -> Array:
    if layout.endswith("C"):
        moved = np.moveaxis(x, -1, 1)
        sampled = grid_sample(moved, grid, method, "NCHW", padding_mode, align_corners)
        return np.moveaxis(sampled, 1, -1)
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
