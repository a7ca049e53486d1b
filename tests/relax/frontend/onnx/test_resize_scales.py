# SPDX-License-Identifier: Apache-2.0
"""Resize by scales that no whole size fits, along any axes: the same results whether sizes are known or not."""

import numpy as np
import pytest


def resized(x, scales, mode, coordinates):
    """One axis after the other; nearest elements by rounding down."""
    for axis, scale in enumerate(scales):
        size, out = x.shape[axis], int(x.shape[axis] * scale)
        i = np.arange(out)
        at = i / scale if coordinates == "asymmetric" else (i + 0.5) / scale - 0.5
        if coordinates == "align_corners":
            at = i * (size - 1) / max(size * scale - 1, 1)
        at = np.clip(at, 0, size - 1)
        low = np.floor(at + 1e-6).astype(int)
        high = np.minimum(low + 1, size - 1)
        share = (at - low).reshape([-1 if d == axis else 1 for d in range(x.ndim)])
        first, second = np.take(x, low, axis), np.take(x, high, axis)
        x = first if mode == "nearest" else first + (second - first) * share
    return x


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize(
    ("shape", "scales"),
    [
        ((2, 3, 5, 37), (1, 1, 2, 2)),
        ((2, 3, 1, 40), (1, 1, 3, 3)),
        ((2, 3, 7, 1), (1, 1, 4, 4)),
        ((1, 2, 9, 41), (1, 1, 0.5, 0.5)),
        ((1, 2, 9, 41), (1, 1, 0.25, 1.5)),
        ((1, 2, 33, 50), (1, 1, 0.125, 0.2)),
        ((2, 9, 11, 3), (1, 2, 0.5, 1)),
        ((2, 9, 40, 2), (1, 1.5, 0.125, 1)),
        ((2, 5, 6, 35), (1, 0.5, 2, 1)),
        ((3, 4, 21), (1, 1, 2)),
        ((3, 21, 4), (1, 2.5, 1)),
        ((19,), (5,)),
        ((4, 5), (2, 2)),
        ((2, 3, 4, 5), (1, 2, 1, 3)),
        ((1, 2, 3, 4, 5), (1, 1, 2, 2, 0.5)),
    ],
)
@pytest.mark.parametrize("coordinates", ["asymmetric", "half_pixel", "align_corners"])
def test_any_axes(shape, scales, mode, coordinates, known, make_model, run_model_once):
    dims = ", ".join(str(d) if known else f"d{k}" for k, d in enumerate(shape))
    out = ", ".join(f"o{k}" for k in range(len(shape)))
    node = f'y = Resize<mode="{mode}", coordinate_transformation_mode="{coordinates}", nearest_mode="floor">(x, , scales)'
    text = f"g (float[{dims}] x) => (float[{out}] y) {{ {node} }}"
    x = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
    given = {"scales": np.array(scales, "f4")}
    got = run_model_once(make_model(text, 18, given))({"x": x})[0]
    wanted = resized(x.astype("f8"), scales, mode, coordinates)
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=2e-5)


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


def antialiased(x, axis, scale):
    size, out = x.shape[axis], int(x.shape[axis] * scale)
    matrix, shrink = np.zeros((size, out)), min(scale, 1)
    for o in range(out):
        at = (o + 0.5) / scale - 0.5
        taps = np.arange(np.floor(at - 1 / shrink), np.ceil(at + 1 / shrink) + 1)
        share = np.maximum(1 - np.abs(taps - at) * shrink, 0)
        np.add.at(matrix[:, o], np.clip(taps, 0, size - 1).astype(int), share / share.sum())
    return np.moveaxis(np.moveaxis(x, axis, -1) @ matrix, -1, axis)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(
    ("shape", "scales"),
    [
        ((1, 3, 20, 35), (1, 1, 0.5, 0.5)),
        ((2, 3, 9, 41), (1, 1, 0.3, 0.7)),
        ((2, 3, 9, 41), (1, 1, 2, 0.4)),
        ((2, 3, 31, 7), (1, 1, 0.125, 1.5)),
        ((1, 2, 40, 70), (1, 1, 0.1, 0.04)),
        ((2, 12, 17, 3), (1, 0.5, 0.25, 1)),
        ((2, 12, 17, 20), (1, 0.6, 2, 1)),
        ((3, 4, 21), (1, 1, 0.5)),
    ],
)
def test_antialiasing(shape, scales, known, make_model, run_model_once):
    dims = ", ".join(str(d) if known else f"d{k}" for k, d in enumerate(shape))
    out = ", ".join(f"o{k}" for k in range(len(shape)))
    node = 'y = Resize<mode="linear", antialias=1>(x, , scales)'
    text = f"g (float[{dims}] x) => (float[{out}] y) {{ {node} }}"
    x = wanted = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
    got = run_model_once(make_model(text, 18, {"scales": np.array(scales, "f4")}))({"x": x})[0]
    for axis, scale in enumerate(scales):
        wanted = wanted if scale == 1 else antialiased(wanted, axis, scale)
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=2e-5)
