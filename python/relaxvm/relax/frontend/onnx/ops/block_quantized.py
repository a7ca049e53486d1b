# SPDX-License-Identifier: Apache-2.0
"""Products with weights of a few bits in blocks (com.microsoft): codes as they lie, for rvm.block_matmul."""

from __future__ import annotations

import numpy as np
import onnx

from relaxvm.relax import op

from ..errors import InvalidModel, UnsupportedModel
from ..graph import Graph
from ..registry import Array, Expr, onnx_op

STRIP = 16  # columns that rvm.block_matmul keeps side by side
BYTES = 4  # of its words


@onnx_op("MatMulNBits", since=1, domain="com.microsoft")
def matmul_n_bits(
    g: Graph,
    x: Expr,
    packed: Array,
    scales: Array,
    zeros: Array | None = None,
    group_index: Array | None = None,
    bias: Expr | None = None,
    *,
    K: int,  # noqa: N803: ONNX's names
    N: int,
    accuracy_level: int = 0,
    bits: int = 4,
    block_size: int,
    weight_prepacked: int = 0,
) -> Expr:
    """x times a matrix of small integers in blocks, each with a scale and a zero point; lowest bits first.

    accuracy_level 4 lets each block of x be rounded to bytes.  ONNX Runtime's CPU provider does so for 4 and 8 bits.
    """
    if bits not in (2, 4, 8) or group_index is not None or weight_prepacked:
        raise UnsupportedModel("only plain blocks of 2, 4 or 8 bits are supported")
    if block_size < STRIP or block_size % STRIP:
        raise InvalidModel(f"block_size is a power of 2 from {STRIP} on, not {block_size}")
    blocks = -(-K // block_size)
    codes = _unpacked(packed.reshape(N, -1), bits)[:, : blocks * block_size]
    grid = [_strips(scales.reshape(N, blocks).astype(np.float32))]
    if zeros is not None:
        packs = zeros.dtype == np.uint8
        zeros = _unpacked(zeros.reshape(N, -1), bits)[:, :blocks] if packs else zeros
        grid.append(_strips(zeros.reshape(N, blocks).astype(np.float32)))
    dtype, shape = g.dtype(x), g.shape(x)
    x = g.emit(op.reshape(x, [g.product(shape[:-1]), K]))
    if dtype != "float32":
        x = g.emit(op.astype(x, "float32"))
    if missing := blocks * block_size - K:
        x = g.emit(op.nn.pad(x, pad_width=[0, 0, 0, missing], pad_value=0.0))
    words = g.constant(_strips(_words(codes, bits)))
    rounds = accuracy_level == 4 and bits != 2
    y = op.rvm.block_matmul(x, words, *map(g.constant, grid), bits=bits, columns=N, bytes=rounds)
    y = g.emit(op.reshape(g.emit(y), [*shape[:-1], N]))
    y = y if dtype == "float32" else g.emit(op.astype(y, dtype))
    return y if bias is None else op.add(y, bias)


@onnx_op("GatherBlockQuantized", since=1, domain="com.microsoft")
def gather_block_quantized(
    g: Graph,
    data: Array,
    indices: Expr,
    scales: Array,
    zeros: Array | None = None,
    *,
    bits: int = 4,
    block_size: int = 128,
    gather_axis: int = 0,
    quantize_axis: int = 1,
) -> Expr:
    """Rows of a table of small integers in blocks along its last axis, which is stored packed."""
    rank = data.ndim
    gather_axis, quantize_axis = g.axis(gather_axis, rank), g.axis(quantize_axis, rank)
    if quantize_axis != rank - 1 or gather_axis == quantize_axis:
        raise UnsupportedModel("only blocks along the last axis are supported")
    if data.dtype != np.uint8 or g.input_type(0) != onnx.TensorProto.UINT8:
        raise UnsupportedModel("only tables of uint8 are supported")
    if zeros is not None:
        flat = _unpacked(zeros.reshape(-1, zeros.shape[-1]), bits)[:, : scales.shape[-1]]
        zeros = flat.reshape(scales.shape).astype(scales.dtype)
    rows = lambda x: g.emit(op.take(g.constant(x), indices, axis=gather_axis))
    packed, scale = rows(data), rows(scales)
    if bits == 8:
        codes = packed
    else:
        byte = lambda v: g.constant(v, "uint8")
        mask = byte((1 << bits) - 1)
        parts = [op.bitwise_and(op.right_shift(packed, byte(i)), mask) for i in range(0, 8, bits)]
        codes = g.emit(op.stack([g.emit(part) for part in parts], axis=-1))
    blocks = scales.shape[-1]
    shape = g.shape(packed)[:-1]
    size = data.shape[-1] * 8 // bits
    if blocks * block_size != size:
        raise UnsupportedModel(f"{size} elements are no multiple of blocks of {block_size}")
    codes = g.emit(op.reshape(codes, [*shape, blocks, block_size]))
    middle = g.scalar(1 << (bits - 1), scale) if zeros is None else rows(zeros)
    if zeros is not None:
        middle = g.emit(op.expand_dims(middle, axis=[-1]))
    real = op.subtract(op.astype(codes, g.dtype(scale)), middle)
    real = g.emit(op.multiply(real, g.emit(op.expand_dims(scale, axis=[-1]))))
    return op.reshape(real, [*shape, size])


def _words(codes: np.ndarray, bits: int) -> np.ndarray:
    """[N, k] -> [N, k bits / 32]: code 4 p + b of a word begins at bit 8 b + bits p."""
    parts = 8 // bits
    grouped = codes.reshape(codes.shape[0], -1, parts, BYTES).astype(np.uint8)
    data = np.zeros((grouped.shape[0], grouped.shape[1], BYTES), np.uint8)
    for p in range(parts):
        data |= grouped[:, :, p] << (bits * p)
    return data.view("<i4")[:, :, 0]


def _strips(rows: np.ndarray) -> np.ndarray:
    """[N, m] -> [strips, m, 16], with zeros for what the last strip lacks."""
    strips = -(-rows.shape[0] // STRIP)
    full = np.zeros((strips * STRIP, rows.shape[1]), rows.dtype)
    full[: rows.shape[0]] = rows
    return np.ascontiguousarray(full.reshape(strips, STRIP, -1).transpose(0, 2, 1))


def _unpacked(data: np.ndarray, bits: int) -> np.ndarray:
    parts = [(data >> shift) & ((1 << bits) - 1) for shift in range(0, 8, bits)]
    return np.stack(parts, axis=-1).reshape(data.shape[0], -1)
