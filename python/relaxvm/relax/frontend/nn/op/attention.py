# SPDX-License-Identifier: Apache-2.0
"""Attention, and the embedding of the steps of a diffusion."""

from __future__ import annotations

import math

from relaxvm.relax import op
from relaxvm.relax.expr import Tuple, const

from ..tensor import Tensor, expr_of, wrap_nested


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    is_causal: bool | None = False,
    scale: float | None = None,
    name: str = "scaled_dot_product_attention",
) -> Tensor:
    """softmax(query key^T * scale + attn_mask) value; tensors are (batch, tokens, heads, size).

    `attn_mask` (batch, heads, queries, keys) is added; scale None: 1 / sqrt(size).
    """
    if attn_mask is not None and not str(attn_mask.dtype).startswith("float"):
        raise TypeError(
            f"attn_mask is added to scores, so it is a float tensor, not {attn_mask.dtype}"
        )
    call = op.nn.attention(
        expr_of(query),
        expr_of(key),
        expr_of(value),
        bias=None if attn_mask is None else expr_of(attn_mask),
        scale=scale,
        causal_mask="TopLeft" if is_causal else None,
    )
    return wrap_nested(call, name)


def get_timestep_embedding(
    x: Tensor,
    embedding_dim: int,
    flip_sin_to_cos: bool = False,
    downscale_freq_shift: float = 1,
    scale: float = 1,
    max_period: int = 10000,
    name: str = "get_timestep_embedding",
) -> Tensor:
    """Sines and cosines of steps (n,) at falling frequencies: (n, embedding_dim), cosines first when flipped."""
    half = embedding_dim // 2

    def bind(call: object) -> Tensor:
        return wrap_nested(call, "")

    def number(value: float) -> Tensor:
        return Tensor(_expr=const(value, "float32"))

    steps = bind(op.expand_dims(expr_of(bind(op.astype(expr_of(x), "float32"))), [1]))
    exponent = bind(op.arange(0, half, 1, "float32"))
    exponent = bind(op.multiply(expr_of(number(-math.log(max_period))), expr_of(exponent)))
    exponent = bind(op.divide(expr_of(exponent), expr_of(number(half - downscale_freq_shift))))
    frequency = bind(op.expand_dims(expr_of(bind(op.exp(expr_of(exponent)))), [0]))
    angle = bind(op.multiply(expr_of(steps), expr_of(frequency)))
    if scale != 1:
        angle = bind(op.multiply(expr_of(number(scale)), expr_of(angle)))
    order = (op.cos, op.sin) if flip_sin_to_cos else (op.sin, op.cos)
    waves = [expr_of(bind(wave(expr_of(angle)))) for wave in order]
    result = bind(op.concat(Tuple(waves), -1))
    if embedding_dim % 2:
        result = bind(op.nn.pad(expr_of(result), [0, 0, 0, 1]))
    return wrap_nested(op.astype(expr_of(result), "float32"), name)
