# SPDX-License-Identifier: Apache-2.0
"""What a model computes with while it is traced: tensors, parameters, objects; all stand for expressions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tvm_ffi

from relaxvm.ir.expr import Expr, IntImm, Var, is_prim_expr
from relaxvm.relax.block_builder import BlockBuilder
from relaxvm.relax.expr import Constant, ShapeExpr, TupleGetItem, const
from relaxvm.relax.type import AnyType, TensorType, TupleType
from relaxvm.runtime import from_dlpack
from relaxvm.runtime import tensor as make_tensor

from .operators import TensorOperators

_default_dtype = "float32"


def get_default_dtype() -> str:
    """The element type of parameters that name none."""
    return _default_dtype


def set_default_dtype(dtype: str) -> None:
    """Sets the element type of parameters that name none."""
    global _default_dtype
    _default_dtype = dtype


def current_builder() -> BlockBuilder:
    """The builder of the function that is being traced; RuntimeError when there is none."""
    builder = BlockBuilder.current()
    if builder is None:
        raise RuntimeError(
            "operators of nn are recorded, not run: call them in a method that export_tvm traces, or inside of"
            " BlockBuilder.function"
        )
    return builder


def bind(expr: Any, name: str = "") -> Var:
    """Binds an expression to a variable; dots of paths become underscores."""
    return current_builder().emit(expr, name.replace(".", "_"))


class Tensor(TensorOperators):
    """A value of a traced program, with a known element type and a known shape (sizes may be symbolic)."""

    _expr: Expr

    def __init__(self, *, _expr: Expr) -> None:
        ty = _expr.ty
        if not isinstance(ty, TensorType) or not isinstance(ty.shape, ShapeExpr):
            raise TypeError(f"nn.Tensor stands for a tensor of known shape, not for {ty}")
        self._expr = _expr

    @staticmethod
    def from_const(data: Any) -> Tensor:
        """A constant from a number, list or array."""
        return Tensor(_expr=const(data))

    @staticmethod
    def from_scalar(data: int | float, dtype: str) -> Tensor:
        """A constant without dimensions."""
        return Tensor(_expr=const(data, dtype))

    @staticmethod
    def from_ty(ty: TensorType, name: str = "tensor") -> Tensor:
        """An unbound tensor of a type."""
        return Tensor(_expr=Var(name, ty))

    @staticmethod
    def placeholder(shape: Sequence[int | str | Expr], dtype: str, name: str = "tensor") -> Tensor:
        """An unbound tensor, which says the type of a result; a string in `shape` is a symbolic size of that name."""
        return Tensor.from_ty(TensorType([_size(size, shape) for size in shape], dtype), name)

    @property
    def shape(self) -> list[int | Expr]:
        """Sizes: int, or an expression where symbolic."""
        sizes = self._expr.ty.shape.values
        return [int(s.value) if isinstance(s, IntImm) else s for s in sizes]

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return self._expr.ty.ndim

    @property
    def dtype(self) -> str:
        """The element type."""
        return self._expr.ty.dtype

    def __repr__(self) -> str:
        return f'{type(self).__name__ if type(self) is not Parameter else "Tensor"}({self.shape}, "{self.dtype}")'


def _size(size: int | str | Expr, shape: Sequence[Any]) -> int | Expr:
    if isinstance(size, str):
        return Var(size, "int64")
    if isinstance(size, (int, IntImm)) and not isinstance(size, bool):
        if int(size) < 0:
            raise ValueError(f"shape {list(shape)} has a negative size")
        return int(size)
    if isinstance(size, Expr) and is_prim_expr(size):
        if str(size.ty.dtype) != "int64":
            raise TypeError(f"sizes are int64, but {size} in {list(shape)} is {size.ty.dtype}")
        return size
    raise TypeError(f"a size is an int, a name or an integer expression, not {size!r} in {shape}")


class Parameter(Tensor):
    """A weight: a tensor with a name in its module, and a value once `data` is set."""

    attrs: dict[str, Any]

    def __init__(self, shape: Sequence[int | str | Expr], dtype: str | None = None) -> None:
        chosen = get_default_dtype() if dtype is None else dtype
        super().__init__(_expr=Tensor.placeholder(shape, chosen, "param")._expr)
        self._data: tvm_ffi.Tensor | None = None
        self.attrs = {}

    @property
    def data(self) -> tvm_ffi.Tensor | None:
        """The value, or None."""
        return self._data

    @data.setter
    def data(self, data: Any) -> None:
        """Sets the value from a NumPy array or a DLPack tensor, without a copy where possible; None removes it."""
        if data is None:
            self._data = None
            return
        if isinstance(data, np.ndarray):
            data = make_tensor(data)
        elif not isinstance(data, tvm_ffi.Tensor):
            if not hasattr(data, "__dlpack__"):
                raise TypeError(
                    f"a parameter's value is an array or a DLPack tensor, not {type(data)}"
                )
            data = from_dlpack(data.detach() if hasattr(data, "detach") else data)
        sizes = zip(self.shape, data.shape)
        if len(data.shape) != self.ndim or any(isinstance(s, int) and s != n for s, n in sizes):
            raise ValueError(
                f"the parameter has shape {self.shape}, the value {[int(s) for s in data.shape]}"
            )
        if str(data.dtype) != str(self.dtype):
            raise ValueError(f"the parameter holds {self.dtype}, the value {data.dtype}")
        self._data = data

    def to(self, dtype: str | None = None) -> None:
        """Changes the element type of a parameter without value."""
        if dtype is None:
            return
        if self._data is not None:
            raise ValueError(
                f"the parameter has a value in {self.dtype}; convert the value, not the parameter"
            )
        self._expr = Tensor.placeholder(self.shape, dtype, "param")._expr


class Object:
    """A value that is no tensor, such as a cache."""

    _expr: Var

    def __init__(self, *, _expr: Expr, _name: str) -> None:
        if not isinstance(_expr, Var):
            _expr = bind(_expr, _name)
        if not isinstance(_expr.ty, AnyType):
            raise TypeError(f"nn.Object stands for an object, not for {_expr.ty}")
        self._expr = _expr


class Effect:
    """State that methods take and give back besides their arguments and results: caches, the order of prints."""

    def emit_init(self, name_hint: str, builder: BlockBuilder) -> list[Var]:
        """Emits what makes the state; gives its variables."""
        raise NotImplementedError

    def create(self, name_hint: str) -> list[Var]:
        """The parameters of a function that carry the state."""
        raise NotImplementedError

    def set_state(self, state_vars: list[Var]) -> None:
        """From here on the state is in these variables."""
        raise NotImplementedError

    def finalize(self) -> list[Var]:
        """The variables that hold the state at the end of a method; forgets them."""
        raise NotImplementedError

    def to(self, dtype: str | None = None) -> None:
        """Changes the element type of what is stored; nothing for most."""


def wrap_nested(expr: Expr, name: str) -> Any:
    """Binds an expression to a variable called `name`: a tensor, or nested tuples of tensors."""
    if not isinstance(expr, (Var, Constant)):
        expr = bind(expr, name)
    ty = expr.ty
    if isinstance(ty, TensorType):
        return Tensor(_expr=expr)
    if isinstance(ty, TupleType):
        return tuple(
            wrap_nested(TupleGetItem(expr, i), f"{name}_{i}") for i in range(len(ty.fields))
        )
    raise TypeError(f"{name} gives {ty}; nn handles tensors and tuples of them")


def unwrap_nested(value: Any) -> Any:
    """The expressions of tensors and objects, in the same nesting; anything else as it is."""
    if isinstance(value, (Tensor, Object)):
        return value._expr
    if isinstance(value, (list, tuple)):
        return tuple(unwrap_nested(v) for v in value)
    return value


def expr_of(value: Any, like: Tensor | None = None) -> Expr:
    """The expression of a tensor; a number becomes a constant of the element type of `like`."""
    if isinstance(value, Tensor):
        return value._expr
    if like is not None and isinstance(value, (int, float)):
        return const(value, like.dtype)
    raise TypeError(f"expected an nn.Tensor, got {type(value).__name__}")
