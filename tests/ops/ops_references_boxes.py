# SPDX-License-Identifier: Apache-2.0
"""NumPy forms of the operators on boxes of detectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray


def overlap(a: Array, b: Array) -> float:
    """Shared by joint area of two rectangles given by opposite corners."""
    low = np.maximum(np.minimum(a[:2], a[2:]), np.minimum(b[:2], b[2:]))
    high = np.minimum(np.maximum(a[:2], a[2:]), np.maximum(b[:2], b[2:]))
    shared = float(np.prod(np.maximum(high - low, 0)))
    joint = sum(float(np.prod(np.abs(r[2:] - r[:2]))) for r in (a, b)) - shared
    return shared / joint if joint > 0 else 0.0


def get_valid_counts(data: Array, threshold: float, id_index: int, score_index: int) -> Any:
    counts = np.zeros(len(data), np.int32)
    rows, indices = np.full_like(data, -1), np.full(data.shape[:2], -1, np.int32)
    for b, image in enumerate(data):
        good = image[:, score_index] > threshold
        good &= (image[:, id_index] >= 0) | (id_index < 0)
        (found,) = np.nonzero(good)
        counts[b] = len(found)
        rows[b, : len(found)], indices[b, : len(found)] = image[found], found
    return counts, rows, indices


def non_max_suppression(data: Array, valid: Array, indices: Array, most: int, iou: float, force: bool, top_k: int, start: int, score: int, kind: int, return_indices: bool, to_bottom: bool, sigma: float, least: float) -> Any:  # fmt: skip
    rows, found = np.full_like(data, -1), np.full(indices.shape, -1, np.int32)
    counts = np.zeros((len(data), 1), np.int32)
    for b, image in enumerate(data):
        n = min(int(valid[b]), len(image))
        order = np.argsort(-image[:n, score], kind="stable")
        order = order[:top_k] if top_k > 0 else order
        boxes, scores = image[order], image[order, score].copy()

        def clash(i: int, j: int, boxes: Array = boxes) -> float:
            if kind >= 0 and not force and boxes[i, kind] != boxes[j, kind]:
                return -np.inf
            return overlap(boxes[i, start : start + 4], boxes[j, start : start + 4])

        left, picked = list(range(len(order))), []
        bound = least if sigma > 0 else 0.0
        while left and (most <= 0 or len(picked) < most):
            best = max(left, key=lambda i: (scores[i], -i))
            if not scores[best] > bound:
                break
            left.remove(best)
            picked.append(best)
            for j in list(left):
                shared = clash(best, j)
                if shared >= iou:
                    left.remove(j)
                elif sigma > 0 and shared > 0:
                    scores[j] *= np.exp(-shared * shared / (2 * sigma))
        counts[b] = len(picked)
        found[b, : len(picked)] = indices[b, order[picked]]
        for k, i in enumerate(picked):
            target = k if sigma > 0 or to_bottom else i
            rows[b, target] = boxes[i]
            if sigma > 0:
                rows[b, target, score] = scores[i]
    if not return_indices:
        return rows
    return (rows, found, counts) if sigma > 0 else (found, counts)


def class_boxes(boxes: Array, scores: Array, most: Array, iou: Array, least: Array, form: str) -> Any:  # fmt: skip
    batch, classes, n = scores.shape
    picked: list[tuple[int, int, int]] = []
    for b, c in np.ndindex(batch, classes):
        kept: list[int] = []
        for i in np.argsort(-scores[b, c], kind="stable"):
            if len(kept) < most.item() and scores[b, c, i] > least.item():
                if all(overlap(boxes[b, i], boxes[b, j]) < iou.item() for j in kept):
                    kept.append(int(i))
        picked += [(b, c, i) for i in kept]
    if form == "onnx":
        rows = np.zeros((batch * classes * n, 3), np.int64)
        rows[: len(picked)] = np.reshape(picked, (-1, 3))
        return rows, np.array([len(picked)]), np.array([len(picked), 3])
    places, values = np.zeros((batch, classes * n, 2), np.int64), np.zeros((batch, classes * n))
    counts = np.zeros(batch, np.int64)
    for b, c, i in picked:
        places[b, counts[b]], values[b, counts[b]] = (c, i), scores[b, c, i]
        counts[b] += 1
    return places, values, counts


def multibox_transform_loc(scores: Array, offsets: Array, anchors: Array, clip: bool, threshold: float, variances: Sequence[float], background: bool, softmax: bool) -> Any:  # fmt: skip
    left, top, right, bottom = np.moveaxis(anchors[0], 1, 0)
    x, y, w, h = np.moveaxis(offsets.reshape(len(offsets), -1, 4) * variances, 2, 0)
    middle_y, middle_x = (
        y * (bottom - top) + (top + bottom) / 2,
        x * (right - left) + (left + right) / 2,
    )
    half_y, half_x = np.exp(h) * (bottom - top) / 2, np.exp(w) * (right - left) / 2
    corners = (middle_y - half_y, middle_x - half_x, middle_y + half_y, middle_x + half_x)
    boxes = np.stack(corners, axis=2)
    if softmax and scores.size:
        powers = np.exp(scores - scores.max(axis=1, keepdims=True))
        scores = powers / powers.sum(axis=1, keepdims=True)
    if threshold > 0:
        scores = np.where(scores >= threshold, scores, 0)
    kept = scores * (np.arange(scores.shape[1])[:, None] > 0) if not background else scores
    return np.clip(boxes, 0, 1) if clip else boxes, kept
