# SPDX-License-Identifier: Apache-2.0
"""Expressions of both languages.  Python's operators work on scalars (they fold) and on tensors (they become operator
calls); which one it is follows from the type."""

from __future__ import annotations

import numbers
from collections.abc import Iterator, Sequence
from typing import Any

import tvm_ffi
from tvm_ffi import Object

from .. import _compiler
from .base import Scriptable, plain
from .type import PrimType, TupleType

_make = _compiler.func("prim.Make")
_not = _compiler.func("prim.Not")
_intrin = _compiler.func("prim.Intrin")
_fold_cast = _compiler.func("prim.FoldCast")
_to_scalar = _compiler.func("prim.ToScalar")
_var = _compiler.func("ir.Var")
_global_var = _compiler.func("ir.GlobalVar")
_call = _compiler.func("ir.Call")
_int_imm = _compiler.func("prim.IntImm")
_float_imm = _compiler.func("prim.FloatImm")
_with_attrs = _compiler.func("ir.WithAttrs")
_make_call = _compiler.func("ops.MakeCall")
_get_op = _compiler.func("ops.Get")
_tuple_get_item = _compiler.func("ir.TupleGetItem")

INT32 = tvm_ffi.dtype("int32")
INT64 = tvm_ffi.dtype("int64")

# The order of ir::BinaryOp.
BINARY_OPS = (
    "Add Sub Mul Div Mod FloorDiv FloorMod Min Max EQ NE LT LE GT GE And Or "
    "BitAnd BitOr BitXor ShiftLeft ShiftRight"
).split()
_ADD, _SUB, _MUL, _DIV, _MOD, _FLOORDIV, _FLOORMOD, _MIN, _MAX, _EQ, _NE, _LT, _LE, _GT, _GE = (
    range(15)
)
_AND, _OR, _BITAND, _BITOR, _BITXOR, _SHL, _SHR = range(15, 22)

_RELAX_NAMES = {
    _ADD: "add",
    _SUB: "subtract",
    _MUL: "multiply",
    _DIV: "divide",
    _FLOORDIV: "floor_divide",
    _FLOORMOD: "floor_mod",
    _LT: "less",
    _LE: "less_equal",
    _GT: "greater",
    _GE: "greater_equal",
}


def is_prim_expr(value: Any) -> bool:
    """Is it a scalar expression?"""
    return isinstance(value, Expr) and isinstance(value.ty, PrimType)


def is_prim_var(value: Any) -> bool:
    """Is it a scalar variable?"""
    return isinstance(value, Var) and isinstance(value.ty, PrimType)


def _is_scalar(value: Any) -> bool:
    return isinstance(value, (numbers.Number, bool)) or is_prim_expr(value)


def _dtype_bool(value: Any) -> bool:
    return is_prim_expr(value) and str(value.ty.dtype).startswith("bool")


class DeferredComparison:
    """`a == b` of scalars: an expression where one is wanted, a bool (the same object?) where one is tested."""

    def __init__(self, op: int, a: Any, b: Any) -> None:
        self.op, self.a, self.b = op, a, b

    def as_object(self) -> Any:
        return _make(self.op, self.a, plain(self.b), INT32)

    asobject = as_object

    def __bool__(self) -> bool:
        same = isinstance(self.b, Object) and self.a.same_as(self.b)
        return same if self.op == _EQ else not same

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.as_object(), name)


def _binary(op: int, a: Any, b: Any) -> Any:
    if isinstance(a, DeferredComparison):
        a = a.as_object()
    if isinstance(b, DeferredComparison):
        b = b.as_object()
    if _is_scalar(a) and _is_scalar(b):
        if op == _DIV and not _float_operand(a) and not _float_operand(b):
            raise TypeError(
                "`/` of integers is not defined on scalar expressions; use // or tirx.truncdiv"
            )
        a = a if isinstance(a, Object) else _number(a)
        b = b if isinstance(b, Object) else _number(b)
        return _make(op, a, b, INT32)
    name = _RELAX_NAMES.get(op)
    if name is None or _is_foreign(a) or _is_foreign(b):
        return NotImplemented
    from ..relax.op import call_operator

    return call_operator(name, [a, b])


def _float_operand(value: Any) -> bool:
    return isinstance(value, float) or (is_prim_expr(value) and "float" in str(value.ty.dtype))


def _number(value: Any) -> Any:
    if isinstance(value, (bool, int, float)):
        return value
    return value.item() if hasattr(value, "item") else float(value)


def _is_foreign(value: Any) -> bool:
    if isinstance(value, (Expr, numbers.Number)):
        return False
    return not hasattr(value, "__array__") and not isinstance(value, tvm_ffi.Tensor)


@tvm_ffi.register_object("relaxvm.ir.Expr")
class Expr(Scriptable, Object):
    """Base of all expressions.  `ty` is the type, None while it is not inferred."""

    @property
    def dtype(self) -> str:
        """The element type of a scalar or tensor."""
        return self.ty.dtype

    @property
    def span(self) -> Any:
        return _span_of(self)

    def __add__(self, other: Any) -> Any:
        return _binary(_ADD, self, other)

    def __radd__(self, other: Any) -> Any:
        return _binary(_ADD, other, self)

    def __sub__(self, other: Any) -> Any:
        return _binary(_SUB, self, other)

    def __rsub__(self, other: Any) -> Any:
        return _binary(_SUB, other, self)

    def __mul__(self, other: Any) -> Any:
        return _binary(_MUL, self, other)

    def __rmul__(self, other: Any) -> Any:
        return _binary(_MUL, other, self)

    def __truediv__(self, other: Any) -> Any:
        return _binary(_DIV, self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return _binary(_DIV, other, self)

    def __floordiv__(self, other: Any) -> Any:
        return _binary(_FLOORDIV, self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return _binary(_FLOORDIV, other, self)

    def __mod__(self, other: Any) -> Any:
        return _binary(_FLOORMOD, self, other)

    def __rmod__(self, other: Any) -> Any:
        return _binary(_FLOORMOD, other, self)

    def __pow__(self, other: Any) -> Any:
        if _is_scalar(self) and _is_scalar(other):
            return _intrin("pow", [self, other], None)
        from ..relax.op import call_operator

        return call_operator("power", [self, other])

    def __rpow__(self, other: Any) -> Any:
        from ..relax.op import call_operator

        return call_operator("power", [other, self])

    def __neg__(self) -> Any:
        if is_prim_expr(self):
            return _make(_MUL, self, -1, INT32)
        from ..relax.op import call_operator

        return call_operator("negative", [self])

    def __lt__(self, other: Any) -> Any:
        return _binary(_LT, self, other)

    def __le__(self, other: Any) -> Any:
        return _binary(_LE, self, other)

    def __gt__(self, other: Any) -> Any:
        return _binary(_GT, self, other)

    def __ge__(self, other: Any) -> Any:
        return _binary(_GE, self, other)

    def __and__(self, other: Any) -> Any:
        return _binary(_AND if _dtype_bool(self) else _BITAND, self, other)

    def __or__(self, other: Any) -> Any:
        return _binary(_OR if _dtype_bool(self) else _BITOR, self, other)

    def __xor__(self, other: Any) -> Any:
        return _binary(_BITXOR, self, other)

    def __lshift__(self, other: Any) -> Any:
        return _binary(_SHL, self, other)

    def __rshift__(self, other: Any) -> Any:
        return _binary(_SHR, self, other)

    def __invert__(self) -> Any:
        return _not(self) if _dtype_bool(self) else _intrin("bitwise_not", [self], None)

    def __eq__(self, other: object) -> Any:
        if self.same_as(other) if isinstance(other, Object) else False:
            return DeferredComparison(_EQ, self, other) if is_prim_expr(self) else True
        if is_prim_expr(self) and _is_scalar(plain(other)):
            if isinstance(self, (IntImm, FloatImm)) and isinstance(other, (int, float)):
                return self.value == other
            return DeferredComparison(_EQ, self, other)
        return False

    def __ne__(self, other: object) -> Any:
        if is_prim_expr(self) and _is_scalar(plain(other)):
            if isinstance(self, (IntImm, FloatImm)) and isinstance(other, (int, float)):
                return self.value != other
            return DeferredComparison(_NE, self, other)
        return not self.__eq__(other)

    def __hash__(self) -> int:
        return Object.__hash__(self)

    def __bool__(self) -> bool:
        if isinstance(self, IntImm):
            return self.value != 0
        if is_prim_expr(self):
            raise ValueError(
                "a scalar expression has no truth value; use tirx.all, tirx.any or `and` inside a script"
            )
        return True

    def equal(self, other: Any) -> Any:
        """`self == other` as an expression."""
        return _make(_EQ, self, plain(other), INT32)

    def astype(self, dtype: Any, span: Any = None) -> Any:
        if is_prim_expr(self):
            return _fold_cast(tvm_ffi.dtype(str(dtype)), self)
        from ..relax.op import call_operator

        return call_operator("astype", [self], {"dtype": tvm_ffi.dtype(str(dtype))})

    def __call__(self, *args: Any, attrs: Any = None) -> Any:
        if is_prim_expr(self):
            raise TypeError(f"{self} is a scalar and cannot be called")
        return Call(self, list(args), attrs=attrs)

    def __getitem__(self, index: Any) -> Any:
        from ..tirx.buffer import is_buffer, load

        if isinstance(self, Var) and is_buffer(self):
            return load(self, index)
        if isinstance(self.ty, TupleType) and not isinstance(index, (int, IntImm)):
            raise TypeError(f"a tuple is indexed by an integer, not by {index!r}")
        if isinstance(self.ty, TupleType) and int(index) >= len(self.ty.fields):
            raise IndexError(
                f"the tuple has {len(self.ty.fields)} fields; there is no field {index}"
            )
        if self.ty is not None and not isinstance(self.ty, TupleType):
            from ..relax.type import AnyType

            if not isinstance(self.ty, AnyType):
                raise TypeError(
                    f"{self} has type {self.ty}, which is no tuple; it cannot be indexed"
                )
        return _tuple_get_item(self, int(index), None)

    def __iter__(self) -> Iterator[Any]:
        fields = getattr(self.ty, "fields", None)
        if fields is None or not isinstance(self.ty, TupleType):
            raise TypeError(f"{self} has no fields to iterate over")
        return (self[i] for i in range(len(fields)))

    def __len__(self) -> int:
        if isinstance(self.ty, TupleType):
            return len(self.ty.fields)
        raise TypeError(f"{self} has no length")

    def __int__(self) -> int:
        raise TypeError(f"{self} is no constant integer")

    def _update_type(self, ty: Any) -> None:
        _compiler.func("ir.UpdateType")(self, plain(ty))


_span_getter = Expr.__tvm_ffi_type_info__.fields[0].as_property(Expr)


def _span_of(e: Expr) -> Any:
    return _span_getter.fget(e)


PrimExpr = Expr
RelaxExpr = Expr


@tvm_ffi.register_object("relaxvm.ir.Var")
class Var(Expr):
    """A variable: of the graph language (`ty` a type), or a scalar (`ty` a dtype)."""

    def __init__(self, name: str, ty: Any = None, span: Any = None, *, dtype: Any = None) -> None:
        self.__init_handle_by_constructor__(_var, name, as_type(dtype if ty is None else ty), span)

    @property
    def name_hint(self) -> str:
        return self.name

    def __getattr__(self, name: str) -> Any:
        # Buffers answer for their type: A.shape, A.dtype, A.scope().
        if name.startswith("__"):
            raise AttributeError(name)
        from ..tirx.buffer import buffer_attribute

        return buffer_attribute(self, name)


def as_type(ty: Any) -> Any:
    """A type from a type, a proxy of the script, or the name of a dtype."""
    ty = plain(ty)
    if isinstance(ty, (str, tvm_ffi.dtype)):
        return PrimType(ty)
    return ty


@tvm_ffi.register_object("relaxvm.ir.GlobalVar")
class GlobalVar(Expr):
    """A function of the module, by name."""

    def __init__(self, name_hint: str, ty: Any = None) -> None:
        self.__init_handle_by_constructor__(_global_var, name_hint, plain(ty))


@tvm_ffi.register_object("relaxvm.ir.Op")
class Op(Expr):
    """An operator."""

    @staticmethod
    def get(name: str) -> Op:
        """The operator called `name`; the error names the nearest ones."""
        return _get_op(name)

    @staticmethod
    def list_op_names() -> list[str]:
        return ["relax." + str(row[0]) for row in _compiler.func("ops.List")()]


@tvm_ffi.register_object("relaxvm.ir.Call")
class Call(Expr):
    def __init__(
        self,
        op: Any,
        args: Sequence[Any],
        attrs: Any = None,
        ty_args: Sequence[Any] | None = None,
        span: Any = None,
    ) -> None:
        from .attrs import Attrs

        if isinstance(op, str):
            op = _get_op(op)
        if isinstance(attrs, dict):
            attrs = Attrs(attrs) if attrs else None
        from ..relax.expr import to_expr

        types = [plain(t) for t in ty_args or ()]
        if not isinstance(args, (list, tuple, tvm_ffi.Array)):
            args = [args]
        self.__init_handle_by_constructor__(
            _call, op, [to_expr(a) for a in args], attrs, types, span
        )


@tvm_ffi.register_object("relaxvm.ir.IntImm")
class IntImm(Expr):
    """An integer or bool known at compile time."""

    def __init__(self, dtype: Any, value: int, span: Any = None) -> None:
        self.__init_handle_by_constructor__(_int_imm, tvm_ffi.dtype(str(dtype)), int(value))

    def __int__(self) -> int:
        return self.value

    def __index__(self) -> int:
        return self.value

    def __hash__(self) -> int:
        return hash(self.value)


@tvm_ffi.register_object("relaxvm.ir.FloatImm")
class FloatImm(Expr):
    def __init__(self, dtype: Any, value: float, span: Any = None) -> None:
        self.__init_handle_by_constructor__(_float_imm, tvm_ffi.dtype(str(dtype)), float(value))

    def __float__(self) -> float:
        return self.value

    def __hash__(self) -> int:
        return hash(self.value)


class Range:
    """The integers from `begin` up to, without, `end`; Range(n) starts at 0."""

    def __init__(
        self, begin: Any, end: Any = None, *, extent: Any = None, span: Any = None
    ) -> None:
        if extent is not None:
            self.min, self.extent = begin, extent
        elif end is None:
            self.min, self.extent = 0, begin
        else:
            between = _compiler.func("script.ExtentBetween")
            whole = isinstance(begin, int) and isinstance(end, int)
            self.min, self.extent = begin, end - begin if whole else between(begin, end)

    @staticmethod
    def from_min_extent(min_value: Any, extent: Any, span: Any = None) -> Range:
        return Range(min_value, extent=extent)


@tvm_ffi.register_object("relaxvm.ir.BaseFunc")
class BaseFunc(Expr):
    """A function of either language."""

    @property
    def attrs(self) -> Any:
        from .attrs import DictAttrs

        return DictAttrs(self._attrs)

    def with_attr(self, key: Any, value: Any = None) -> Any:
        """The function with an attribute, or a dictionary of them, set."""
        changes = dict(key) if isinstance(key, dict) else {key: value}
        return _with_attrs(self, {**dict(self._attrs), **changes})

    def with_attrs(self, attrs: Any) -> Any:
        values = attrs.as_object() if hasattr(attrs, "as_object") else attrs
        return _with_attrs(self, dict(values or {}))

    def without_attr(self, key: str) -> Any:
        return _with_attrs(self, {k: v for k, v in self._attrs.items() if k != key})
