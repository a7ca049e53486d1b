# SPDX-License-Identifier: Apache-2.0
"""DispatchSampling: drawing from rows of probabilities, in terms of a running sum and a tensor program."""

from __future__ import annotations

import functools
from typing import Any

from ...ir.expr import Call, Expr
from ...ir.module import IRModule
from ...script import tirx
from ...target import Target
from ...tirx.function import PrimFunc
from ...transform import module_pass
from ..expr import Function
from ..expr_functor import PyExprMutator
from ..op import cumsum  # type: ignore[attr-defined]
from ..op.calls import call_tir
from ..type import TensorType

T: Any = tirx
_OPERATOR = "relax.multinomial_from_uniform"


@functools.cache
def _get_sample_index(prob_dtype: str, sample_dtype: str, row_dtype: str, dtype: str) -> PrimFunc:
    """The first place of a row whose running sum exceeds the sample, or the last place."""

    @T.prim_func(private=True, s_tir=True)
    def get_sample_index(a: T.handle, b: T.handle, c: T.handle, d: T.handle):
        batch, vocab_size, out_batch = T.int64(), T.int64(), T.int64()
        sums = T.match_buffer(a, (batch, vocab_size), prob_dtype)
        sample = T.match_buffer(b, (out_batch, 1), sample_dtype)
        rows = T.match_buffer(c, (out_batch, 1), row_dtype)
        result = T.match_buffer(d, (out_batch, 1), dtype)
        for i, k in T.grid(out_batch, vocab_size):
            with T.sblock("T_get_sample_index"):
                v_i, v_k = T.axis.remap("SS", [i, k])
                if (
                    sample[v_i, T.int64(0)] < sums[rows[v_i, T.int64(0)], v_k]
                    or v_k + T.int64(1) == vocab_size
                ):
                    if v_k == T.int64(0):
                        result[v_i, 0] = T.cast(T.int64(0), dtype)
                    else:
                        if sample[v_i, T.int64(0)] >= sums[rows[v_i, T.int64(0)], v_k - T.int64(1)]:
                            result[v_i, 0] = T.cast(v_k, dtype)

    return get_sample_index


class _Dispatcher(PyExprMutator):
    def visit_call_(self, op: Any) -> Expr:
        call: Any = super().visit_call_(op)
        if not isinstance(call, Call) or str(getattr(call.op, "name", "")) != _OPERATOR:
            return call
        prob, sample, rows = call.args
        types = [prob.ty, sample.ty, rows.ty, self.builder_.normalize(call).ty]
        if any(not isinstance(t, TensorType) or t.shape is None or not t.dtype for t in types):
            return call
        dtypes = [str(t.dtype) for t in types]
        sums = self.builder_.emit(cumsum(prob, axis=1, dtype=dtypes[0], exclusive=False))
        program = self.builder_.add_func(_get_sample_index(*dtypes), "get_sample_index")
        return call_tir(program, [sums, sample, rows], out_ty=types[3])


@module_pass(opt_level=0, name="DispatchSampling")
class DispatchSampling:
    """multinomial_from_uniform becomes a cumsum of the probabilities and a tensor program that finds the sample in it.

    For CPUs: within `with Target(...)` of another kind, and on tensors of unknown shape, the operator stays.
    """

    def transform_module(self, mod: IRModule, context: Any) -> IRModule:
        target = Target.current()
        if target is not None and target.kind not in ("llvm", "c"):
            return mod
        for var, func in mod.functions_items():
            if isinstance(func, Function) and _OPERATOR in _operators(func):
                dispatcher = _Dispatcher(mod)
                dispatcher.builder_.update_func(var, dispatcher.visit_expr(func))
                mod = dispatcher.builder_.get()
        return mod


def _operators(func: Function) -> set[str]:
    from ..analysis import post_order_visit

    found: set[str] = set()

    def note(e: Expr) -> None:
        if isinstance(e, Call):
            found.add(str(getattr(e.op, "name", "")))

    post_order_visit(func, note)
    return found
