# SPDX-License-Identifier: Apache-2.0
"""Resize by scales that no whole size fits: the same results whether sizes are known or not."""

import numpy as np
import pytest


@pytest.mark.parametrize("coordinates", ["align_corners", "pytorch_half_pixel", "half_pixel"])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_known_and_unknown_sizes_agree(mode, coordinates, make_model, run_model_once):
    node = f'y = Resize<mode="{mode}", coordinate_transformation_mode="{coordinates}", nearest_mode="floor">(x, roi, scales)'
    for scales in ([1, 1, 1.5, 1.5], [1, 1, 0.5, 3], [1, 1, 3, 0.5], [1, 1, 1.3, 0.7]):
        given = {"scales": np.array(scales, "f4"), "roi": np.zeros(0, "f4")}
        x = np.random.default_rng(0).standard_normal((2, 3, 5, 3), dtype=np.float32)
        got = [
            run_model_once(
                make_model(
                    f"g (float[2, 3, {size}] x) => (float[a, b, c, d] y) {{ {node} }}",
                    18,
                    given,
                )
            )({"x": x})[0]
            for size in ("5, 3", "h, w")
        ]
        np.testing.assert_allclose(got[1], got[0], rtol=1e-4, atol=1e-5)
