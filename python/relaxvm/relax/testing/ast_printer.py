# SPDX-License-Identifier: Apache-2.0
"""Shows how a program is built: every node by its class, with its fields."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import tvm_ffi

from ...ir.expr import (
    BaseFunc,
    Call,
    Expr,
    FloatImm,
    GlobalVar,
    IntImm,
    Op,
    Var,
    is_prim_expr,
)
from ...ir.type import FuncType, PrimType, TupleType, Type
from ..expr import (
    Binding,
    BindingBlock,
    Constant,
    DataTypeImm,
    ExternFunc,
    Function,
    If,
    MatchCast,
    SeqExpr,
    ShapeExpr,
    StringImm,
    Tuple,
    TupleGetItem,
)
from ..type import AnyType, PackedFuncType, ShapeType, TensorType


def _quoted(text: Any) -> str:
    return '"' + str(text).replace("\\", "\\\\").replace('"', '\\"') + '"'


class ASTPrinter:
    """Writes nodes as Class(field=...), nested fields on lines of their own."""

    def __init__(
        self,
        indent_str: str = "    ",
        include_ty_annotations: bool = True,
        include_call_attrs: bool = True,
    ) -> None:
        self.indent_str = indent_str
        self.include_ty_annotations = include_ty_annotations
        self.include_call_attrs = include_call_attrs
        self._writers: list[tuple[type, Callable[[Any], str]]] = [
            (Op, lambda e: self._node("Op", [("name", _quoted(e.name))])),
            (GlobalVar, lambda e: self._node("GlobalVar", [("name_hint", _quoted(e.name_hint))])),
            (Call, self._call),
            (Constant, lambda e: self._typed("Constant", [("data", str(e.data.numpy()))], e)),
            (StringImm, lambda e: self._typed("StringImm", [("value", _quoted(e.value))], e)),
            (DataTypeImm, lambda e: self._typed("DataTypeImm", [("value", str(e.value))], e)),
            (ShapeExpr, lambda e: self._typed("ShapeExpr", [("values", self._all(e.values))], e)),
            (Tuple, lambda e: self._typed("Tuple", [("fields", self._all(e.fields))], e)),
            (TupleGetItem, self._item),
            (If, self._if),
            (SeqExpr, self._seq),
            (Function, self._function),
            (ExternFunc, self._extern),
            (Binding, self._binding),
            (BindingBlock, self._block),
        ]

    # ---- entry points

    def visit(self, node: Any) -> str:
        """Any node: an expression, a binding, a block or a type."""
        if isinstance(node, Type):
            return self.visit_ty_(node)
        if isinstance(node, Var) and not isinstance(node.ty, PrimType):
            return self._typed(type(node).__name__, [("name", _quoted(node.name))], node)
        if is_prim_expr(node):
            return f"Expr(value=`{_scalar(node)}`)"
        for cls, write in self._writers:
            if isinstance(node, cls):
                return write(node)
        if isinstance(node, BaseFunc):
            return f"{type(node).__name__}(...)"
        raise TypeError(f"no way to show a {type(node).__name__}")

    def visit_expr(self, expr: Expr) -> str:
        return self.visit(expr)

    def visit_type_(self, ty: Type) -> str:
        """A type without its dimensions."""
        if isinstance(ty, ShapeType):
            return self._node("ShapeType", [("ndim", str(ty.ndim))])
        if isinstance(ty, TensorType):
            return self._node("TensorType", [("ndim", str(ty.ndim)), ("dtype", _dtype(ty))])
        return self._type(ty, self.visit_type_)

    def visit_ty_(self, ty: Type) -> str:
        """A type with its dimensions."""
        if isinstance(ty, ShapeType):
            fields = [("ndim", str(ty.ndim))]
            if ty.values is not None:
                fields.append(("values", self._all(ty.values)))
            return self._node("ShapeType", fields)
        if isinstance(ty, TensorType):
            fields = [("dtype", _dtype(ty))]
            if ty.shape is None:
                fields.append(("ndim", str(ty.ndim)))
            else:
                fields.append(("shape", self.visit(ty.shape)))
            if ty.vdevice is not None:
                fields.append(("vdevice", str(ty.vdevice)))
            return self._node("TensorType", fields)
        return self._type(ty, self.visit_ty_)

    # ---- parts

    def _type(self, ty: Type, visit: Callable[[Type], str]) -> str:
        if isinstance(ty, PackedFuncType):
            return "PackedFuncType()"
        if isinstance(ty, PrimType):
            return self._node("PrimType", [("dtype", str(ty.dtype))])
        if isinstance(ty, TupleType):
            return self._node("TupleType", [("fields", self._list(map(visit, ty.fields)))])
        if isinstance(ty, FuncType):
            fields = []
            if ty.params is not None:
                fields.append(("params", self._list(map(visit, ty.params))))
            fields += [("ret", visit(ty.ret)), ("purity", str(bool(ty.purity)))]
            return self._node("FuncType", fields)
        if isinstance(ty, AnyType):
            return "AnyType()"
        raise TypeError(f"no way to show a {type(ty).__name__}")

    def _indent(self, text: str) -> str:
        return text.replace("\n", "\n" + self.indent_str)

    def _node(self, name: str, fields: list[tuple[str, str]]) -> str:
        parts = [f"{key}={value}" for key, value in fields]
        if len(parts) < 2 and not any("\n" in p for p in parts):
            return f"{name}({', '.join(parts)})"
        inner = ",\n".join(self.indent_str + self._indent(p) for p in parts)
        return f"{name}(\n{inner}\n)"

    def _typed(self, name: str, fields: list[tuple[str, str]], expr: Expr) -> str:
        if self.include_ty_annotations and expr.ty is not None:
            fields = [*fields, ("ty", self.visit_ty_(expr.ty))]
        return self._node(name, fields)

    def _list(self, items: Iterable[str]) -> str:
        parts = list(items)
        if not parts:
            return "[]"
        inner = ",\n".join(self.indent_str + self._indent(p) for p in parts)
        return f"[\n{inner}\n]"

    def _all(self, nodes: Iterable[Any]) -> str:
        return self._list(self.visit(n) for n in nodes)

    def _call(self, call: Call) -> str:
        fields = [("op", self.visit(call.op)), ("args", self._all(call.args))]
        if call.ty_args:
            fields.append(("ty_args", self._list(self.visit_ty_(t) for t in call.ty_args)))
        if self.include_call_attrs and call.attrs is not None:
            fields.append(("attrs", _attrs(call.attrs)))
        return self._typed("Call", fields, call)

    def _item(self, e: TupleGetItem) -> str:
        fields = [("tuple_value", self.visit(e.tuple_value)), ("index", str(e.index))]
        return self._typed("TupleGetItem", fields, e)

    def _if(self, e: If) -> str:
        names = ("cond", "true_branch", "false_branch")
        return self._typed("If", [(n, self.visit(getattr(e, n))) for n in names], e)

    def _seq(self, e: SeqExpr) -> str:
        return self._typed(
            "SeqExpr", [("blocks", self._all(e.blocks)), ("body", self.visit(e.body))], e
        )

    def _function(self, f: Function) -> str:
        fields = [
            ("params", self._all(f.params)),
            ("body", self.visit(f.body)),
            ("ret_ty", self.visit_ty_(f.ret_ty)),
            ("is_pure", str(bool(f.is_pure))),
        ]
        if dict(f.attrs):
            fields.append(("attrs", _attrs(f.attrs)))
        return self._typed("Function", fields, f)

    def _extern(self, f: ExternFunc) -> str:
        # What a packed function gives is said by its calls.
        return self._node("ExternFunc", [("global_symbol", _quoted(f.global_symbol))])

    def _binding(self, b: Binding) -> str:
        fields = [("var", self.visit(b.var)), ("value", self.visit(b.value))]
        if isinstance(b, MatchCast):
            fields.append(("ty", self.visit_ty_(b.ty)))
        return self._node(type(b).__name__, fields)

    def _block(self, block: BindingBlock) -> str:
        return self._node(type(block).__name__, [("bindings", self._all(block.bindings))])


def _dtype(ty: TensorType) -> str:
    return str(ty.dtype) if ty.dtype is not None else ""


def _scalar(e: Expr) -> str:
    """A scalar as the script writes it, numbers with their dtype."""
    if isinstance(e, (IntImm, FloatImm)):
        dtype = str(e.ty.dtype)
        return f"T.{dtype}({bool(e.value) if dtype == 'bool' else e.value})"
    return str(e)


def _attrs(attrs: Any) -> str:
    values = attrs.values if not callable(getattr(attrs, "values", None)) else dict(attrs.items())
    return "{" + ", ".join(f"{_quoted(k)}: {_value(v)}" for k, v in dict(values).items()) + "}"


def _value(value: Any) -> str:
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, (list, tuple, tvm_ffi.Array)):
        return "[" + ", ".join(_value(v) for v in value) + "]"
    return str(value)


def dump_ast(
    exp: Any,
    indent_str: str = "    ",
    include_ty_annotations: bool = True,
    include_call_attrs: bool = True,
) -> str:
    """How `exp` is built, as text."""
    return ASTPrinter(indent_str, include_ty_annotations, include_call_attrs).visit(exp)
