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


def affine_grid_python(data: np.ndarray, target_shape: Sequence[int]) -> np.ndarray:
    """Where the elements of images of this height and width come from under affine maps [batch, 2, 3]."""
    rows, columns = (np.linspace(-1.0, 1.0, n) for n in target_shape)
    y, x = np.meshgrid(rows, columns, indexing="ij")
    places = np.stack([x.ravel(), y.ravel(), np.ones(x.size)])
    return (data @ places).reshape(len(data), 2, *target_shape)


def get_valid_counts_python(
    data: np.ndarray, score_threshold: float = 0, id_index: int = 0, score_index: int = 1
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """How many rows of boxes are valid, they at the top, and where they stood."""
    counts = np.zeros(len(data), "int32")
    rows, indices = np.full_like(data, -1), np.full(data.shape[:2], -1, "int32")
    for b, image in enumerate(data):
        valid = image[:, score_index] > score_threshold
        if id_index >= 0:
            valid &= image[:, id_index] >= 0
        (found,) = np.nonzero(valid)
        counts[b] = len(found)
        rows[b, : len(found)], indices[b, : len(found)] = image[found], found
    return counts, rows, indices


def _overlaps(box: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Shared by joint area with each of the others; boxes by two opposite corners."""
    low = np.maximum(np.minimum(box[:2], box[2:]), np.minimum(others[:, :2], others[:, 2:]))
    high = np.minimum(np.maximum(box[:2], box[2:]), np.maximum(others[:, :2], others[:, 2:]))
    shared = np.prod(np.maximum(high - low, 0), axis=1)
    joint = np.prod(np.abs(others[:, 2:] - others[:, :2]), axis=1)
    joint = joint + np.prod(np.abs(box[2:] - box[:2])) - shared
    return np.where(joint > 0, shared / np.where(joint > 0, joint, 1), 0)


def non_max_suppression_python(
    data: np.ndarray,
    valid_count: np.ndarray,
    indices: np.ndarray,
    max_output_size: int = -1,
    iou_threshold: float = 0.5,
    force_suppress: bool = False,
    top_k: int = -1,
    coord_start: int = 2,
    score_index: int = 1,
    id_index: int = 0,
    return_indices: bool = True,
    invalid_to_bottom: bool = False,
    soft_nms_sigma: float = 0.0,
    score_threshold: float = 0.0,
) -> np.ndarray | tuple[np.ndarray, ...]:
    """Boxes by falling score without those that overlap a better one of their class."""
    soft = soft_nms_sigma > 0
    rows, found = np.full_like(data, -1), np.full(indices.shape, -1, "int32")
    counts = np.zeros((len(data), 1), "int32")
    for b, image in enumerate(data):
        order = np.argsort(-image[: valid_count[b], score_index], kind="stable")
        order = order[:top_k] if top_k > 0 else order
        boxes = image[order].copy()
        scores = boxes[:, score_index]
        open_ = np.ones(len(order), bool)
        picked: list[int] = []
        while open_.any() and (max_output_size <= 0 or len(picked) < max_output_size):
            best = int(np.argmax(np.where(open_, scores, -np.inf)))
            if not scores[best] > (score_threshold if soft else 0):
                break
            picked.append(best)
            open_[best] = False
            corners = boxes[:, coord_start : coord_start + 4]
            shared = _overlaps(corners[best], corners)
            rivals = open_.copy()
            if id_index >= 0 and not force_suppress:
                rivals &= boxes[:, id_index] == boxes[best, id_index]
            open_ &= ~(rivals & (shared >= iou_threshold))
            if soft:
                decay = np.exp(-(shared**2) / (2 * soft_nms_sigma))
                scores[rivals] *= decay[rivals].astype(scores.dtype)
        counts[b] = len(picked)
        found[b, : len(picked)] = indices[b, order[picked]]
        targets = list(range(len(picked))) if soft or invalid_to_bottom else picked
        rows[b, targets] = boxes[picked]
    if not return_indices:
        return rows
    return (rows, found, counts) if soft else (found, counts)
