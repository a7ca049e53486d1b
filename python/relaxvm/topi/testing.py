# SPDX-License-Identifier: Apache-2.0
"""NumPy's view of some operators, for tests that compare with it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def softmax_python(data: np.ndarray, axis: int = 1) -> np.ndarray:
    """exp(x) / sum(exp(x)) along one axis."""
    powers = np.exp(data - data.max(axis=axis, keepdims=True))
    return powers / powers.sum(axis=axis, keepdims=True)


def log_softmax_python(data: np.ndarray, axis: int = 1) -> np.ndarray:
    """The logarithm of the softmax."""
    shifted = data - data.max(axis=axis, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True))


def conv2d_nchw_python(
    data: np.ndarray,
    weight: np.ndarray,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    groups: int = 1,
) -> np.ndarray:
    """A convolution of images NCHW with kernels OIHW; `padding` is the same on both sides."""
    step_y, step_x = (stride, stride) if isinstance(stride, int) else tuple(stride)
    pad_y, pad_x = (padding, padding) if isinstance(padding, int) else tuple(padding)
    padded = np.pad(data, ((0, 0), (0, 0), (pad_y, pad_y), (pad_x, pad_x)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, weight.shape[2:], axis=(2, 3))
    windows = windows[:, :, ::step_y, ::step_x]
    outs = [
        np.einsum("nihwyx,oiyx->nohw", part, kernels)
        for part, kernels in zip(
            np.split(windows, groups, axis=1), np.split(weight, groups, axis=0), strict=True
        )
    ]
    return np.concatenate(outs, axis=1)
