# SPDX-License-Identifier: Apache-2.0
"""Discrete Fourier transforms as sums, for any length."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .. import te, tirx
from ..te.tensor import Tensor, compute


def _circle(points: Any, dtype: str) -> tuple[Tensor, Tensor]:
    """Cosine and sine at `points` angles that divide the circle."""

    def angle(i: Any) -> Any:
        return i.astype("float64") * tirx.const(2 * math.pi, "float64") / _float(points)

    cosine = compute((points,), lambda i: tirx.cos(angle(i)).astype(dtype), name="T_cosine")
    sine = compute((points,), lambda i: tirx.sin(angle(i)).astype(dtype), name="T_sine")
    return cosine, sine


def _float(value: Any) -> Any:
    if isinstance(value, int):
        return tirx.const(value, "float64")
    return value.astype("float64")


def dft(re_data: Tensor, im_data: Tensor, inverse: Any) -> list[Tensor]:
    """[real, imaginary] part of the discrete Fourier transform along the last axis; the inverse one divides by n."""
    points, dtype = re_data.shape[re_data.ndim - 1], str(re_data.dtype)
    cosine, sine = _circle(points, dtype)
    backward = bool(getattr(inverse, "value", inverse))

    def part(of_cosine: Tensor, of_sine: Tensor, sign: int, name: str) -> Tensor:
        """The sum of of_cosine cos + sign of_sine sin."""
        k = te.reduce_axis((0, points), "k")

        def formula(*i: Any) -> Any:
            turn = tirx.floormod(i[-1] * k, points)
            along = of_cosine(*i[:-1], k) * cosine(turn)
            across = of_sine(*i[:-1], k) * sine(turn)
            return te.sum(along + across if sign > 0 else along - across, axis=k)

        total = compute(re_data.shape, formula, name=name)
        if not backward:
            return total
        count = _float(points).astype(dtype)
        return compute(re_data.shape, lambda *i: total(*i) / count, name=f"{name}_mean")

    sign = -1 if backward else 1
    return [
        part(re_data, im_data, sign, "T_dft_real"),
        part(im_data, re_data, -sign, "T_dft_imag"),
    ]


def stft(
    data: Tensor,
    n_fft: int,
    hop_length: int,
    win_length: int,
    window: Tensor,
    normalized: bool,
    onesided: bool,
    output_shape: Sequence[Any],
) -> Tensor:
    """Fourier transforms of windows `hop_length` apart: [batch, frequency, window, (real, imaginary)].

    `data` is [batch, time].  Frequencies count in turns per `win_length`; there are `n_fft`, or half of them and one
    with `onesided`, which is what `output_shape` says.  `normalized` divides by sqrt(n_fft).
    """
    if data.ndim != 2:
        raise ValueError(f"stft: data must be [batch, time], got {data.ndim} dimensions")
    dtype, length = str(data.dtype), int(win_length)
    cosine, sine = _circle(length, dtype)
    k = te.reduce_axis((0, length), "k")

    def formula(batch: Any, frequency: Any, frame: Any, part: Any) -> Any:
        turn = tirx.floormod(frequency * k, length)
        wave = tirx.Select(part == 0, cosine(turn), -sine(turn))
        return te.sum(data(batch, frame * hop_length + k) * window(k) * wave, axis=k)

    total = compute(list(output_shape), formula, name="T_stft")
    if not normalized:
        return total
    factor = tirx.const(1 / math.sqrt(int(n_fft)), dtype)
    return compute(list(output_shape), lambda *i: total(*i) * factor, name="T_stft_normalized")
