# SPDX-License-Identifier: Apache-2.0
"""Fourier transforms, against NumPy's."""

import numpy as np
import pytest

from relaxvm import topi

from .conftest import run

RNG = np.random.default_rng(6)


@pytest.mark.parametrize("inverse", [False, True])
def test_fourier_transforms_agree_with_numpy(inverse):
    real, imag = RNG.random((3, 7), "f4"), RNG.random((3, 7), "f4")
    parts = run(lambda r, i: topi.dft(r, i, inverse), real, imag)
    expected = (np.fft.ifft if inverse else np.fft.fft)(real + 1j * imag)
    np.testing.assert_allclose(parts[0], expected.real, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(parts[1], expected.imag, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("onesided", [False, True])
def test_short_time_transforms_agree_with_numpy(normalized, onesided):
    data, window = RNG.random((2, 12), "f4"), RNG.random((4,), "f4")
    frames = np.lib.stride_tricks.sliding_window_view(data, 4, 1)[:, ::3]
    spectra = (np.fft.rfft if onesided else np.fft.fft)(frames * window).transpose(0, 2, 1)
    expected = np.stack([spectra.real, spectra.imag], -1) / (2 if normalized else 1)

    def function(d, w):
        return topi.stft(d, 4, 3, 4, w, normalized, onesided, expected.shape)

    np.testing.assert_allclose(run(function, data, window), expected, rtol=1e-4, atol=1e-5)
