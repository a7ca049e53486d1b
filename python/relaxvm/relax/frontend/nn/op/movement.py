# SPDX-License-Identifier: Apache-2.0
"""Other shapes and orders of the same elements."""

from __future__ import annotations

from collections.abc import Sequence

from relaxvm.ir.expr import Expr, Var
from relaxvm.relax import op
from relaxvm.relax.expr import ShapeExpr, Tuple

from ..tensor import Tensor, current_builder, expr_of, wrap_nested

Shape = Sequence[int | Expr]


def unsqueeze(x: Tensor, dim: int, name: str = "unsqueeze") -> Tensor:
    """A new dimension of size 1 before `dim`."""
    return wrap_nested(op.expand_dims(expr_of(x), [dim]), name)


def squeeze(x: Tensor, axis: int = -1, name: str = "squeeze") -> Tensor:
    """Without a dimension of size 1."""
    return wrap_nested(op.squeeze(expr_of(x), axis), name)


def concat(x: list[Tensor], dim: int, name: str = "concat") -> Tensor:
    """Tensors one after another along `dim`."""
    return wrap_nested(op.concat(Tuple([expr_of(t) for t in x]), dim), name)


def chunk(x: Tensor, chunks: int, dim: int = 0, name: str = "chunk") -> tuple[Tensor, ...]:
    """Equal parts along `dim`."""
    return split(x, chunks, dim, name)


def split(
    ary: Tensor, indices_or_sections: int | Sequence[int], axis: int = 0, name: str = "split"
) -> tuple[Tensor, ...]:
    """Equal parts (a number), or parts that end at indices (a list)."""
    return wrap_nested(op.split(expr_of(ary), indices_or_sections, axis), name)


def broadcast_to(x: Tensor, shape: Shape, name: str = "broadcast_to") -> Tensor:
    """Dimensions of size 1 repeated."""
    return wrap_nested(op.broadcast_to(expr_of(x), ShapeExpr(list(shape))), name)


def permute_dims(x: Tensor, axes: list[int] | None = None, name: str | None = None) -> Tensor:
    """The dimensions in another order; None: reversed."""
    value = expr_of(x)
    if name is None:
        # A transposed weight of a linear layer keeps the layer's number in its name, as in TVM.
        own = value.name if isinstance(value, Var) else ""
        name = own.replace("linear", "matmul") if "linear" in own else "permute_dims"
    return wrap_nested(op.permute_dims(value, axes), name)


def permute(x: Tensor, axes: list[int] | None, name: str = "permute") -> Tensor:
    """The dimensions in another order; None: reversed."""
    return permute_dims(x, axes, name)


def reshape(x: Tensor, shape: Shape, name: str = "reshape") -> Tensor:
    """The elements in another shape; one size may be -1, 0 keeps a size."""
    value = expr_of(x)
    call = op.reshape(value, list(shape))
    if any(isinstance(size, int) and size < 1 for size in shape):
        # The sizes that -1 and 0 stand for are known by the type.
        call = op.reshape(value, current_builder().normalize(call).ty.shape)
    return wrap_nested(call, name)


def repeat(x: Tensor, repeats: int, axis: int | None = None, name: str = "repeat") -> Tensor:
    """Each element several times; axis None: of the flat tensor."""
    return wrap_nested(op.repeat(expr_of(x), repeats, axis), name)


def take(x: Tensor, indices: Tensor, axis: int | None = None, name: str = "take") -> Tensor:
    """Slices at indices; axis None: of a vector."""
    return wrap_nested(op.take(expr_of(x), expr_of(indices), axis), name)


def pad(
    x: Tensor, pad: list[int], mode: str = "constant", value: float = 0.0, name: str = "pad"
) -> Tensor:
    """More elements before and after, in pairs from the first dimension; mode "constant", "reflect", "replicate" or
    "circular"."""
    return wrap_nested(op.nn.pad(expr_of(x), pad, pad_value=value, pad_mode=mode), name)
