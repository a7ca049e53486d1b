# SPDX-License-Identifier: Apache-2.0
"""Passes over the graph language.  Their factories are made from the compiler's table of passes when this package is
imported: name, options, defaults and documentation stand there once."""

from __future__ import annotations

from ...transform import Pass, PassContext, PassInfo, Sequential, module_pass
from .codegen import RunCodegen
from .extern import AttachExternModules
from .factories import install, tidied
from .fast_math import FastMathTransform
from .function_pass import DataflowBlockPass, FunctionPass, dataflowblock_pass, function_pass
from .fuse import FusionPattern, PatternCheckContext, fuse_ops_by_pattern
from .ipc import IPCAllReduceRewrite, LowerGPUIPCAllocStorage
from .layout import alter_op_impl
from .legalize import legalize_ops

__all__ = [
    "AttachExternModules",
    "DataflowBlockPass",
    "FastMathTransform",
    "FunctionPass",
    "FusionPattern",
    "IPCAllReduceRewrite",
    "LowerGPUIPCAllocStorage",
    "Pass",
    "PassContext",
    "PassInfo",
    "PatternCheckContext",
    "RunCodegen",
    "Sequential",
    "dataflowblock_pass",
    "function_pass",
    "module_pass",
]
__all__ += install(globals())
AlterOpImpl = alter_op_impl(globals()["AlterOpImpl"])
LegalizeOps = legalize_ops(globals()["LegalizeOps"])
FuseOpsByPattern = fuse_ops_by_pattern(globals()["FuseOpsByPattern"])
for _name in ("ExpandTupleArguments", "InlinePrivateFunctions", "RemoveUnusedOutputs"):
    _always = _name != "InlinePrivateFunctions"
    globals()[_name] = tidied(globals()[_name], globals(), _always)
VMBuiltinLower = globals()["LowerRuntimeBuiltin"]  # its name in older programs
__all__.append("VMBuiltinLower")
