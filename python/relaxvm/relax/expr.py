# SPDX-License-Identifier: Apache-2.0
"""Expressions, bindings and functions of the graph language."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tvm_ffi
from tvm_ffi import Object

from .. import _compiler
from ..ir.base import Scriptable, plain
from ..ir.expr import BaseFunc, Call, Expr, FloatImm, GlobalVar, IntImm, PrimType, Var
from ..ir.global_info import VDevice
from ..ir.type import TupleType, Type
from .type import ShapeType, TensorType

_dataflow_var = _compiler.func("ir.DataflowVar")
_constant = _compiler.func("ir.Constant")
_string = _compiler.func("ir.StringImm")
_dtype_imm = _compiler.func("ir.DataTypeImm")
_shape_expr = _compiler.func("ir.ShapeExpr")
_tuple = _compiler.func("ir.Tuple")
_tuple_get_item = _compiler.func("ir.TupleGetItem")
_seq = _compiler.func("ir.SeqExpr")
_if = _compiler.func("ir.If")
_var_binding = _compiler.func("ir.VarBinding")
_match_cast = _compiler.func("ir.MatchCast")
_block = _compiler.func("ir.BindingBlock")
_dataflow_block = _compiler.func("ir.DataflowBlock")
_function = _compiler.func("ir.Function")
_extern = _compiler.func("ir.ExternFunc")
_to_scalar = _compiler.func("prim.ToScalar")
_INT64 = tvm_ffi.dtype("int64")
_CACHE_LINE = 64  # bytes


@tvm_ffi.register_object("relaxvm.relax.DataflowVar")
class DataflowVar(Var):
    """A variable that only its dataflow block sees."""

    def __init__(self, name: str, ty: Any = None, span: Any = None) -> None:
        self.__init_handle_by_constructor__(_dataflow_var, name, plain(ty), span)


def to_tensor(data: Any, dtype: Any = None) -> tvm_ffi.Tensor:
    """A CPU tensor from a number, list, array or tensor; `dtype` by name, bfloat16 and float8 included."""
    if isinstance(data, tvm_ffi.Tensor):
        return data
    if hasattr(data, "asnumpy") or hasattr(data, "numpy") and not isinstance(data, np.ndarray):
        data = data.numpy()
    name = None if dtype is None else str(dtype)
    if name is None:
        name = _default_dtype(data)
    array = np.asarray(data)
    try:
        target = np.dtype(name)
    except TypeError:
        import ml_dtypes

        target = np.dtype(getattr(ml_dtypes, name))
    array = _aligned_copy(array, target)
    if target.kind in "fiub" and target.name == name:
        return tvm_ffi.from_dlpack(array)
    # NumPy's own types only travel by DLPack; others go as bytes under their name.
    raw = tvm_ffi.from_dlpack(array.view(f"uint{8 * target.itemsize}"))
    return _compiler.func("ir.RelabelTensor")(raw, tvm_ffi.dtype(name))


def _aligned_copy(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Begins at a cache line: kernels read constants by vectors that long, NumPy aligns to 16 bytes."""
    num_bytes = array.size * dtype.itemsize
    room = np.empty(num_bytes + _CACHE_LINE, np.uint8)
    begin = -room.ctypes.data % _CACHE_LINE
    copy = room[begin : begin + num_bytes].view(dtype).reshape(array.shape)
    np.copyto(copy, array, casting="unsafe")
    return copy


def _default_dtype(data: Any) -> str:
    if isinstance(data, bool):
        return "bool"
    if isinstance(data, int):
        return "int32"
    if isinstance(data, float):
        return "float32"
    name = np.asarray(data).dtype.name
    plain_list = isinstance(data, (list, tuple))
    return {"float64": "float32", "int64": "int32"}.get(name, name) if plain_list else name


@tvm_ffi.register_object("relaxvm.relax.Constant")
class Constant(Expr):
    """A tensor known at compile time."""

    def __init__(self, data: Any, ty: Any = None, span: Any = None) -> None:
        self.__init_handle_by_constructor__(_constant, to_tensor(data), span)
        if ty is not None:
            self._update_type(ty)


def const(value: Any, dtype: Any = None) -> Constant:
    """A constant from a number, list or array."""
    if isinstance(dtype, (TensorType, PrimType)):
        dtype = dtype.dtype
    return Constant(to_tensor(value, dtype))


@tvm_ffi.register_object("relaxvm.relax.StringImm")
class StringImm(Expr):
    def __init__(self, value: str, span: Any = None) -> None:
        self.__init_handle_by_constructor__(_string, value, span)


@tvm_ffi.register_object("relaxvm.relax.DataTypeImm")
class DataTypeImm(Expr):
    def __init__(self, value: Any, span: Any = None) -> None:
        self.__init_handle_by_constructor__(_dtype_imm, tvm_ffi.dtype(str(value)), span)


def prim_value(value: Any, dtype: str | None = None) -> Expr:
    """A scalar: an expression as it is, a number as an immediate (of `dtype`; integers int64, floats float32)."""
    value = plain(value)
    if dtype is None or isinstance(value, Expr):
        return _to_scalar(value, _INT64)
    return FloatImm(dtype, value) if "float" in dtype else IntImm(dtype, value)


PrimValue = prim_value


@tvm_ffi.register_object("relaxvm.relax.ShapeExpr")
class ShapeExpr(Expr):
    """A shape value."""

    def __init__(self, values: Sequence[Any], span: Any = None) -> None:
        self.__init_handle_by_constructor__(_shape_expr, [plain(v) for v in values], span)

    def __getitem__(self, index: int) -> Expr:
        if not -len(self) <= index < len(self):
            raise IndexError(f"the shape has {len(self)} dimensions; there is no dimension {index}")
        return self.values[index]

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[Expr]:
        return iter(self.values)


def make_shape(shape: Sequence[Any]) -> ShapeExpr:
    return ShapeExpr(shape)


@tvm_ffi.register_object("relaxvm.relax.Tuple")
class Tuple(Expr):
    def __init__(self, fields: Sequence[Any], span: Any = None) -> None:
        if isinstance(fields, Expr):
            fields = list(fields)
        self.__init_handle_by_constructor__(_tuple, [to_expr(f) for f in fields], span)

    def __getitem__(self, index: int) -> Expr:
        if not -len(self) <= index < len(self):
            raise IndexError(f"the tuple has {len(self)} fields; there is no field {index}")
        return self.fields[index]

    def __len__(self) -> int:
        return len(self.fields)

    def __iter__(self) -> Iterator[Expr]:
        return iter(self.fields)


@tvm_ffi.register_object("relaxvm.relax.TupleGetItem")
class TupleGetItem(Expr):
    def __init__(self, tuple_value: Expr, index: int, span: Any = None) -> None:
        self.__init_handle_by_constructor__(_tuple_get_item, tuple_value, index, span)


def to_expr(value: Any) -> Expr:
    """An argument: tuples and lists become Tuple, numbers scalars, strings StringImm, arrays constants."""
    value = plain(value)
    if isinstance(value, Expr):
        return value
    if isinstance(value, (tuple, list, tvm_ffi.Array)):
        return Tuple([to_expr(v) for v in value])
    if isinstance(value, (bool, int, float)):
        return prim_value(value)
    if isinstance(value, tvm_ffi.dtype):
        return DataTypeImm(value)
    if isinstance(value, str):
        return StringImm(value)
    if isinstance(value, tvm_ffi.Tensor) or hasattr(value, "__array__"):
        return Constant(value)
    raise TypeError(f"expected an expression, got {type(value).__name__}")


@tvm_ffi.register_object("relaxvm.relax.Binding")
class Binding(Scriptable, Object):
    """Base of bindings."""


@tvm_ffi.register_object("relaxvm.relax.VarBinding")
class VarBinding(Binding):
    """var = value"""

    def __init__(self, var: Var, value: Any, span: Any = None) -> None:
        self.__init_handle_by_constructor__(_var_binding, var, to_expr(value), span)


@tvm_ffi.register_object("relaxvm.relax.MatchCast")
class MatchCast(Binding):
    """var = R.match_cast(value, ty)"""

    def __init__(self, var: Var, value: Any, ty: Any, span: Any = None) -> None:
        self.__init_handle_by_constructor__(_match_cast, var, to_expr(value), plain(ty), span)


@tvm_ffi.register_object("relaxvm.relax.BindingBlock")
class BindingBlock(Scriptable, Object):
    def __init__(self, bindings: Sequence[Binding], span: Any = None) -> None:
        self.__init_handle_by_constructor__(_block, list(bindings), span)


@tvm_ffi.register_object("relaxvm.relax.DataflowBlock")
class DataflowBlock(BindingBlock):
    """Pure, and without control flow."""

    def __init__(self, bindings: Sequence[Binding], span: Any = None) -> None:
        self.__init_handle_by_constructor__(_dataflow_block, list(bindings), span)


@tvm_ffi.register_object("relaxvm.relax.SeqExpr")
class SeqExpr(Expr):
    def __init__(self, blocks: Sequence[BindingBlock], body: Any, span: Any = None) -> None:
        self.__init_handle_by_constructor__(_seq, list(blocks), to_expr(body), span)


@tvm_ffi.register_object("relaxvm.relax.If")
class If(Expr):
    def __init__(self, cond: Any, true_branch: Any, false_branch: Any, span: Any = None) -> None:
        self.__init_handle_by_constructor__(
            _if, to_expr(cond), to_expr(true_branch), to_expr(false_branch), span
        )


@tvm_ffi.register_object("relaxvm.relax.Function")
class Function(BaseFunc):
    """A function of the graph language."""

    def __init__(
        self,
        params: Sequence[Var],
        body: Any,
        ret_ty: Any = None,
        is_pure: bool = True,
        attrs: Mapping[str, Any] | None = None,
        span: Any = None,
    ) -> None:
        values = attrs.as_object() if hasattr(attrs, "as_object") else (attrs or {})
        self.__init_handle_by_constructor__(
            _function, list(params), to_expr(body), plain(ret_ty), is_pure, dict(values), span
        )

    @staticmethod
    def create_empty(
        params: Sequence[Var],
        ret_ty: Any,
        is_pure: bool = True,
        attrs: Mapping[str, Any] | None = None,
        span: Any = None,
    ) -> ExternFunc:
        """A function known by its type only."""
        from .type import FuncType

        func_type = FuncType([p.ty for p in params], plain(ret_ty), is_pure)
        return ExternFunc("", func_type)

    def __call__(self, *args: Any, attrs: Any = None) -> Call:
        return Call(self, list(args), attrs=attrs)

    def bind_symbolic_vars(self, binding_map: Mapping[Any, Any]) -> Function:
        """The function with symbolic variables, by object or name, replaced by sizes."""
        from .transform.bind import bind_symbolic_vars

        return bind_symbolic_vars(self, binding_map)

    def bind_params(self, binding_map: Mapping[Any, Any]) -> Function:
        """The function with parameters, by object or name, replaced by values."""
        from .transform.bind import bind_params

        return bind_params(self, binding_map)

    def inline_functions(self, function_map: Mapping[Any, Any]) -> Function:
        """The function with calls of these functions, by object or name, replaced by their bodies."""
        from .transform.bind import inline_functions

        return inline_functions(self, function_map)


@tvm_ffi.register_object("relaxvm.relax.ExternFunc")
class ExternFunc(BaseFunc):
    """A packed function by name."""

    def __init__(self, global_symbol: str, ty: Any = None, span: Any = None) -> None:
        self.__init_handle_by_constructor__(_extern, global_symbol, plain(ty), span)

    def __call__(self, *args: Any, attrs: Any = None) -> Call:
        return Call(self, list(args), attrs=attrs)


def extern(name: str, ty: Any = None, span: Any = None) -> ExternFunc:
    return ExternFunc(name, ty, span)


def get_shape_of(expr: Expr) -> Expr:
    """The shape of a tensor expression: a ShapeExpr where the type says it, else a call of shape_of."""
    ty = expr.ty
    if isinstance(ty, TensorType) and ty.shape is not None:
        return ty.shape
    from .op import call_operator

    if ty is not None and not isinstance(ty, TensorType):
        raise ValueError(f"get_shape_of expects a tensor, got a value of type {ty}")
    return call_operator("shape_of", [expr])


def _update_type(expr: Expr, ty: Any) -> None:
    expr._update_type(ty)


def te_tensor(value: Any, tir_var_map: Any = None, name: str = "rxplaceholder") -> Any:
    """A tensor expression's placeholder for a graph value."""
    from ..te.graph import placeholder_of

    return placeholder_of(value, name)


__all__ = [
    "BindingBlock",
    "Binding",
    "Call",
    "Constant",
    "DataTypeImm",
    "DataflowBlock",
    "DataflowVar",
    "Expr",
    "ExternFunc",
    "Function",
    "GlobalVar",
    "If",
    "MatchCast",
    "PrimValue",
    "SeqExpr",
    "ShapeExpr",
    "ShapeType",
    "StringImm",
    "Tuple",
    "TupleGetItem",
    "TupleType",
    "Type",
    "VDevice",
    "Var",
    "VarBinding",
    "const",
    "extern",
    "get_shape_of",
    "prim_value",
    "te_tensor",
]


# The nodes of data types are registered with those above: programs may come from C++.
from . import data_type as _data_type  # noqa: E402, F401
