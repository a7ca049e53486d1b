# SPDX-License-Identifier: Apache-2.0
"""Fourier transforms of known length, in one step or in two, and pictures cut to size."""

from __future__ import annotations

import numpy as np
import pytest

from relaxvm.relax.frontend.onnx.ops.signal import _factors

# One step: short, a prime, twice a prime.  Two: powers, odd ones, a long one.
LENGTHS = [12, 131, 262, 128, 400, 441, 1024, 6000]


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize(
    ("attributes", "parts"), [("", 1), ("", 2), ("onesided=1", 1), ("inverse=1", 2)]
)
def test_transforms_are_numpys(make_model, run_model_once, length, attributes, parts):
    attributes = attributes and f"<{attributes}>"
    text = f"g (float[n, {length}, {parts}] x) => (float[n, m, 2] y) {{ y = DFT{attributes}(x) }}"
    x = np.random.default_rng(0).standard_normal((3, length, parts)).astype(np.float32)
    signal = x[..., 0] + (1j * x[..., 1] if parts == 2 else 0)
    expected = (np.fft.ifft if "inverse" in attributes else np.fft.fft)(signal, axis=1)
    if "onesided" in attributes:
        expected = expected[:, : length // 2 + 1]
    found = run_model_once(make_model(text))({"x": x})[0]
    error = np.abs(found[..., 0] + 1j * found[..., 1] - expected).max()
    assert found.shape == (*expected.shape, 2)
    assert error <= 1e-6 * np.abs(expected).max()


def test_both_forms_are_tested():
    two_steps = {length for length in LENGTHS if _factors(length, length, True)}
    assert two_steps == {128, 400, 441, 1024, 6000}


def test_long_primes_times_few_keep_one_step():
    # The matrix of the longer factor would be as large as a model.
    assert _factors(8 * 1009 * 13, 8 * 1009 * 13, True) is not None
    assert _factors(8 * 10007, 8 * 10007, True) is None


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
