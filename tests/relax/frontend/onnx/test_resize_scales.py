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


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_a_batch_of_unknown_size_that_is_told_its_size(mode, make_model, run_model_once):
    """It is asked while running whether only two axes change; where the batch does, too, it is resized."""
    given = {"sizes": np.array([2, 3, 8, 10], "i8")}
    node = f'y = Resize<mode="{mode}">(x, , , sizes)'
    whole = np.random.default_rng(0).standard_normal((4, 3, 4, 5), dtype=np.float32)
    unknown = make_model(
        f"g (float[n, 3, h, w] x) => (float[a, b, c, d] y) {{ {node} }}", 18, given
    )
    run = run_model_once(unknown)
    for x in (whole[:2], whole):
        text = f"g (float[{len(x)}, 3, 4, 5] x) => (float[a, b, c, d] y) {{ {node} }}"
        want = run_model_once(make_model(text, 18, given))({"x": x})[0]
        np.testing.assert_allclose(run({"x": x})[0], want, rtol=1e-5, atol=1e-6)
