# SPDX-License-Identifier: Apache-2.0
"""What the tables of matrix libraries have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...transform.fuse import FusionPattern, PatternCheckContext
from ..patterns import make_matmul_pattern

ACTIVATIONS = {"relu": "relax.nn.relu", "gelu": "relax.nn.gelu", "silu": "relax.nn.silu"}
# Which element types of the operands give which result.
_RESULTS = {
    ("float16", "float16"): ("float16", "float32"),
    ("float32", "float32"): ("float32",),
    ("int8", "int8"): ("int32",),
    ("bfloat16", "bfloat16"): ("bfloat16", "float32"),
}


def is_leaking(context: PatternCheckContext) -> bool:
    """Is a value inside the match, besides its result, read elsewhere?"""
    inside = list(context.matched_bindings)
    for var in inside:
        value = context.matched_bindings[var]
        if value.same_as(context.matched_expr):
            continue
        readers = context.var_usages.get(var) or ()
        if any(not any(r.same_as(v) for v in inside) for r in readers):
            return True
    return False


def supports_matmul(context: PatternCheckContext) -> bool:
    """Element types that matrix units take, and no value that somebody else reads."""
    if is_leaking(context):
        return False
    parts = context.annotated_expr
    types = [parts[k].ty for k in ("lhs", "rhs", "root")]
    if any(getattr(t, "ndim", -1) < 2 for t in types):
        return False
    lhs, rhs, out = (str(t.dtype) for t in types)
    return out in _RESULTS.get((lhs, rhs), ())


def matmul_patterns(
    prefix: str, activations: dict[str, str], check: Callable[[PatternCheckContext], bool]
) -> list[FusionPattern]:
    """matmul, plain and transposed, with bias and activation; the larger ones last."""
    out: list[FusionPattern] = []
    for with_bias in (False, True):
        for name, op in {"": None, **activations}.items():
            if name and not with_bias:
                continue
            for transposed in (False, True):
                parts: list[Any] = ["matmul"]
                parts += ["transposed"] if transposed else []
                parts += ["bias"] if with_bias else []
                parts += [name] if name else []
                pattern, annotations = make_matmul_pattern(with_bias, op, transposed)
                title = f"{prefix}.{'_'.join(parts)}"
                out.append(FusionPattern(title, pattern, annotations, check))
    return out
