# SPDX-License-Identifier: Apache-2.0
"""Layers of topi.nn beside products and convolutions, each against NumPy."""

import numpy as np
import pytest

from relaxvm import tirx, topi

from .conftest import run

RNG = np.random.default_rng(8)
X, Y = RNG.random((4, 6), "f4") - np.float32(0.4), RNG.random((4, 6), "f4")
IMAGE = RNG.random((1, 4, 6, 6), "f4")
BLOCKED = RNG.random((1, 2, 3, 3, 4), "f4")
SIGNS = RNG.random((2, 64), "f4") - np.float32(0.5)


def dilated():
    result = np.full((7, 16), 7, "f4")
    result[::2, ::3] = X
    return result


def normalised():
    padded = np.pad(IMAGE**2, [(0, 0), (1, 1), (0, 0), (0, 0)])
    sums = padded[:, :-2] + padded[:, 1:-1] + padded[:, 2:]
    return IMAGE / (2 + 0.5 / 3 * sums) ** 0.75


def packed():
    bits = np.packbits(SIGNS >= 0, axis=-1)
    return np.ascontiguousarray(bits).view(">u4").astype("u4")


def batches():
    """Blocks of 2 by 3 pixels of NHWC, a row of 2 before the first one."""
    padded = np.pad(IMAGE[:, :, :5], [(0, 0), (0, 0), (1, 0), (0, 0)], constant_values=2)
    blocks = padded.transpose(0, 2, 3, 1).reshape(1, 3, 2, 2, 3, 4)
    return blocks.transpose(2, 4, 0, 1, 3, 5).reshape(6, 3, 2, 4)


@pytest.mark.parametrize(
    ("function", "arrays", "expected"),
    [
        (lambda x: topi.nn.dilate(x, [2, 3], 7.0), [X], dilated()),
        (lambda x: topi.nn.dilate(x, [1, 1]), [X], X),
        (lambda x: topi.nn.lrn(x, 3, alpha=0.5), [IMAGE], normalised()),
        (
            lambda x, a, b: topi.nn.scale_shift_nchw(Input=x, Scale=a, Shift=b),
            [IMAGE, X[:, 0].copy(), Y[:, 0].copy()],
            IMAGE * X[:, 0, None, None] + Y[:, 0, None, None],
        ),
        (
            lambda x, a, b: topi.nn.scale_shift_nhwc(Input=x, Scale=a, Shift=b),
            [IMAGE, X[0], Y[0]],
            IMAGE * X[0] + Y[0],
        ),
        (
            lambda x, a, b: topi.nn.scale_shift_nchwc(Input=x, Scale=a, Shift=b),
            [BLOCKED, X[:2, :4].copy(), Y[:2, :4].copy()],
            BLOCKED * X[:2, None, None, :4] + Y[:2, None, None, :4],
        ),
        (
            lambda x: topi.nn.unpack_NCHWc_to_nchw(x, "float32"),
            [BLOCKED],
            BLOCKED.transpose(0, 1, 4, 2, 3).reshape(1, 8, 3, 3),
        ),
        (topi.nn.binarize_pack, [SIGNS], packed()),
        (lambda x: topi.nn.binarize_pack(x, 0), [SIGNS.T.copy()], packed().T),
        (
            lambda x: topi.nn.mirror_pad(x, [1, 2], [0, 3]),
            [X],
            np.pad(X, [(1, 0), (2, 3)], "symmetric"),
        ),
        (
            lambda x: topi.nn.reflect_pad(x, [1, 2], [0, 3]),
            [X],
            np.pad(X, [(1, 0), (2, 3)], "reflect"),
        ),
        (lambda x: topi.nn.replicate_pad(x, [1, 2]), [X], np.pad(X, [(1, 1), (2, 2)], "edge")),
        (lambda x: topi.nn.circular_pad(x, [1, 2]), [X], np.pad(X, [(1, 1), (2, 2)], "wrap")),
        (
            lambda x: topi.nn.pad(x, [1, 0], pad_value=tirx.const(2.5, "float32"), attrs={}),
            [X],
            np.pad(X, [(1, 1), (0, 0)], constant_values=2.5),
        ),
        (
            lambda x: topi.nn.space_to_batch_nd(x, [2, 3], [1, 0], [0, 0], 2.0),
            [IMAGE[:, :, :5].transpose(0, 2, 3, 1).copy()],
            batches(),
        ),
        (
            lambda x: topi.nn.batch_to_space_nd(x, [2, 3], [1, 0], [0, 0]),
            [batches()],
            IMAGE[:, :, :5].transpose(0, 2, 3, 1),
        ),
        (
            lambda x, y: topi.nn.fifo_buffer(x, y, 1),
            [X[:, :2].copy(), Y],
            np.concatenate([Y[:, 2:], X[:, :2]], 1),
        ),
    ],
)
def test_agrees_with_numpy(function, arrays, expected):
    result = run(function, *arrays)
    assert result.dtype == expected.dtype
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


def test_pools_have_gradients():
    grads = RNG.random((1, 4, 3, 3), "f4")
    shape = [[2, 2], [2, 2], [0, 0, 0, 0]]
    means = run(lambda g, x: topi.nn.pool_grad(g, x, *shape, "avg"), grads, IMAGE)
    np.testing.assert_allclose(means, grads.repeat(2, 2).repeat(2, 3) / 4, rtol=1e-5)
    maxima = run(lambda g, x: topi.nn.pool_grad(g, x, *shape, "max"), grads, IMAGE)
    greatest = IMAGE.reshape(1, 4, 3, 2, 3, 2).max((3, 5)).repeat(2, 2).repeat(2, 3)
    expected = np.where(greatest == IMAGE, grads.repeat(2, 2).repeat(2, 3), 0)
    np.testing.assert_allclose(maxima, expected, rtol=1e-5)


def test_space_goes_to_depth_and_back():
    def there_and_back(x):
        return topi.nn.depth_to_space(topi.nn.space_to_depth(x, 2), 2)

    np.testing.assert_array_equal(run(there_and_back, IMAGE), IMAGE)
