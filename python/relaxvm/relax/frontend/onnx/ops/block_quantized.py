# SPDX-License-Identifier: Apache-2.0
"""Products with weights of a few bits in blocks (com.microsoft): codes as they lie, for rvm.block_matmul."""

from __future__ import annotations

import numpy as np
import onnx

from relaxvm.relax import op

from ..block_weights import STRIP, BlockWeight, product
from ..errors import InvalidModel, UnsupportedModel
from ..graph import Graph
from ..registry import Array, Expr, onnx_op


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
    codes = unpacked(packed.reshape(N, -1), bits)[:, :K]
    if zeros is not None and zeros.dtype == np.uint8:
        zeros = unpacked(zeros.reshape(N, -1), bits)[:, :blocks]
    grid = None if zeros is None else zeros.reshape(N, blocks)
    weight = BlockWeight(codes, bits, block_size, scales.reshape(N, blocks), grid)
    y = product(g, x, weight, rounds=accuracy_level == 4 and bits != 2)
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
        flat = unpacked(zeros.reshape(-1, zeros.shape[-1]), bits)[:, : scales.shape[-1]]
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


def unpacked(data: np.ndarray, bits: int) -> np.ndarray:
    parts = [(data >> shift) & ((1 << bits) - 1) for shift in range(0, 8, bits)]
    return np.stack(parts, axis=-1).reshape(data.shape[0], -1)
