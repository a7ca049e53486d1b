# SPDX-License-Identifier: Apache-2.0
"""Sizes and crops of images, and their morphological dilation, against NumPy."""

import numpy as np
import pytest

from relaxvm import topi

from .conftest import run

RNG = np.random.default_rng(9)
IMAGE = RNG.random((2, 4, 6, 6), "f4")
SEQUENCE = RNG.random((2, 3, 8), "f4")
VOLUME = RNG.random((1, 2, 4, 4, 6), "f4")
BOXES = np.array([[0, 0, 1, 1], [-0.5, 0.2, 0.9, 1.2], [0.31, 0.12, 0.72, 0.77]], "f4")


def test_images_are_scaled():
    twice = run(lambda x: topi.nn.upsampling(x, 2, 3), IMAGE)
    np.testing.assert_array_equal(twice, IMAGE.repeat(2, 2).repeat(3, 3))
    named = run(lambda x: topi.nn.upsampling(x, 1, 1, output_shape=(2, 4, 12, 18)), IMAGE)
    np.testing.assert_array_equal(named, twice)
    half = run(lambda x: topi.image.resize2d(x, (0.0,) * 4, (3, 3)), IMAGE)
    np.testing.assert_allclose(half, IMAGE.reshape(2, 4, 3, 2, 3, 2).mean((3, 5)), rtol=1e-5)


def test_rows_and_volumes_are_scaled():
    half = run(lambda x: topi.image.resize1d(x, (0.0, 0.0), (4,)), SEQUENCE)
    np.testing.assert_allclose(half, SEQUENCE.reshape(2, 3, 4, 2).mean(3), rtol=1e-5)
    last = SEQUENCE.transpose(0, 2, 1).copy()
    half_last = run(lambda x: topi.image.resize1d(x, (0.0, 0.0), (4,), "NWC"), last)
    np.testing.assert_allclose(half_last, half.transpose(0, 2, 1), rtol=1e-5)
    halves = run(lambda x: topi.image.resize3d(x, (0.0,) * 6, (2, 2, 3)), VOLUME)
    means = VOLUME.reshape(1, 2, 2, 2, 2, 2, 3, 2).mean((3, 5, 7))
    np.testing.assert_allclose(halves, means, rtol=1e-5)
    doubled = run(
        lambda x: topi.nn.upsampling3d(x, 2, 1, 3, coordinate_transformation_mode="asymmetric"),
        VOLUME,
    )
    np.testing.assert_array_equal(doubled, VOLUME.repeat(2, 2).repeat(3, 4))


def test_cubic_weights_are_those_of_minus_three_quarters():
    impulse = np.zeros((1, 1, 9), "f4")
    impulse[0, 0, 4] = 1
    result = run(lambda x: topi.image.resize1d(x, (0.0, 0.0), (18,), method="cubic"), impulse)

    def keys(distance, a=-0.75):
        near = (a + 2) * distance**3 - (a + 3) * distance**2 + 1
        far = a * (distance**3 - 5 * distance**2 + 8 * distance - 4)
        return np.where(distance <= 1, near, np.where(distance < 2, far, 0))

    expected = keys(np.abs((np.arange(18) + 0.5) / 2 - 0.5 - 4))
    np.testing.assert_allclose(result[0, 0], expected, atol=1e-5)


def test_a_region_of_a_row_is_cropped():
    def crop(x):
        return topi.image.resize1d(
            x, (0.25, 0.75), (5,), coordinate_transformation_mode="tf_crop_and_resize"
        )

    places = np.linspace(0.25, 0.75, 5) * 7
    expected = [[np.interp(places, range(8), row) for row in rows] for rows in SEQUENCE]
    np.testing.assert_allclose(run(crop, SEQUENCE), expected, rtol=1e-5)


def cropped(data, boxes, images, size, outside, nearest):
    result = np.full((len(boxes), data.shape[1], *size), outside, "f4")
    high, wide = data.shape[2] - 1, data.shape[3] - 1
    for b, (top, left, bottom, right) in enumerate(boxes.astype("f8")):
        for r, y in enumerate(np.linspace(top * high, bottom * high, size[0])):
            for c, x in enumerate(np.linspace(left * wide, right * wide, size[1])):
                if not (0 <= y <= high and 0 <= x <= wide):
                    continue
                image = data[images[b]]
                if nearest:
                    result[b, :, r, c] = image[:, round(y), round(x)]
                    continue
                (i, v), (j, u) = ((int(p), p - int(p)) for p in (y, x))
                square = image[:, [i, min(i + 1, high)]][:, :, [j, min(j + 1, wide)]]
                result[b, :, r, c] = [1 - v, v] @ square @ [1 - u, u]
    return result


@pytest.mark.parametrize("method", ["bilinear", "nearest_neighbor"])
def test_boxes_are_cropped_to_one_size(method):
    images = np.array([0, 1, 1], "i4")
    expected = cropped(IMAGE, BOXES, images, (3, 5), 7, method != "bilinear")

    def crop(x, b, i):
        return topi.image.crop_and_resize(x, b, i, (3, 5), "NCHW", method, 7.0)

    np.testing.assert_allclose(run(crop, IMAGE, BOXES, images), expected, rtol=1e-4, atol=1e-5)

    def crop_last(x, b, i):
        return topi.image.crop_and_resize(x, b, i, (3, 5), "NHWC", method)

    last = run(crop_last, IMAGE.transpose(0, 2, 3, 1).copy(), BOXES, images)
    expected = np.where(expected == 7, 0, expected)
    np.testing.assert_allclose(last.transpose(0, 3, 1, 2), expected, rtol=1e-4, atol=1e-5)


def test_a_crop_of_one_pixel_is_the_middle_of_its_box():
    images = np.zeros(3, "i4")

    def crop(x, b, i):
        return topi.image.crop_and_resize(x, b, i, (1, 1))

    result = run(crop, IMAGE, BOXES[:1].copy(), images[:1])
    np.testing.assert_allclose(result[0, :, 0, 0], IMAGE[0, :, 2:4, 2:4].mean((1, 2)), rtol=1e-5)


def test_images_are_dilated_by_filters():
    weight = RNG.random((4, 3, 2), "f4")
    padded = np.pad(IMAGE, [(0, 0), (0, 0), (1, 1), (0, 1)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))[..., ::2]
    expected = (windows[:, :, ::2] + weight[:, None, None]).max((4, 5))

    def dilation(x, w):
        return topi.image.dilation2d_nchw(x, w, (2, 1), (1, 0, 1, 1), (1, 2))

    np.testing.assert_allclose(run(dilation, IMAGE, weight), expected, rtol=1e-5)

    def dilation_last(x, w):
        return topi.image.dilation2d_nhwc(x, w, (2, 1), (1, 0, 1, 1), (1, 2))

    last = run(dilation_last, IMAGE.transpose(0, 2, 3, 1).copy(), weight.transpose(1, 2, 0).copy())
    np.testing.assert_allclose(last.transpose(0, 3, 1, 2), expected, rtol=1e-5)
