# SPDX-License-Identifier: Apache-2.0
"""NumPy references of operators whose weights are bytes."""

from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray


def quantized_lstm(x: Array, r: Array, sums: Array, scales: Array, zeros: Array, h: Array, c: Array, lengths: Any,  # fmt: skip
    peepholes: Any, activations: str, alpha: Sequence[float], beta: Sequence[float], clip: float, direction: str,
    input_forget: bool) -> tuple[Array, Array, Array]:  # fmt: skip
    assert activations == "Sigmoid Tanh Tanh"
    sigmoid = lambda v: 1 / (1 + np.exp(-v.astype("float64")))
    bound = (lambda v: np.clip(v, -clip, clip)) if clip > 0 else (lambda v: v)
    steps, batch, directions, blocks, gates, width = x.shape
    hidden, units = h.shape[2], blocks * width
    y = np.zeros((steps, directions, batch, hidden))
    last_h, last_c = h.copy(), c.copy()
    flat = lambda v: v.transpose(1, 0, 2).reshape(v.shape[1], units)
    ends = np.full(batch, steps) if lengths is None else np.minimum(lengths, steps)
    for d in range(directions):
        # [blocks, words, gates, width, 4] -> [gates, 4 words, units]
        split = np.ascontiguousarray(r[d]).view("int8").reshape(*r[d].shape, 4)
        weights = split.transpose(2, 4, 1, 0, 3).reshape(gates, -1, units).astype("int64")
        p = np.zeros((3, units)) if peepholes is None else flat(peepholes[d])
        state = np.zeros((batch, units), "float32")
        cell = np.zeros((batch, units))
        state[:, :hidden], cell[:, :hidden] = h[d], c[d]
        for t in range(steps):
            low, high = min(state.min(initial=0), 0), max(state.max(initial=0), 0)
            scale = np.float32(1) if low == high else (high - low) / np.float32(255)
            zero = np.clip(np.round(-low / scale), 0, 255)
            q = np.clip(np.round(state / scale) + zero, 0, 255).astype("int64")
            zero = int(zero)
            dots = [q @ weights[g] for g in range(gates)]
            rows = (q.sum(1) - zero * q.shape[1])[:, None]
            parts = [
                (dots[g] - zero * flat(sums[d])[g] - flat(zeros[d])[g] * rows) * (scale * flat(scales[d])[g])
                for g in range(gates)
            ]  # fmt: skip
            new = np.zeros_like(state)
            for b in range(batch):
                if t >= ends[b]:
                    continue
                backwards = direction == "reverse" or (direction == "bidirectional" and d == 1)
                at = ends[b] - 1 - t if backwards else t
                pre = [x[at, b, d, :, g].reshape(units) + parts[g][b] for g in range(gates)]
                i = sigmoid(bound(pre[0] + p[0] * cell[b]))
                forget = 1 - i if input_forget else sigmoid(bound(pre[2] + p[2] * cell[b]))
                cell[b] = forget * cell[b] + i * np.tanh(bound(pre[3]))
                out = sigmoid(bound(pre[1] + p[1] * cell[b])) * np.tanh(cell[b])
                new[b, :hidden] = out[:hidden]
                y[at, d, b] = last_h[d, b] = out[:hidden]
            state = new
        last_c[d] = cell[:, :hidden]
    return y, last_h, last_c


def block_matmul(
    x: Array, words: Array, scales: Array, zeros: Any, bits: int, columns: int, bytes: bool
) -> Array:
    strips, count, width = words.shape
    blocks, codes = scales.shape[1], 32 // bits
    places = [8 * (i % 4) + bits * (i // 4) for i in range(codes)]
    code = np.stack([(words >> place) & ((1 << bits) - 1) for place in places], axis=2)
    code = code.reshape(strips, blocks, count * codes // blocks, width)
    middle = 2 ** (bits - 1) if zeros is None else zeros[:, :, None]
    right = ((code - middle) * scales.astype("float64")[:, :, None]).transpose(1, 2, 0, 3)
    left = x.reshape(x.shape[0], blocks, count * codes // blocks).astype("float64")
    if bytes:
        most = np.abs(x.reshape(left.shape)).max(axis=2, keepdims=True, initial=0)
        per_step = np.where(
            most == 0, np.float32(0), np.float32(127) / np.where(most == 0, np.float32(1), most)
        )
        left = np.round(x.reshape(left.shape) * per_step).astype("float64") * (
            most / np.float32(127)
        )
    return (
        np.einsum("mbk,bksw->msw", left, right)
        .reshape(x.shape[0], strips * width)[:, :columns]
        .astype("float32")
    )
