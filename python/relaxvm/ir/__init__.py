# SPDX-License-Identifier: Apache-2.0
"""What both languages share: types, expressions, modules, structural equality."""

from .attrs import Attrs, DictAttrs, make_node
from .base import (
    Object,
    SourceName,
    Span,
    assert_structural_equal,
    current_span,
    load_json,
    save_json,
    span_scope,
    structural_equal,
    structural_hash,
)
from .container import Array, Map
from .expr import (
    BaseFunc,
    Call,
    Expr,
    FloatImm,
    GlobalVar,
    IntImm,
    Op,
    PrimExpr,
    Range,
    RelaxExpr,
    Var,
    is_prim_expr,
    is_prim_var,
)
from .global_info import DummyGlobalInfo, GlobalInfo, VDevice
from .module import IRModule
from .op import register_op_attr
from .type import (
    FuncType,
    PointerType,
    PrimType,
    TupleType,
    Type,
)


def __getattr__(name: str) -> object:
    if name in ("instrument", "transform"):
        import importlib

        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module relaxvm.ir has no attribute {name}")


__all__ = [
    "Array",
    "Attrs",
    "BaseFunc",
    "Call",
    "DictAttrs",
    "DummyGlobalInfo",
    "Expr",
    "FloatImm",
    "FuncType",
    "GlobalInfo",
    "GlobalVar",
    "IRModule",
    "IntImm",
    "Map",
    "Object",
    "Op",
    "PointerType",
    "PrimExpr",
    "PrimType",
    "Range",
    "RelaxExpr",
    "SourceName",
    "Span",
    "TupleType",
    "Type",
    "VDevice",
    "Var",
    "assert_structural_equal",
    "current_span",
    "is_prim_expr",
    "is_prim_var",
    "load_json",
    "make_node",
    "register_op_attr",
    "save_json",
    "span_scope",
    "structural_equal",
    "structural_hash",
]
