# SPDX-License-Identifier: Apache-2.0
"""Constant matrices of small integers in blocks along the sum, each with a scale and a zero point, and products with
them: the integers stay as small in memory as they are in the file (rvm.block_matmul)."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from relaxvm.relax import op

from .element_types import NARROW
from .graph import Graph, known

STRIP = 16  # columns that rvm.block_matmul keeps side by side; a block has a multiple of 16 codes
_BYTES = 4  # of its words
_WORTH_IT = 1 << 16  # numbers of a matrix that real ones would fetch from far


@dataclasses.dataclass
class BlockWeight:
    """(codes - zeros) * scales, of one column of a product in each row."""

    codes: np.ndarray  # [n, k], from 0 to 2 ** bits - 1
    bits: int
    block: int  # codes, the last block perhaps less
    scales: np.ndarray  # [n, blocks]
    zeros: np.ndarray | None = None  # [n, blocks]; None: 2 ** (bits - 1)


@dataclasses.dataclass
class StoredWeight:
    """What DequantizeLinear took: values along whose `axis` the blocks lie, `block` long."""

    values: np.ndarray
    scales: np.ndarray
    zeros: np.ndarray | None
    axis: int
    block: int
    bits: int

    def turned(self) -> StoredWeight:
        zeros = None if self.zeros is None else self.zeros.T
        return dataclasses.replace(
            self, values=self.values.T, scales=self.scales.T, zeros=zeros, axis=1 - self.axis
        )

    def as_right_side(self) -> BlockWeight | None:
        """Of a product, [k, n].  None: the blocks lie along the columns."""
        k, n = self.values.shape
        if self.axis == 1 and self.scales.size != 1:
            return None
        block = self.block or -(-k // STRIP) * STRIP
        signed = self.values.dtype.kind == "i"
        codes = self.values.T.astype(np.int16) + ((1 << (self.bits - 1)) if signed else 0)
        grid = lambda x: np.broadcast_to(x, (-(-k // block), n)).T
        zeros = None
        if self.zeros is not None or not signed:
            stored = np.zeros((1, 1)) if self.zeros is None else self.zeros
            zeros = grid(stored.astype(np.float32) + ((1 << (self.bits - 1)) if signed else 0))
        return BlockWeight(codes.astype(np.uint8), self.bits, block, grid(self.scales), zeros)


def note(g: Graph, x: Any, scale: Any, zero: Any, axis: int, block: int, elem_type: int) -> None:
    """Remembers a constant matrix that the node, a DequantizeLinear, makes real."""
    values, scales = known(x), known(scale)
    points = None if zero is None else known(zero)
    if values is None or scales is None or (zero is not None and points is None):
        return
    bits = NARROW[elem_type].bits if elem_type in NARROW else 8
    if values.dtype.name not in ("int8", "uint8") or values.ndim != 2 or values.size < _WORTH_IT:
        return
    if np.dtype(scales.dtype).name not in ("float16", "float32") or block % STRIP:
        return
    axis, shape = g.axis(axis, 2), list(values.shape)
    if not block:  # one scale for each index of `axis`, or one: blocks as long as the sum
        axis = 1 - axis
    shape[axis] = -(-shape[axis] // block) if block else 1
    if not block and scales.size == 1:
        shape = [1, 1]
    if not block and scales.ndim <= 1 and scales.size == np.prod(shape):
        scales, points = (None if a is None else a.reshape(shape) for a in (scales, points))
    if list(scales.shape) == shape and (points is None or list(points.shape) == shape):
        weight = StoredWeight(values, scales, points, axis, block, bits)
        g.block_weights[g.node.output[0]] = weight


def product_of(g: Graph, x: Any, i: int, transposed: bool = False) -> Any | None:
    """`x` times the node's input `i`, a matrix that was noted.  None: of another form."""
    stored = g.block_weights.get(g.node.input[i])
    if stored is None or g.dtype(x) not in ("float16", "float32"):
        return None
    if g.dtype(x) != np.dtype(stored.scales.dtype).name or not g.shape(x):
        return None
    weight = (stored.turned() if transposed else stored).as_right_side()
    return None if weight is None else product(g, x, weight)


def product(g: Graph, x: Any, weight: BlockWeight, rounds: bool = False) -> Any:
    """x times the transposed weight, in the type of `x`; `rounds`: each block of x is rounded to bytes first."""
    n, k = weight.codes.shape
    dtype, shape = g.dtype(x), [*g.shape(x)[:-1], k]
    x = g.emit(op.reshape(g.checked(x, shape), [g.product(shape[:-1]), k]))
    x, codes = g.as_type(x, "float32"), weight.codes
    if missing := -k % weight.block:
        x = g.emit(op.nn.pad(x, pad_width=[0, 0, 0, missing], pad_value=0.0))
        codes = np.pad(codes, [(0, 0), (0, missing)])
    grids = [weight.scales] if weight.zeros is None else [weight.scales, weight.zeros]
    words, *grids = (
        _strips(_words(codes, weight.bits)),
        *(_strips(grid.astype(np.float32)) for grid in grids),
    )
    y = op.rvm.block_matmul(
        x,
        g.constant(words),
        *map(g.constant, grids),
        bits=weight.bits,
        columns=n,
        bytes=rounds,
    )
    return g.as_type(g.emit(op.reshape(g.emit(y), [*shape[:-1], n])), dtype)


def _words(codes: np.ndarray, bits: int) -> np.ndarray:
    """[N, k] -> [N, k bits / 32]: code 4 p + b of a word begins at bit 8 b + bits p."""
    parts = 8 // bits
    grouped = codes.reshape(codes.shape[0], -1, parts, _BYTES).astype(np.uint8)
    data = np.zeros((grouped.shape[0], grouped.shape[1], _BYTES), np.uint8)
    for p in range(parts):
        data |= grouped[:, :, p] << (bits * p)
    return data.view("<i4")[:, :, 0]


def _strips(rows: np.ndarray) -> np.ndarray:
    """[N, m] -> [strips, m, 16], with zeros for what the last strip lacks."""
    strips = -(-rows.shape[0] // STRIP)
    full = np.zeros((strips * STRIP, rows.shape[1]), rows.dtype)
    full[: rows.shape[0]] = rows
    return np.ascontiguousarray(full.reshape(strips, STRIP, -1).transpose(0, 2, 1))
