# SPDX-License-Identifier: Apache-2.0
"""Boxes that are chosen by score: those far apart are not compared, and the choice is the same as if they were."""

import numpy as np
import pytest

import relaxvm
from relaxvm import relax

RNG = np.random.default_rng(0)
CHOOSE = relaxvm.get_global_func("relax.run.non_max_suppression")


def chosen(boxes: np.ndarray, scores: np.ndarray, limit: int, threshold: float) -> list[int]:
    kept: list[int] = []
    for i in np.argsort(-scores, kind="stable"):
        if len(kept) == limit:
            break
        low = np.maximum(boxes[i, :2], boxes[kept, :2])
        size = np.minimum(boxes[i, 2:], boxes[kept, 2:]) - low
        shared = np.where((size > 0).all(1), size[:, 0] * size[:, 1], np.float32(0))
        area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
        with np.errstate(invalid="ignore"):
            if not (shared / (area[i] + area[kept] - shared) > threshold).any():
                kept.append(int(i))
    return kept


def places(count: int, groups: int, axes: tuple[float, float]) -> np.ndarray:
    corner, size = RNG.uniform(0, 100, (count, 2)), RNG.uniform(1, 40, (count, 2))
    corner = corner + RNG.integers(0, groups, (count, 1)) * 141 * np.array(axes)
    return np.concatenate([corner, corner + size], 1).astype("float32")


@pytest.mark.parametrize(
    ("count", "groups", "axes"),
    [(1, 1, (1, 1)), (300, 1, (1, 1)), (400, 9, (1, 0)), (500, 60, (0, -1)), (600, 1000, (1, 1))],
)
def test_boxes_of_groups_far_apart_are_chosen_as_if_all_were_compared(
    count: int, groups: int, axes: tuple[float, float]
) -> None:
    boxes = places(count, groups, axes)
    scores = RNG.integers(0, 50, count).astype("float32")  # equal ones among them
    for limit in (count, 7):
        got = CHOOSE(
            relaxvm.runtime.tensor(boxes[None]),
            relaxvm.runtime.tensor(scores[None, None]),
            limit,
            0.4,
            0,
        )
        np.testing.assert_array_equal(got.numpy()[:, 2], chosen(boxes, scores, limit, 0.4))


def test_boxes_without_a_finite_place_leave_the_others_as_they_are() -> None:
    boxes = places(200, 20, (1, 1))
    scores = RNG.permutation(200).astype("float32")
    want = [i for i in chosen(boxes[10:], scores[10:], 200, 0.4)]
    boxes[:4], boxes[4:8] = np.inf, -np.inf
    boxes[8:10] = 7  # of no size
    scores[:10] = -1
    got = CHOOSE(
        relaxvm.runtime.tensor(boxes[None]), relaxvm.runtime.tensor(scores[None, None]), 200, 0.4, 0
    ).numpy()[:, 2]
    np.testing.assert_array_equal(got[got >= 10] - 10, want)


@pytest.mark.parametrize("count", [1, 40])  # of boxes that are far away: one by one, and blocks
def test_a_threshold_is_not_rounded_before_overlaps_are_compared(count: int) -> None:
    third = float(np.float32(1 / 3))  # lies above 1 / 3
    far = 100 + 10 * np.arange(count)[:, None] + np.array([0, 0, 1, 1])
    boxes = np.concatenate([far, [[0, 0, 2, 1], [1, 0, 3, 1]]]).astype("float32")
    scores = np.arange(count + 2, 0, -1).astype("float32")
    for threshold, kept in [(1 / 3, 1), (third, 2), (0.3, 1), (0.4, 2), (1e300, 2)]:
        args = (relaxvm.runtime.tensor(v) for v in (boxes[None], scores[None, None]))
        assert len(CHOOSE(*args, 100, threshold, 0).numpy()) == count + kept


def test_boxes_stand_by_falling_score_and_equal_ones_as_they_came() -> None:
    scores = np.float32([0, -0.0, -1, np.nan, -np.inf, 2, 0, np.inf, -2])
    boxes = 10 * np.arange(len(scores))[:, None] + np.array([0, 0, 1, 1])
    args = [relaxvm.runtime.tensor(v) for v in (boxes[None].astype("float32"), scores[None, None])]
    order = [7, 5, 0, 1, 6, 2, 8, 4]
    assert list(CHOOSE(*args, 100, 0.5, 0).numpy()[:, 2]) == order
    for least, count in [(-1.5, 6), (-1.0, 5), (-np.inf, 7), (1e300, 1), (np.inf, 0), (np.nan, 0)]:
        assert list(CHOOSE(*args, 100, 0.5, 0, least).numpy()[:, 2]) == order[:count]


@pytest.mark.parametrize("dtype", ["bool", "int16", "float16", "float32", "int64", "float64"])
def test_places_of_elements_that_are_not_zero(dtype: str) -> None:
    find = relaxvm.get_global_func("relax.run.nonzero")
    for shape in [(0,), (1,), (1000,), (7, 11), (2, 3, 5), (4, 0)]:
        x = RNG.integers(-1, 2, shape).astype(dtype)
        x = -x if dtype.startswith("float") else x  # zeros with a sign
        got = find(relaxvm.runtime.tensor(x)).numpy()
        np.testing.assert_array_equal(got, np.stack(np.nonzero(x)))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("least", [-1.0, 0.7, 0.99, 2.0])
def test_boxes_of_all_classes_that_score_enough_are_chosen(least: float, dtype: str) -> None:
    boxes = places(300, 3, (1, 1)).astype(dtype)
    scores = RNG.integers(0, 200, (4, 300)) / 200
    scores[0, ::7], scores[1] = np.nan, 0.5
    names = ["boxes", "scores", "most", "iou", "least"]
    values = [boxes[None], scores[None].astype(dtype), np.int64([50])]
    values += [np.array([t], dtype) for t in (0.4, least)]
    args = [relax.Var(n, relax.TensorType(v.shape, v.dtype.name)) for n, v in zip(names, values)]
    builder = relax.BlockBuilder()
    with builder.function("main", args):
        with builder.dataflow():
            out = builder.emit_output(relax.op.vision.all_class_non_max_suppression(*args))
        builder.emit_func_output(out)
    vm = relaxvm.VirtualMachine(relaxvm.compile(builder.get()), relaxvm.cpu())
    got = vm["main"](*(relaxvm.runtime.tensor(v) for v in values))[0].numpy()
    for kind, row in enumerate(scores.astype(dtype)):
        counts = np.flatnonzero(row > least)
        want = counts[chosen(boxes[counts], row[counts], 50, 0.4)] if len(counts) else counts
        np.testing.assert_array_equal(got[got[:, 1] == kind, 2], want)
