# SPDX-License-Identifier: Apache-2.0
"""Small modules around one attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import op
from ..block_builder import BlockBuilder
from ..expr import Expr, Var
from ..type import TensorType


def _attention(
    builder: BlockBuilder,
    parts: Sequence[Expr],
    bias: Expr | None,
    scale: float | None,
    causal_mask: str | None,
    window_size: int | None,
) -> Expr:
    query, key, value = parts
    call = op.nn.attention(
        query, key, value, bias=bias, scale=scale, causal_mask=causal_mask, window_size=window_size
    )
    return builder.emit(call)


def get_relax_attention_module(
    q_shape: Sequence[Any],
    k_shape: Sequence[Any],
    v_shape: Sequence[Any],
    *,
    dtype: str,
    bias_shape: Sequence[Any] | None = None,
    qk_scale: float | None = None,
    causal_mask: str | None = None,
    window_size: int | None = None,
) -> Any:
    """A module whose `main` is an attention of q, k and v, with a bias when it has a shape."""
    shapes = {"q": q_shape, "k": k_shape, "v": v_shape}
    params = [Var(name, TensorType(shape, dtype)) for name, shape in shapes.items()]
    bias = None if bias_shape is None else Var("bias", TensorType(bias_shape, dtype))
    builder = BlockBuilder()
    with builder.function("main", params if bias is None else [*params, bias]):
        with builder.dataflow():
            out = _attention(builder, params, bias, qk_scale, causal_mask, window_size)
            result = builder.emit_output(out)
        builder.emit_func_output(result)
    return builder.finalize()


def get_relax_stacked_attention_module(
    qkv: Any,
    b: int,
    s: int,
    n: int,
    h: int,
    h_v: int,
    op: str,
    bias: Any = None,
    qk_scale: float | None = None,
    single_shape: bool = False,
    layout: str = "BS3NH",
    causal_mask: str | None = None,
) -> Any:
    """A module whose `main` takes query, key and value out of one tensor of the shape and dtype of `qkv`, by op "split"
    or "strided_slice".  Layout BS3NH is [b, s, n h + n h + n h_v], SBN3H is [s, b, n, h + h + h_v]; single_shape
    reshapes all three alike.  ValueError for another op or layout."""
    if op not in ("split", "strided_slice"):
        raise ValueError(f"op is 'split' or 'strided_slice', not {op!r}")
    if layout not in ("BS3NH", "SBN3H"):
        raise ValueError(f"layout is 'BS3NH' or 'SBN3H', not {layout!r}")
    dtype = str(qkv.dtype)
    stacked = Var("qkv", TensorType(qkv.shape, dtype))
    bias_var = None if bias is None else Var("bias", TensorType(bias.shape, dtype))
    builder = BlockBuilder()
    with builder.function("main", [stacked] if bias_var is None else [stacked, bias_var]):
        with builder.dataflow():
            axis, width = (2, n * h) if layout == "BS3NH" else (3, h)
            parts = _parts(builder, stacked, op, axis, width)
            for i in range(3):
                if layout == "BS3NH":
                    shape = (b, s, n, h if i < 2 or single_shape else h_v)
                    parts[i] = builder.emit(_reshaped(parts[i](), shape))
                else:
                    parts[i] = builder.emit(_swapped(parts[i]()))
            out = _attention(builder, parts, bias_var, qk_scale, causal_mask, None)
            if layout == "SBN3H":
                out = builder.emit(_swapped(out))
            result = builder.emit_output(out)
        builder.emit_func_output(result)
    return builder.finalize()


def _parts(builder: BlockBuilder, stacked: Var, way: str, axis: int, width: int) -> list[Any]:
    """What emits each part when it is wanted."""
    if way == "split":
        pieces = builder.emit(op.split(stacked, [width, 2 * width], axis))
        return [lambda i=i: builder.emit(pieces[i]) for i in range(3)]
    total = int(stacked.ty.shape[axis])
    ends = [0, width, 2 * width, total]
    return [
        lambda i=i: builder.emit(op.strided_slice(stacked, [axis], [ends[i]], [ends[i + 1]], [1]))
        for i in range(3)
    ]


def _reshaped(x: Expr, shape: Sequence[int]) -> Expr:
    return op.reshape(x, shape)


def _swapped(x: Expr) -> Expr:
    return op.permute_dims(x, [1, 0, 2, 3])
