# SPDX-License-Identifier: Apache-2.0
"""Convolutions by the names of their layouts, against one reference in NumPy."""

import inspect

import numpy as np
import pytest

from relaxvm import topi

from .conftest import run

RNG = np.random.default_rng(7)
IMAGE = RNG.random((2, 4, 7, 6), "f4")
KERNEL = RNG.random((6, 2, 3, 3), "f4")
SPACE = {1: "W", 2: "HW", 3: "DHW"}


def convolved(data, weight, strides=1, padding=0, groups=1):
    """A convolution of NC.. by OI..; padding is one number, or (begin, end) for each axis."""
    space = data.ndim - 2
    steps = [strides] * space if isinstance(strides, int) else strides
    around = [(padding, padding)] * space if isinstance(padding, int) else padding
    padded = np.pad(data, [(0, 0), (0, 0), *around])
    axes = tuple(range(2, 2 + space))
    windows = np.lib.stride_tricks.sliding_window_view(padded, weight.shape[2:], axes)
    windows = windows[(slice(None), slice(None), *(slice(None, None, s) for s in steps))]
    kinds = list(range(4, 4 + 2 * space))
    outer, inner = kinds[:space], kinds[space:]
    parts = [
        np.einsum(w, [0, 1, *outer, *inner], k, [2, 1, *inner], [0, 2, *outer])
        for w, k in zip(np.split(windows, groups, 1), np.split(weight, groups, 0))
    ]
    return np.concatenate(parts, 1)


def transposed(data, weight, strides, cut, extra, groups=1):
    """The transposed convolution of NC.. by IO..: `cut` is (begin, end) and `extra` what is added, per axis."""
    space = data.ndim - 2
    spread = np.zeros(
        (*data.shape[:2], *((n - 1) * s + 1 for n, s in zip(data.shape[2:], strides))), "f4"
    )
    spread[(slice(None), slice(None), *(slice(None, None, s) for s in strides))] = data
    flipped = np.flip(weight, tuple(range(2, 2 + space)))
    filters = np.concatenate([part.swapaxes(0, 1) for part in np.split(flipped, groups)])
    around = [
        (k - 1 - begin, k - 1 - end + more)
        for k, (begin, end), more in zip(weight.shape[2:], cut, extra)
    ]
    return convolved(spread, filters, 1, around, groups)


def arranged(array, source, target):
    return np.ascontiguousarray(array.transpose([source.index(c) for c in target]))


@pytest.mark.parametrize(
    ("name", "layout", "weights", "grouped"),
    [
        ("conv1d_ncw", "NCW", "OIW", False),
        ("conv1d_nwc", "NWC", "WIO", False),
        ("group_conv1d_ncw", "NCW", "OIW", True),
        ("group_conv1d_nwc", "NWC", "WIO", True),
        ("conv2d_nchw", "NCHW", "OIHW", False),
        ("conv2d_nhwc", "NHWC", "HWIO", False),
        ("conv2d_hwcn", "HWCN", "HWIO", False),
        ("group_conv2d_nchw", "NCHW", "OIHW", True),
        ("group_conv2d_nhwc", "NHWC", "HWIO", True),
        ("conv3d_ncdhw", "NCDHW", "OIDHW", True),
        ("conv3d_ndhwc", "NDHWC", "DHWIO", True),
    ],
)
def test_names_tell_layouts(name, layout, weights, grouped):
    function = getattr(topi.nn, name)
    space = SPACE[len(layout) - 2]
    groups = 2 if grouped else 1
    data = RNG.random((2, 4, 5, 6, 7)[: len(layout)], "f4")
    kernel = RNG.random((6, 4 // groups, 3, 2, 3)[: len(layout)], "f4")
    first, second, steps = list(inspect.signature(function).parameters)[:3]
    assert (first, second, steps) == (
        ("data", "kernel", "strides") if space == "W" else ("Input", "Filter", "stride")
    )
    more = {"groups": groups} if grouped else {}

    def layer(x, w):
        return function(**{first: x, second: w, steps: 2}, padding=1, dilation=1, **more)

    result = run(
        layer, arranged(data, "NC" + space, layout), arranged(kernel, "OI" + space, weights)
    )
    expected = convolved(data, kernel, 2, 1, groups)
    np.testing.assert_allclose(arranged(result, layout, "NC" + space), expected, rtol=1e-4)


def test_the_layout_may_be_a_parameter():
    plain = convolved(IMAGE, KERNEL[:, :, :, :2].repeat(2, 1), 1, [(1, 1), (1, 0)])
    weight = KERNEL[:, :, :, :2].repeat(2, 1)

    def same(x, w):
        return topi.nn.conv2d(input=x, filter=w, strides=(1, 1), padding="SAME", dilation=1)

    # The odd element of an even kernel's padding stands in front.
    np.testing.assert_allclose(run(same, IMAGE, weight), plain, rtol=1e-4)
    last = run(
        lambda x, w: topi.nn.conv2d(x, w, 1, "SAME", 1, "HWCN"),
        arranged(IMAGE, "NCHW", "HWCN"),
        arranged(weight, "OIHW", "HWIO"),
    )
    np.testing.assert_allclose(arranged(last, "HWCN", "NCHW"), plain, rtol=1e-4)
    own = run(
        lambda x, w: topi.nn.conv(x, w, 1, 1, 1, 2, "NHWC", "OHWI"),
        arranged(IMAGE, "NCHW", "NHWC"),
        arranged(KERNEL, "OIHW", "OHWI"),
    )
    np.testing.assert_allclose(
        arranged(own, "NHWC", "NCHW"), convolved(IMAGE, KERNEL, 1, 1, 2), rtol=1e-4
    )


def test_depthwise_filters_work_on_their_channel_alone():
    weight = RNG.random((4, 2, 3, 3), "f4")
    expected = convolved(IMAGE, weight.reshape(8, 1, 3, 3), 1, 1, 4)
    both = run(lambda x, w: topi.nn.depthwise_conv2d_nchw(x, w, 1, 1, 1), IMAGE, weight)
    np.testing.assert_allclose(both, expected, rtol=1e-4)
    last = arranged(IMAGE, "NCHW", "NHWC")
    for layout in ("HWOI", "HWIO"):
        result = run(
            lambda x, w, layout=layout: topi.nn.depthwise_conv2d_nhwc(x, w, 1, 1, 1, layout),
            last,
            arranged(weight, "OIHW", layout),
        )
        np.testing.assert_allclose(arranged(result, "NHWC", "NCHW"), expected, rtol=1e-4)


@pytest.mark.parametrize(
    ("name", "space"),
    [("conv1d_transpose_ncw", 1), ("conv2d_transpose_nchw", 2), ("conv3d_transpose_ncdhw", 3)],
)
@pytest.mark.parametrize("groups", [1, 2])
def test_transposes(name, space, groups):
    data = RNG.random((1, 4, 4, 3, 5)[: 2 + space], "f4")
    weight = RNG.random((4, 3, 4, 3, 3)[: 2 + space], "f4")
    strides, extra = [2, 1, 2][:space], [1, 0, 0][:space]
    # "SAME" of extents 4, 3, 3.
    cut = [(2, 1), (1, 1), (1, 1)][:space]
    full = name if groups == 1 else f"group_{name}"
    more = [] if groups == 1 else [groups]

    def layer(x, w):
        steps = strides[0] if space == 1 else strides
        return getattr(topi.nn, full)(x, w, steps, "SAME", "float32", extra, *more)

    expected = transposed(data, weight, strides, cut, extra, groups)
    np.testing.assert_allclose(run(layer, data, weight), expected, rtol=1e-4)
