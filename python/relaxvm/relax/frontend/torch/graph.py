# SPDX-License-Identifier: Apache-2.0
"""What the rule of an operator sees of the program that is imported."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from relaxvm import relax, runtime, tirx
from relaxvm.relax import op

from .errors import UnsupportedProgram
from .symbols import Size, Symbols, same_size


def dtype_name(dtype: torch.dtype) -> str:
    """Our name of an element type; of a complex one, that of its parts."""
    if dtype.is_complex:
        return {torch.complex64: "float32", torch.complex128: "float64"}.get(dtype, "float16")
    name = str(dtype).removeprefix("torch.")
    if name.startswith("q"):
        raise UnsupportedProgram(f"tensors of {dtype}")
    return name


def array_of(tensor: torch.Tensor) -> np.ndarray:
    """The elements, in our memory or the tensor's own."""
    tensor = tensor.detach().cpu().contiguous()
    if tensor.dtype not in (torch.bfloat16,) and not str(tensor.dtype).startswith("torch.float8"):
        return tensor.numpy()
    bits = torch.int16 if tensor.dtype is torch.bfloat16 else torch.int8
    return tensor.view(bits).numpy().view(np.dtype(dtype_name(tensor.dtype)))


@dataclasses.dataclass(frozen=True)
class Complex:
    """A complex tensor: its parts, of one shape and element type."""

    real: Any
    imag: Any


class Graph:
    """One function that is being written.  `node` is the node whose rule runs, `args(node)` are its arguments."""

    def __init__(self, builder: relax.BlockBuilder, symbols: Symbols) -> None:
        self.builder = builder
        self.symbols = symbols
        self.node: Any = None
        self.args: Callable[[Any], list[Any]]
        self.is_pure = True  # no call with an effect was emitted

    # ---- emitting

    def emit(self, expr: Any) -> Any:
        if isinstance(expr, Complex):
            raise UnsupportedProgram("a complex tensor here; use torch.view_as_real before")
        return expr if isinstance(expr, relax.Var) else self.builder.emit(expr)

    def emit_effect(self, name: str, ty: Any) -> Any:
        """Calls a function of the VM that does not give the same each time."""
        self.is_pure = False
        return self.builder.emit(op.call_packed(name, ty_args=[ty]))

    def const(self, value: Any, dtype: str = "float32") -> Any:
        return relax.const(np.asarray(value, dtype=np.dtype(dtype)))

    def tensor(self, value: torch.Tensor) -> Any:
        if value.is_complex():
            value = value.detach().resolve_conj()
            return Complex(self.tensor(value.real), self.tensor(value.imag))
        return relax.const(runtime.tensor(array_of(value)))

    # ---- the node's results, as PyTorch found them

    @property
    def result(self) -> Any:
        """PyTorch's description of the result: a tensor without elements, or a tuple of them."""
        return self.node.meta["val"]

    def is_used(self, i: int) -> bool:
        """Does the program look at the i-th result?"""
        return any(user.args[1] == i and user.users for user in self.node.users)

    def result_dtype(self) -> str:
        value = self.result
        return dtype_name((value[0] if isinstance(value, (tuple, list)) else value).dtype)

    def result_shape(self) -> list[Size]:
        return self.symbols.shape(self.result.shape)

    # ---- expressions

    def shape(self, x: Any) -> list[Size]:
        if x.ty.shape is None:
            raise UnsupportedProgram("a tensor whose shape is not known")
        return [int(d) if isinstance(d, tirx.IntImm) else d for d in x.ty.shape.values]

    def rank(self, x: Any) -> int:
        return x.ty.ndim

    def dtype(self, x: Any) -> str:
        return str(x.ty.dtype)

    def is_tensor(self, value: Any) -> bool:
        return isinstance(value, relax.Expr) and isinstance(value.ty, relax.TensorType)

    def is_float(self, x: Any) -> bool:
        return self.dtype(x).startswith(("float", "bfloat"))

    def axis(self, x: Any, dim: int) -> int:
        rank = max(self.rank(x), 1)
        return dim + rank if dim < 0 else dim

    def axes(self, x: Any, dims: Sequence[int] | int | None) -> list[int]:
        """Of a reduction: all where none is named."""
        if dims is None or (not isinstance(dims, int) and len(dims) == 0) or not self.rank(x):
            return list(range(self.rank(x)))
        return [self.axis(x, d) for d in ([dims] if isinstance(dims, int) else dims)]

    def cast(self, x: Any, dtype: str) -> Any:
        """`x` as a tensor of this element type; numbers become scalars of it."""
        if not self.is_tensor(x):
            return self.number(x, dtype)
        return x if self.dtype(x) == dtype else self.emit(op.astype(x, dtype))

    def number(self, value: Any, dtype: str) -> Any:
        """A scalar tensor of a number, or of a size that is known while running."""
        if not isinstance(value, (bool, int, float)):
            count = op.shape_to_tensor(relax.ShapeExpr([value]))
            return self.cast(self.emit(op.reshape(self.emit(count), [])), dtype)
        if isinstance(value, float) and not dtype.startswith(("float", "bfloat")):
            value = int(value)
        return self.const(value, dtype)

    def agree(self, *values: Any, dtype: str | None = None) -> list[Any]:
        """Tensors and numbers as tensors of one element type: `dtype`, or PyTorch's common one."""
        return [self.cast(v, dtype or self.common_dtype()) for v in values]

    def common_dtype(self) -> str:
        """The element type in which PyTorch computes the node's first two arguments."""
        metas = [a.meta["val"] if isinstance(a, torch.fx.Node) else a for a in self.node.args[:2]]
        plain = [_plain(m) for m in metas]
        if not any(isinstance(p, torch.Tensor) for p in plain):
            return self.result_dtype()
        if len(plain) == 1:
            return dtype_name(plain[0].dtype)
        return dtype_name(torch.result_type(*plain))

    def checked(self, x: Any, shape: Sequence[Size]) -> Any:
        """`x`, whose shape PyTorch has checked."""
        return x

    def broadcast(self, x: Any, shape: Sequence[Size]) -> Any:
        same = self.rank(x) == len(shape) and all(
            same_size(a, b) for a, b in zip(self.shape(x), shape)
        )
        return x if same else self.emit(op.broadcast_to(x, list(shape)))


def _plain(value: Any) -> Any:
    """A stand-in that `torch.result_type` takes: it looks at element types and numbers alone."""
    if isinstance(value, torch.Tensor):
        return torch.empty([1] * value.dim(), dtype=value.dtype)
    if isinstance(value, torch.SymInt):
        return 1
    return 1.0 if isinstance(value, torch.SymFloat) else value
