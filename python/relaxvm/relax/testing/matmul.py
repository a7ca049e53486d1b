# SPDX-License-Identifier: Apache-2.0
"""Small modules around one matmul."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .. import op
from ..block_builder import BlockBuilder
from ..expr import Expr, Var
from ..type import TensorType


def get_relax_matmul_module(
    x_shape: Sequence[Any],
    y_shape: Sequence[Any],
    in_dtype: str,
    out_dtype: str | None = None,
    transposed_y: bool = False,
    bias_shape: Sequence[Any] | None = None,
    activation: Callable[[Expr], Expr] | None = None,
    residual_bin_op: Callable[[Expr, Expr], Expr] | None = None,
    residual_activation: Callable[[Expr], Expr] | None = None,
) -> Any:
    """A module whose `main` multiplies x with y (given transposed when told so), adds a bias, applies an activation,
    and combines the result with x; each step only when it is asked for."""
    out_dtype = in_dtype if out_dtype is None else out_dtype
    x = Var("x", TensorType(x_shape, in_dtype))
    y = Var("y", TensorType(y_shape, in_dtype))
    params = [x, y]
    if bias_shape is not None:
        params.append(Var("bias", TensorType(bias_shape, out_dtype)))
    builder = BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            right: Expr = y
            if transposed_y:
                axes = list(range(len(y_shape) - 2)) + [-1, -2]
                right = builder.emit(op.permute_dims(y, axes))
            out: Expr = builder.emit(op.matmul(x, right, out_dtype=out_dtype))
            if bias_shape is not None:
                out = builder.emit(op.add(out, params[2]))
            if activation is not None:
                out = builder.emit(activation(out))
            if residual_bin_op is not None:
                out = builder.emit(residual_bin_op(out, x))
                if residual_activation is not None:
                    out = builder.emit(residual_activation(out))
            result = builder.emit_output(out)
        builder.emit_func_output(result)
    return builder.finalize()
