# SPDX-License-Identifier: Apache-2.0
"""Rotary position embedding of queries and keys; `rope_scaling` is that of a model's configuration."""

from __future__ import annotations

from typing import Any

from relaxvm.ir.expr import Expr
from relaxvm.tirx import PrimFunc, const

from ..op import tensor_ir_op
from ..tensor import Tensor
from .kv_cache.copies import split_rotary as llama_rope_with_position_map
from .kv_cache.program import PARALLEL, Memory, Program, cast
from .kv_cache.rope import Rotation, Scaling

__all__ = ["llama_rope", "llama_rope_with_position_map"]


def llama_rope(
    qkv: Tensor,
    total_seq_len: Expr,
    theta: float,
    scale: float,
    num_q_heads: int,
    num_kv_heads: int,
    rope_scaling: Scaling | None,
    rotary_dim: int | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Splits (batch, tokens, heads, size) into queries, keys and values, and rotates queries and keys.

    The tokens are the last of `total_seq_len`.  `rotary_dim` leaves the other elements of a head as they are.
    """
    batch, tokens, heads, size = qkv.shape
    if heads != num_q_heads + 2 * num_kv_heads:
        raise ValueError(
            f"llama_rope: {heads} heads are not {num_q_heads} of queries and {num_kv_heads} each of keys and values"
        )
    rotary = size if rotary_dim is None else rotary_dim
    program = _program(
        (num_q_heads, num_kv_heads), (size, rotary), theta, scale, qkv.dtype, rope_scaling
    )
    counts = (num_q_heads, num_kv_heads, num_kv_heads)
    out = [Tensor.placeholder((batch, tokens, count, size), qkv.dtype) for count in counts]
    return tuple(tensor_ir_op(program, "llama_rope", [qkv, total_seq_len], out))


def _program(
    heads: tuple[int, int],
    sizes: tuple[int, int],
    theta: float,
    scale: float,
    dtype: str,
    scaling: Scaling | None,
) -> PrimFunc:
    (num_q, num_kv), (size, rotary) = heads, sizes
    if rotary > size:
        raise ValueError(f"{rotary} elements of {size} cannot be rotated")
    p = Program("llama_rope")
    batch, tokens = p.size("batch"), p.size("tokens")
    qkv = p.buffer("qkv", [batch, tokens, num_q + 2 * num_kv, size], dtype)
    total = p.scalar("total_seq_len", "int64")
    parts = [
        p.buffer(name, [batch, tokens, count, size], dtype)
        for name, count in (("q", num_q), ("k", num_kv), ("v", num_kv))
    ]
    rotation = Rotation(p, rotary, const(scale, "float32"), const(theta, "float32"), scaling)

    def copy(b: Any, t: Any, part: Memory, count: int, begin: int, end: int, shift: int) -> None:
        with p.loop("h", count) as h, p.loop("i", end - begin) as i:
            part[b, t, h, i + begin] = qkv[b, t, h + shift, i + begin]

    def rotate(b: Any, t: Any, part: Memory, count: int, shift: int) -> None:
        with p.loop("h", count) as h:
            rotation.apply(
                lambda i: cast("float32", qkv[b, t, h + shift, i]),
                lambda i, value: part.__setitem__((b, t, h, i), value),
            )

    with p.loop("b", batch) as b, p.loop("t", tokens, PARALLEL) as t:
        rotation.turn_to(t + (total - tokens))
        for part, count, shift in ((parts[0], num_q, 0), (parts[1], num_kv, num_q)):
            rotate(b, t, part, count, shift)
            if rotary < size:
                copy(b, t, part, count, rotary, size, shift)
        copy(b, t, parts[2], num_kv, 0, size, num_q + num_kv)
    return p.build().without_attr("global_symbol")  # private: models may rotate in several ways
