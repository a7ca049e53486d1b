# SPDX-License-Identifier: Apache-2.0
"""The graph language.  Names are found when they are first used, so that running a model does not load the compiler."""

from __future__ import annotations

import importlib
from typing import Any

_EXPR = (
    "Binding BindingBlock Call Constant DataTypeImm DataflowBlock DataflowVar Expr ExternFunc Function GlobalVar If "
    "MatchCast PrimValue SeqExpr ShapeExpr StringImm Tuple TupleGetItem VDevice Var VarBinding const extern "
    "get_shape_of make_shape prim_value te_tensor"
)
_TYPE = (
    "AdtType AnyType FuncType NothingType ObjectType PackedFuncType PrimType ShapeType TensorType TupleType Type "
    "TypeParam"
)
_CALLS = (
    "assert_op call_builtin_with_ctx call_dps_packed call_inplace_packed call_packed call_pure_packed call_py_func "
    "call_tir call_tir_inplace call_tir_with_grad invoke_closure invoke_pure_closure make_closure"
)
_DATA_TYPES = "AdtDef Constructor ConstructorDef Match MatchCase"
_FUNCTORS = "ExprFunctor PyExprMutator PyExprVisitor"

_NAMES: dict[str, tuple[str, str]] = {}  # name -> (module, name there)
for _module, _list in (
    ("relaxvm.relax.expr", _EXPR),
    ("relaxvm.relax.data_type", _DATA_TYPES),
    ("relaxvm.relax.op.calls", _CALLS),
    ("relaxvm.relax.expr_functor", _FUNCTORS),
):
    _NAMES.update({_n: (_module, _n) for _n in _list.split()})
for _n in _TYPE.split():
    _home = {"FuncType": "ir", "PrimType": "ir", "TupleType": "ir", "Type": "ir"}.get(_n, "relax")
    _NAMES[_n] = (f"relaxvm.{_home}.type", _n)
_NAMES.update(
    {_n: ("relaxvm.relax.exec_builder", _n) for _n in ("ExecBuilder", "SpecialReg", "VMFuncKind")}
)
_NAMES.update(
    {
        _n: ("relaxvm.relax.virtual_machine", _n)
        for _n in ("VMExecutable", "VMInstrumentReturnKind", "VirtualMachine")
    }
)
_NAMES["BlockBuilder"] = ("relaxvm.relax.block_builder", "BlockBuilder")
_NAMES["print"] = ("relaxvm.relax.op.calls", "print_")
for _n in ("get_default_pipeline", "get_pipeline", "register_pipeline"):
    _NAMES[_n] = ("relaxvm.relax.pipeline", _n)
_NAMES["convert_to_expr"] = ("relaxvm.relax.utils", "convert_to_expr")
_NAMES["DummyGlobalInfo"] = ("relaxvm.ir.global_info", "DummyGlobalInfo")
_NAMES["build"] = ("relaxvm.relax.vm_build", "build")
_NAMES["BasePyModule"] = ("relaxvm.relax.base_py_module", "BasePyModule")
_NAMES["DataflowBlockRewrite"] = ("relaxvm.relax.binding_rewrite", "DataflowBlockRewrite")

_MODULES = (
    "analysis",
    "backend",
    "base_py_module",
    "binding_rewrite",
    "block_builder",
    "data_type",
    "dpl",
    "exec_builder",
    "expr",
    "expr_functor",
    "frontend",
    "global_info",
    "ir",
    "op",
    "pipeline",
    "relax_to_pyfunc_converter",
    "testing",
    "training",
    "transform",
    "type",
    "utils",
    "virtual_machine",
    "vm_build",
)


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        module, there = _NAMES[name]
        value = getattr(importlib.import_module(module), there)
    elif name in _MODULES:
        value = importlib.import_module(f"{__name__}.{name}")
    else:
        raise AttributeError(f"module relaxvm.relax has no attribute {name}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_NAMES, *_MODULES})
