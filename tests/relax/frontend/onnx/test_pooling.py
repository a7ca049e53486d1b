# SPDX-License-Identifier: Apache-2.0
"""Pools of less than a window: one that reaches over the end by less than a step has one result, as in ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest

X = np.arange(-5, 5, dtype=np.float32).reshape(1, 2, 1, 5)


def of_rows(x: np.ndarray, take) -> np.ndarray:
    """`take` of each two neighbours of a row, a fifth element left out."""
    return np.stack([take(x[..., 0:2]), take(x[..., 2:4])], axis=-1)


@pytest.mark.parametrize(
    ("node", "take"),
    [
        ("MaxPool<kernel_shape=[2,2], strides=[2,2]>", lambda v: v.max(-1)),
        ("MaxPool<kernel_shape=[3,2], strides=[3,2]>", lambda v: v.max(-1)),
        ("AveragePool<kernel_shape=[2,2], strides=[2,2]>", lambda v: v.mean(-1)),
        (
            "AveragePool<kernel_shape=[2,2], strides=[2,2], count_include_pad=1>",
            lambda v: v.mean(-1),
        ),
        # Padding counts where it is asked for, what lies behind it does not.
        (
            "AveragePool<kernel_shape=[4,2], strides=[3,2], pads=[1,0,0,0], count_include_pad=1>",
            lambda v: v.mean(-1) / 2,
        ),
        ("AveragePool<kernel_shape=[4,2], strides=[3,2], pads=[1,0,0,0]>", lambda v: v.mean(-1)),
        ("LpPool<kernel_shape=[2,2], strides=[2,2]>", lambda v: np.sqrt((v * v).sum(-1))),
    ],
)
def test_one_window_reaches_over(make_model, run_model_once, node, take):
    model = make_model(f"g (float[1, 2, 1, 5] x) => (float[a, b, c, d] y) {{ y = {node}(x) }}")
    np.testing.assert_allclose(run_model_once(model)({"x": X})[0], of_rows(X, take), rtol=1e-6)


def test_one_window_reaches_over_and_tells_its_place(make_model, run_model_once):
    graph = "{ y, i = MaxPool<kernel_shape=[2,2], strides=[2,2]>(x) }"
    model = make_model(
        f"g (float[1, 2, 1, 5] x) => (float[a, b, c, d] y, int64[a, b, c, d] i) {graph}"
    )
    y, i = run_model_once(model)({"x": X})
    np.testing.assert_array_equal(y, of_rows(X, lambda v: v.max(-1)))
    np.testing.assert_array_equal(i.ravel(), [1, 3, 6, 8])


@pytest.mark.parametrize("kernel", [3, 4])
def test_a_window_larger_by_a_step_has_no_result(make_model, run_model_once, kernel):
    graph = f"{{ y = MaxPool<kernel_shape=[{kernel},2], strides=[{kernel - 1},2]>(x) }}"
    model = make_model(f"g (float[1, 2, 1, 5] x) => (float[a, b, c, d] y) {graph}")
    assert run_model_once(model)({"x": X})[0].shape == (1, 2, 0, 2)
