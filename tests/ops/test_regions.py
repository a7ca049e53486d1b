# SPDX-License-Identifier: Apache-2.0
"""Regions of images: many channels of a cell at once, wherever they stand, give what each gives by itself."""

from __future__ import annotations

import numpy as np
import pytest

import relaxvm
from relaxvm import relax

RNG = np.random.default_rng(0)
ROWS = np.float32(
    [
        [0, 1, 1, 7, 6],
        [1, -9, -9, 4, 4],  # partly outside
        [0, 40, 40, 60, 60],  # outside
        [1, 5, 5, 5, 5],  # of no extent
        [0, 6, 6, 2, 2],  # turned round
    ]
)


def run(x: np.ndarray, rows: np.ndarray, num_threads: int = 1, **attrs) -> np.ndarray:
    params = [
        relax.Var(n, relax.TensorType(v.shape, str(v.dtype))) for n, v in (("x", x), ("r", rows))
    ]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        out = relax.op.vision.roi_align(*params, pooled_size=[3, 2], spatial_scale=0.75, **attrs)
        builder.emit_func_output(builder.emit(out))
    vm = relax.VirtualMachine(relaxvm.compile(builder.get()), relaxvm.cpu())
    vm.set_num_threads(num_threads)
    return vm["main"](*(relaxvm.runtime.tensor(v) for v in (x, rows))).numpy()


@pytest.mark.parametrize("channels", [1, 16, 37])
@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("samples", [-1, 2])
@pytest.mark.parametrize("aligned", [False, True])
def test_channels_last_give_the_same(channels, mode, samples, aligned):
    x = RNG.standard_normal((2, channels, 8, 9), dtype="float32")
    attrs = {"mode": mode, "sample_ratio": samples, "aligned": aligned}
    want = run(x, ROWS, **attrs).transpose(0, 2, 3, 1)
    last = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
    for num_threads in (1, 2):
        got = run(last, ROWS, num_threads, layout="NHWC", **attrs)
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("samples", [2, 6])  # few: planes are read where they lie
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_planes_give_the_same_as_channels_one_by_one(mode, samples, dtype):
    x = RNG.standard_normal((2, 37, 40, 30)).astype(dtype)
    rows = ROWS.astype(dtype)
    attrs = {"mode": mode, "sample_ratio": samples}
    some = [0, 15, 16, 36]
    ones = [run(np.ascontiguousarray(x[:, c : c + 1]), rows, **attrs) for c in some]
    for num_threads in (1, 2):
        got = run(x, rows, num_threads, **attrs)
        np.testing.assert_array_equal(got[:, some], np.concatenate(ones, 1))
    last = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
    np.testing.assert_array_equal(
        run(last, rows, layout="NHWC", **attrs).transpose(0, 3, 1, 2), got
    )


@pytest.mark.parametrize("shape", [(2, 0, 9, 16), (2, 8, 9, 0), (0, 8, 9, 16)])
def test_nothing_is_read_of_empty_images(shape):
    x = np.zeros(shape, "float32")
    got = run(x, ROWS, layout="NHWC")
    assert got.shape == (5, 3, 2, shape[3])
    assert not got.any()
    got = run(np.ascontiguousarray(x.transpose(0, 3, 1, 2)), ROWS)
    assert got.shape == (5, shape[3], 3, 2)
    assert not got.any()


def test_halves_are_summed_wide():
    x = RNG.standard_normal((2, 8, 9, 20)).astype("float16")
    rows = ROWS.astype("float16")
    wide = run(x.astype("float32"), rows.astype("float32"), layout="NHWC")
    np.testing.assert_array_equal(run(x, rows, layout="NHWC"), wide.astype("float16"))
