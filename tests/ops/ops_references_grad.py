# SPDX-License-Identifier: Apache-2.0
"""NumPy forms of the operators that are gradients."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

Array = np.ndarray
Ints = Sequence[int]


def take_backward(grad: Array, x: Array, indices: Array, axis: int | None, mode: str) -> Array:
    out = np.zeros_like(x).reshape(-1) if axis is None else np.moveaxis(np.zeros_like(x), axis, 0)
    extent = len(out)
    at = np.where(indices < 0, indices + extent, indices)
    at = np.clip(at, 0, extent - 1) if mode == "clip" else at % extent if mode == "wrap" else at
    place = axis or 0
    moved = np.moveaxis(grad, range(place, place + indices.ndim), range(indices.ndim))
    np.add.at(out, at, moved)
    return out.reshape(x.shape) if axis is None else np.moveaxis(out, 0, axis)


def nll_loss_backward(grad: Array, p: Array, targets: Array, weights: Array | None, reduction: str, ignore: int) -> Array:  # fmt: skip
    channel = 0 if p.ndim == 1 else 1
    weights = np.ones(p.shape[channel]) if weights is None else weights
    w = np.where(targets != ignore, weights[targets], 0)
    share = grad / w.sum() if reduction == "mean" else grad
    hit = np.moveaxis(np.eye(p.shape[channel])[targets], -1, channel)
    return -hit * np.expand_dims(share * w, channel)


def pool_backward(grad: Array, data: Array, size: Ints, strides: Ints, padding: Ints, dilation: Ints, layout: str, average: bool, whole: bool) -> Array:  # fmt: skip
    if layout == "NHWC":
        grad, data = np.moveaxis(grad, 3, 1), np.moveaxis(data, 3, 1)
    out = np.zeros_like(data)
    height, width = data.shape[2:]
    for n, c, oy, ox in np.ndindex(*grad.shape):
        taps = []
        for k in np.ndindex(*size):
            y = oy * strides[0] + k[0] * dilation[0] - padding[0]
            x = ox * strides[1] + k[1] * dilation[1] - padding[1]
            if 0 <= y < height and 0 <= x < width:
                taps.append((y, x))
        if average:
            for y, x in taps:
                out[n, c, y, x] += grad[n, c, oy, ox] / (np.prod(size) if whole else len(taps))
        elif taps:
            y, x = max(taps, key=lambda t: data[n, c, t[0], t[1]])
            out[n, c, y, x] += grad[n, c, oy, ox]
    return np.moveaxis(out, 1, 3) if layout == "NHWC" else out
