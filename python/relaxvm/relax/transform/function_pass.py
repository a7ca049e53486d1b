# SPDX-License-Identifier: Apache-2.0
"""Passes written in Python for one function, or one dataflow block, at a time."""

from __future__ import annotations

from typing import Any

from ...ir.module import IRModule
from ...transform.passes import Pass, PassContext, PassInfo, pass_function
from ..expr import DataflowBlock, Function, SeqExpr


class FunctionPass(Pass):
    """`func(function, module, context)` for every function of the graph language."""

    def __init__(self, func: Any, info: PassInfo) -> None:
        self.func, self.info = func, info

    def run(self, mod: IRModule, context: PassContext) -> IRModule:
        result = mod.clone()
        for var, func in mod.functions_items():
            if isinstance(func, Function):
                changed = self.func(func, mod, context)
                if not changed.same_as(func):
                    result.update_func(var, changed)
        return result


class DataflowBlockPass(Pass):
    """`func(block, module, context)` for every dataflow block."""

    def __init__(self, func: Any, info: PassInfo) -> None:
        self.func, self.info = func, info

    def run(self, mod: IRModule, context: PassContext) -> IRModule:
        result = mod.clone()
        for var, func in mod.functions_items():
            if isinstance(func, Function):
                result.update_func(var, self._function(func, mod, context))
        return result

    def _function(self, func: Function, mod: IRModule, context: PassContext) -> Function:
        blocks = [
            self.func(b, mod, context) if isinstance(b, DataflowBlock) else b
            for b in func.body.blocks
        ]
        body = SeqExpr(blocks, func.body.body)
        return Function(func.params, body, func.ret_ty, func.is_pure, func.attrs, func.span)


function_pass = pass_function(FunctionPass, "transform_function")
dataflowblock_pass = pass_function(DataflowBlockPass, "transform_dataflowblock")
