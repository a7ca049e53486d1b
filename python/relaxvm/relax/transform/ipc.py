# SPDX-License-Identifier: Apache-2.0
"""Memory that the devices of a group map into each other (scope "ipc_memory"), and sums over the group that read it."""

from __future__ import annotations

from typing import Any

from ..._registry import get_global_func
from ...ir.expr import Call, Expr, IntImm, Op, Var
from ...ir.module import IRModule
from ...transform import module_pass
from ..expr import ExternFunc, Function, ShapeExpr, StringImm
from ..expr_functor import PyExprMutator, PyExprVisitor
from ..op import memory  # type: ignore[attr-defined]
from ..type import AnyType

ALLREDUCE = "runtime.disco.allreduce"
CUSTOM_ALLREDUCE = "runtime.disco.cuda_ipc.custom_allreduce"
ALLOC_STORAGE = "runtime.disco.cuda_ipc.alloc_storage"
SCOPE = "ipc_memory"


def _calls(value: Any, name: str) -> bool:
    """Is `value` a call of the operator, or of the packed function, called `name`?"""
    if not isinstance(value, Call):
        return False
    if isinstance(value.op, ExternFunc):
        return str(value.op.global_symbol) == name
    return isinstance(value.op, Op) and str(value.op.name) == name


def _is_sum(value: Any) -> bool:
    """An all-reduce whose kind, a shape of one number, is 0."""
    if not _calls(value, ALLREDUCE) or len(value.args) != 4:
        return False
    kind = value.args[1]
    return isinstance(kind, ShapeExpr) and [getattr(v, "value", None) for v in kind.values] == [0]


class _Origins(PyExprVisitor):
    """For each variable the allocation that it is another name or a reshape of; the sums that read one."""

    def __init__(self) -> None:
        self.allocation: dict[Any, Call] = {}
        self.sums: list[Call] = []
        self.shared: list[Call] = []

    def visit_var_binding_(self, binding: Any) -> None:
        value = binding.value
        source = value.args[0] if _calls(value, "relax.reshape") else value
        if _calls(value, "relax.builtin.alloc_tensor"):
            self.allocation[binding.var] = value
        elif isinstance(source, Var) and source in self.allocation:
            self.allocation[binding.var] = self.allocation[source]
        elif _is_sum(value) and value.args[0] in self.allocation:
            self.sums.append(value)
            self.shared.append(self.allocation[value.args[0]])
        super().visit_var_binding_(binding)


class _SumRewriter(PyExprMutator):
    def __init__(self, mod: IRModule, origins: _Origins, strategy: int) -> None:
        super().__init__(mod)
        self.origins, self.strategy = origins, strategy

    def visit_call_(self, op: Any) -> Expr:
        call: Any = super().visit_call_(op)
        if any(op.same_as(s) for s in self.origins.sums):
            data, _, _, out = call.args
            args = [data, IntImm("int64", self.strategy), out]
            return Call(ExternFunc(CUSTOM_ALLREDUCE), args, None, call.ty_args, call.span)
        if any(op.same_as(s) for s in self.origins.shared):
            shape, dtype, device, _ = call.args
            return Call(call.op, [shape, dtype, device, StringImm(SCOPE)], None, [], call.span)
        return call


@module_pass(opt_level=0, name="IPCAllReduceRewrite")
class IPCAllReduceRewrite:
    """Sums over a group of devices read the memory of all members themselves: `runtime.disco.allreduce` becomes
    `runtime.disco.cuda_ipc.custom_allreduce` of a strategy (0 ring, 1 one shot, 2 two shots, ...), and what it reads is
    allocated in memory that the members share.  Nothing changes where no such function is registered."""

    def __init__(self, allreduce_strategy: int) -> None:
        self.allreduce_strategy = allreduce_strategy

    def transform_module(self, mod: IRModule, context: Any) -> IRModule:
        if get_global_func(CUSTOM_ALLREDUCE, allow_missing=True) is None:
            return mod
        for var, func in mod.functions_items():
            if not isinstance(func, Function):
                continue
            origins = _Origins()
            origins.visit_expr(func)
            if origins.sums:
                rewriter = _SumRewriter(mod, origins, self.allreduce_strategy)
                rewriter.builder_.update_func(var, rewriter.visit_expr(func))
                mod = rewriter.builder_.get()
        return mod


class _AllocationLowerer(PyExprMutator):
    changed = False

    def visit_call_(self, op: Any) -> Expr:
        call: Any = super().visit_call_(op)
        if _calls(call, "relax.memory.alloc_storage"):
            size, _, scope, dtype = call.args
            return self._storage(size, dtype, call.span) if _is_shared(scope) else call
        if _calls(call, "relax.builtin.alloc_tensor"):
            shape, dtype, device, scope = call.args
            if not _is_shared(scope):
                return call
            storage = self.builder_.emit(self._storage(shape, dtype, call.span))
            place = IntImm("int64", 0)
            return memory.alloc_tensor(storage, place, shape, dtype, device)
        return call

    def _storage(self, size: Expr, dtype: Expr, span: Any) -> Call:
        self.changed = True
        return Call(ExternFunc(ALLOC_STORAGE), [size, dtype], None, [AnyType()], span)


def _is_shared(scope: Any) -> bool:
    return isinstance(scope, StringImm) and str(scope.value) == SCOPE


@module_pass(opt_level=0, name="LowerGPUIPCAllocStorage")
class LowerGPUIPCAllocStorage:
    """Storages and tensors of scope "ipc_memory" are reserved by `runtime.disco.cuda_ipc.alloc_storage`."""

    def transform_module(self, mod: IRModule, context: Any) -> IRModule:
        for var, func in mod.functions_items():
            if not isinstance(func, Function):
                continue
            lowerer = _AllocationLowerer(mod)
            lowered = lowerer.visit_expr(func)
            if lowerer.changed:
                lowerer.builder_.update_func(var, lowered)
                mod = lowerer.builder_.get()
        return mod
