# SPDX-License-Identifier: Apache-2.0
"""Layouts of arrays, and division as the operators have it: what the NumPy forms share."""

from __future__ import annotations

import re

import numpy as np

Array = np.ndarray


def trunc_divide(a: Array, b: Array) -> Array:
    """Integer quotient towards zero; 0 where b is 0."""
    a, b = np.broadcast_arrays(a, b)
    safe = np.where(b == 0, np.ones_like(b), b)
    quotient = np.floor_divide(a, safe)
    inexact = (np.remainder(a, safe) != 0) & ((a < 0) != (safe < 0))
    return np.where(b == 0, np.zeros_like(a), quotient + inexact.astype(a.dtype)).astype(a.dtype)


def _axes(layout: str) -> tuple[str, dict[str, int]]:
    """NCHW16c -> ("NCHWc", {"c": 16})"""
    blocks = {letter: int(size) for size, letter in re.findall(r"(\d+)([a-z])", layout)}
    return re.sub(r"\d", "", layout), blocks


def to_layout(x: Array, layout: str, order: str) -> Array:
    """Channel C * 16 + c of the one is that of the other."""
    have, _ = _axes(layout)
    want, blocks = _axes(order)
    plain = [c for c in have if c.isupper()]
    split = [c for outer in plain for c in (outer, outer.lower()) if c in have]
    x = np.transpose(x, [have.index(c) for c in split])
    sizes = dict(zip(split, x.shape))
    x = x.reshape([sizes[c] * sizes.get(c.lower(), 1) for c in plain])
    joined = []
    for outer, size in zip(plain, x.shape):
        block = blocks.get(outer.lower())
        joined += (
            [(outer, size)] if block is None else [(outer, size // block), (outer.lower(), block)]
        )
    x = x.reshape([size for _, size in joined])
    letters = [c for c, _ in joined]
    return np.transpose(x, [letters.index(c) for c in want])


def spatial_axes(layout: str) -> str:
    return "".join(c for c in "DHW" if c in layout)


def along(v: Array, axis: int, ndim: int) -> Array:
    return v.reshape([-1 if d == axis % ndim else 1 for d in range(ndim)])
