# SPDX-License-Identifier: Apache-2.0
"""Indices that are tensors, slices, diagonals and windows, each against NumPy."""

import numpy as np
import pytest

from relaxvm import topi

from .conftest import run

RNG = np.random.default_rng(5)
X, Y = RNG.random((4, 6), "f4"), RNG.random((4, 6), "f4")
STACK = RNG.random((2, 4, 6), "f4")
ROWS = np.sort(X, 1)


def ints(*values):
    return np.array(values, "i4")


def searched(rows, values, side):
    return np.stack([np.searchsorted(r, v, side) for r, v in zip(rows, values)])


def dense(shape, places, values, default=0):
    result = np.full(shape, default, "f4")
    result[places] = values
    return result


@pytest.mark.parametrize(
    ("function", "arrays", "expected"),
    [
        (
            lambda x, i, j: topi.adv_index(x, [i, j]),
            [X, ints(1, 3), ints([2], [0])],
            X[ints(1, 3), ints([2], [0])],
        ),
        (topi.unravel_index, [ints(22, 41, 37), ints(7, 6)], ints([3, 6, 6], [4, 5, 1])),
        (
            lambda i: topi.unravel_index(i, (2, 3, 4)),
            [ints([23, 5], [13, 0])],
            np.stack(np.unravel_index(ints([23, 5], [13, 0]), (2, 3, 4))).astype("i4"),
        ),
        (topi.searchsorted, [ROWS, Y], searched(ROWS, Y, "left")),
        (lambda s, v: topi.searchsorted(s, v, True), [ROWS, X], searched(ROWS, X, "right")),
        (
            lambda s, v: topi.searchsorted(s, v, out_dtype="int32"),
            [ROWS[0], STACK],
            np.searchsorted(ROWS[0], STACK).astype("i4"),
        ),
        (
            lambda x, i: topi.take(x, i, 1, 1, "clip"),
            [X, ints([0, 1], [2, 3], [9, -1], [5, 5])],
            np.take_along_axis(X, ints([0, 1], [2, 3], [5, 0], [5, 5]), 1),
        ),
        (
            lambda x, i: topi.take(x, i, 2, 1, "wrap"),
            [STACK, ints([0, 7], [-1, 3])],
            np.stack([STACK[0][:, [0, 1]], STACK[1][:, [5, 3]]]),
        ),
        (lambda x, i: topi.gather_nd(x, i, 1), [X, ints([1, 2, 3, 0])], X[range(4), [1, 2, 3, 0]]),
        (
            topi.matrix_set_diag,
            [X, Y[0, :4].copy()],
            np.where(np.eye(4, 6), Y[0, [0, 1, 2, 3, 3, 3]], X),
        ),
        (
            lambda i, v: topi.sparse_to_dense(i, [2, 3], v),
            [ints([0, 0], [1, 2]), X[0, :2].copy()],
            dense((2, 3), ([0, 1], [0, 2]), X[0, :2]),
        ),
        (
            lambda i, v: topi.sparse_to_dense(i, [4], v, 9.0),
            [ints(0, 2), X[0, :2].copy()],
            dense(4, [0, 2], X[0, :2], 9),
        ),
        (
            lambda i, v, d: topi.sparse_to_dense(i, [4], v, d),
            [np.array(1, "i4"), np.array(3, "f4"), np.array(7, "f4")],
            dense(4, [1], 3, 7),
        ),
        (
            lambda x: topi.sliding_window(x, 0, [2, 3], [1, 2]),
            [X],
            np.lib.stride_tricks.sliding_window_view(X, (2, 3))[:, ::2],
        ),
        (
            lambda x: topi.sliding_window(x, -1, [3], [1]),
            [X],
            np.lib.stride_tricks.sliding_window_view(X, 3, 1),
        ),
    ],
)
def test_agrees_with_numpy(function, arrays, expected):
    result = run(function, *arrays)
    assert result.dtype == expected.dtype
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(
    ("begin", "end", "strides"),
    [
        ((1, 2), (3, 4), (1, 1)),
        ((-1, 5), (0, 0), (-2, -3)),
        ((0, -5), (4, -1), (3, 2)),
        ((9, -9), (0, 9), (-2, 4)),
        ((2,), (4,), (1,)),
    ],
)
def test_slices_are_read_and_set_by_tensors(begin, end, strides):
    part = tuple(slice(*bounds) for bounds in zip(begin, end, strides))
    bounds = [ints(*b) for b in (begin, end, strides)]
    expected = X.copy()
    expected[part] = Y[part]
    np.testing.assert_array_equal(run(topi.strided_set, X, Y[part].copy(), *bounds), expected)

    def read(x, b, e, s):
        return topi.dynamic_strided_slice(x, b, e, s, X[part].shape)

    np.testing.assert_array_equal(run(read, X, *bounds), X[part])


def test_slices_are_set_by_numbers():
    expected = X.copy()
    expected[1:3] = Y[:2]
    result = run(lambda x, v: topi.strided_set(x, v, [1], [3]), X, Y[:2].copy())
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("align", ["RIGHT_LEFT", "LEFT_RIGHT", "LEFT_LEFT", "RIGHT_RIGHT"])
@pytest.mark.parametrize(("rows", "columns", "band"), [(4, 6, (-2, 3)), (6, 4, (-4, 1))])
def test_bands_of_diagonals_are_aligned(align, rows, columns, band):
    data = RNG.random((2, rows, columns), "f4")
    count = band[1] - band[0] + 1
    diagonals = RNG.random((2, count, 4), "f4")
    expected = data.copy()
    above, below = align.split("_")
    for k in range(band[0], band[1] + 1):
        length = min(rows + min(k, 0), columns - max(k, 0))
        skipped = 4 - length if (above if k >= 0 else below) == "RIGHT" else 0
        for n in range(length):
            row, column = n - min(k, 0), n + max(k, 0)
            expected[:, row, column] = diagonals[:, band[1] - k, skipped + n]
    result = run(lambda x, d: topi.matrix_set_diag(x, d, band, align), data, diagonals)
    np.testing.assert_array_equal(result, expected)
