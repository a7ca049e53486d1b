# SPDX-License-Identifier: Apache-2.0
"""NonMaxSuppression beside ONNX Runtime: limits as exporters write them, more boxes than are asked at once."""

import numpy as np
import pytest

pytestmark = pytest.mark.peer

MODEL = (
    "g (float[b, n, 4] boxes, float[b, c, n] scores) => (int64[k, 3] y) "
    "{ y = NonMaxSuppression(boxes, scores, limit, iou, least) }"
)


@pytest.mark.parametrize("limit", [0, 1, 7, -3, 2**31, 2**63 - 1, -(2**63)])
def test_limits(limit, make_model, run_model_once):
    import onnxruntime

    rng = np.random.default_rng(1)
    boxes = rng.random((2, 300, 4), dtype=np.float32) * 20
    boxes[..., 2:] += boxes[..., :2] * np.float32(0.3)
    feed = {"boxes": boxes, "scores": rng.random((2, 3, 300), dtype=np.float32)}
    weights = {"limit": np.array([limit]), "iou": np.float32([0.4]), "least": np.float32([0.2])}
    model = make_model(MODEL, 17, weights)
    want = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feed)[0]
    np.testing.assert_array_equal(run_model_once(model)(feed)[0], want)


def test_boxes_that_do_not_touch_all_stay(make_model, run_model_once):
    corners = np.arange(100, dtype=np.float32)[:, None] * np.float32(2)
    boxes = np.concatenate([corners, corners, corners + 2, corners + 2], axis=1)[None]
    feed = {"boxes": boxes, "scores": np.linspace(0.3, 1, 100, dtype=np.float32)[None, None]}
    weights = {"limit": np.array([2**63 - 1]), "iou": np.float32([0]), "least": np.float32([0])}
    got = run_model_once(make_model(MODEL, 17, weights))(feed)[0]
    np.testing.assert_array_equal(got[:, 2], np.arange(100)[::-1])
