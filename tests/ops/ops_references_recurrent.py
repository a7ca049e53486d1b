# SPDX-License-Identifier: Apache-2.0
"""NumPy forms of recurrent layers: one row, one step and one unit block after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Array = np.ndarray


# ---- recurrent layers, one row, one step and one unit block after the other


def _activation(name: str, a: float | None, b: float | None) -> Callable[[Array], Array]:
    pick = lambda value, default: default if value is None else value
    table: dict[str, Callable[[Array], Array]] = {
        "Relu": lambda x: np.maximum(x, 0),
        "Tanh": np.tanh,
        "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
        "Affine": lambda x: pick(a, 1.0) * x + pick(b, 0.0),
        "LeakyRelu": lambda x: np.where(x < 0, pick(a, 0.01) * x, x),
        "ThresholdedRelu": lambda x: np.where(x > pick(a, 1.0), x, 0),
        "ScaledTanh": lambda x: pick(a, 1.0) * np.tanh(pick(b, 1.0) * x),
        "HardSigmoid": lambda x: np.clip(pick(a, 0.2) * x + pick(b, 0.5), 0, 1),
        "Elu": lambda x: np.where(x < 0, pick(a, 1.0) * np.expm1(x), x),
        "Softsign": lambda x: x / (1 + np.abs(x)),
        "Softplus": lambda x: np.logaddexp(0, x),
    }
    return table[name]


def _recurrent(x: Array, r: Array, states: Sequence[Array], lengths: Array | None, activations: str, alpha: Sequence[float],  # fmt: skip
    beta: Sequence[float], clip: float, direction: str, cell: Callable[..., tuple[Array, ...]]) -> tuple[Array, ...]:  # fmt: skip
    names = activations.split()
    at = lambda values, i: values[i] if i < len(values) else None
    functions = [_activation(n, at(alpha, i), at(beta, i)) for i, n in enumerate(names)]
    steps, batch, directions, blocks, gates, width = x.shape
    hidden = r.shape[2]
    bound = (lambda v: np.clip(v, -clip, clip)) if clip > 0 else (lambda v: v)
    y = np.zeros((steps, directions, batch, hidden))
    last = [s.copy() for s in states]
    for d in range(directions):
        weights = r[d].transpose(2, 1, 0, 3).reshape(gates, hidden, blocks * width)[:, :, :hidden]
        inputs = x[:, :, d].transpose(3, 0, 1, 2, 4).reshape(gates, steps, batch, blocks * width)
        backwards = direction == "reverse" or (direction == "bidirectional" and d == 1)
        for b in range(batch):
            n = steps if lengths is None else min(int(lengths[b]), steps)
            now = tuple(s[d, b] for s in states)
            for t in reversed(range(n)) if backwards else range(n):
                now = cell(inputs[:, t, b, :hidden], weights, now, functions, bound, d)
                y[t, d, b] = now[0]
            for s, value in zip(last, now, strict=True):
                s[d, b] = value
    return (y, *last)


def lstm(x: Array, r: Array, h: Array, c: Array, lengths: Array | None, peepholes: Array | None, activations: str,  # fmt: skip
    alpha: Sequence[float], beta: Sequence[float], clip: float, direction: str, input_forget: bool) -> tuple[Array, ...]:  # fmt: skip
    hidden = r.shape[2]

    def cell(xs: Array, w: Array, now: Any, f: Any, bound: Any, d: int) -> tuple[Array, ...]:
        old_h, old_c = now
        pre = [xs[g] + old_h @ w[g] for g in range(4)]
        p = np.zeros((3, hidden))
        if peepholes is not None:
            p = peepholes[d].transpose(1, 0, 2).reshape(3, -1)[:, :hidden]
        i = f[0](bound(pre[0] + p[0] * old_c))
        forget = 1 - i if input_forget else f[0](bound(pre[2] + p[2] * old_c))
        new_c = forget * old_c + i * f[1](bound(pre[3]))
        o = f[0](bound(pre[1] + p[1] * new_c))
        return o * f[2](new_c), new_c

    return _recurrent(x, r, [h, c], lengths, activations, alpha, beta, clip, direction, cell)


def gru(x: Array, r: Array, h: Array, bias: Array, lengths: Array | None, activations: str, alpha: Sequence[float],  # fmt: skip
    beta: Sequence[float], clip: float, direction: str, linear_before_reset: bool) -> tuple[Array, ...]:  # fmt: skip
    hidden = r.shape[2]

    def cell(xs: Array, w: Array, now: Any, f: Any, bound: Any, d: int) -> tuple[Array, ...]:
        (old,) = now
        z, reset = f[0](bound(xs[0] + old @ w[0])), f[0](bound(xs[1] + old @ w[1]))
        extra = bias[d].reshape(-1)[:hidden]
        inner = reset * (old @ w[2] + extra) if linear_before_reset else (reset * old) @ w[2]
        return ((1 - z) * f[1](bound(xs[2] + inner)) + z * old,)

    return _recurrent(x, r, [h], lengths, activations, alpha, beta, clip, direction, cell)


def rnn(x: Array, r: Array, h: Array, lengths: Array | None, activations: str, alpha: Sequence[float], beta: Sequence[float],  # fmt: skip
    clip: float, direction: str) -> tuple[Array, ...]:  # fmt: skip
    def cell(xs: Array, w: Array, now: Any, f: Any, bound: Any, d: int) -> tuple[Array, ...]:
        return (f[0](bound(xs[0] + now[0] @ w[0])),)

    return _recurrent(x, r, [h], lengths, activations, alpha, beta, clip, direction, cell)
