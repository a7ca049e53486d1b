# SPDX-License-Identifier: Apache-2.0
"""Fourier transforms of known length, in one step or in two."""

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
@pytest.mark.parametrize("size", [1, 90, 128, 200])
def test_signals_are_cut_and_filled_up(make_model, run_model_once, size, known):
    shape = f"[3, {size}, 2]" if known else "[n, s, 2]"
    text = f"g (float{shape} x) => (float[a, b, c] y) {{ y = DFT(x, length) }}"
    model = make_model(text, initializers={"length": np.array(128)})
    x = np.random.default_rng(0).standard_normal((3, size, 2)).astype(np.float32)
    found = run_model_once(model)({"x": x})[0]
    expected = np.fft.fft(x[..., 0] + 1j * x[..., 1], 128, axis=1)
    np.testing.assert_allclose(found[..., 0] + 1j * found[..., 1], expected, atol=3e-5)
