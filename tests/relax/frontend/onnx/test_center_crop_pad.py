# SPDX-License-Identifier: Apache-2.0
"""CenterCropPad, by sizes that are known and by sizes that come with the picture."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("wanted", [[5, 9], [11, 3]])
@pytest.mark.parametrize("dtype", ["float", "bool"])
def test_pictures_are_cropped_and_padded_around_their_middle(
    make_model, run_model_once, sizes, dtype, wanted, known
):
    shape = "" if known else ", int64[2] s"
    text = f"g ({dtype}[3, 8, 6] x{shape}) => ({dtype}[a, b, c] y) {{ y = CenterCropPad<axes=[1, -1]>(x, s) }}"
    model = make_model(sizes(text) if known else text, initializers={"s": wanted} if known else {})
    kind = {"float": np.float32, "bool": np.bool_}[dtype]
    x = (np.random.default_rng(0).random((3, 8, 6)) * 2).astype(np.uint8).astype(kind)
    expected = x
    for axis, size in zip((1, 2), wanted, strict=True):
        have = x.shape[axis]
        if size > have:
            low = (size - have) // 2
            widths = [(low, size - have - low) if a == axis else (0, 0) for a in range(3)]
            expected = np.pad(expected, widths)
        else:
            low = (have - size) // 2
            expected = expected.take(range(low, low + size), axis)
    feed = {"x": x} if known else {"x": x, "s": np.array(wanted)}
    np.testing.assert_array_equal(run_model_once(model)(feed)[0], expected)
