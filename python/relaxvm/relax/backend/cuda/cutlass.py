# SPDX-License-Identifier: Apache-2.0
"""What CUTLASS takes of a graph: matmuls and convolutions of half floats, with what follows them."""

from __future__ import annotations

from collections.abc import Sequence

from ....ir.module import IRModule
from ... import transform
from ...transform.fuse import FusionPattern, PatternCheckContext
from ..pattern_registry import get_patterns_with_prefix, register_patterns
from ..patterns import (
    make_fused_bias_activation_pattern,
    make_matmul_pattern,
    make_residual_block_pattern,
)
from .contraction import ACTIVATIONS, is_leaking, matmul_patterns, supports_matmul


def _supports_conv2d(context: PatternCheckContext) -> bool:
    if is_leaking(context):
        return False
    call = context.annotated_expr["root"]
    layouts = (call.attrs["data_layout"], call.attrs["kernel_layout"])
    dtypes = {str(context.annotated_expr[k].ty.dtype) for k in ("lhs", "rhs")}
    return layouts == ("NHWC", "OHWI") and dtypes == {"float16"}


def _supports_residual(context: PatternCheckContext, supports: object) -> bool:
    """The residual has the contraction's shape: nothing is broadcast."""
    root, residual = context.annotated_expr["root"].ty, context.annotated_expr["residual"].ty
    if getattr(residual, "shape", None) is None or root.shape is None:
        return False
    same = len(root.shape) == len(residual.shape) and all(
        a.same_as(b) or (str(a) == str(b)) for a, b in zip(root.shape, residual.shape, strict=True)
    )
    return same and bool(supports(context))  # type: ignore[operator]


def _matmul_residual(context: PatternCheckContext) -> bool:
    return _supports_residual(context, supports_matmul)


def _conv2d_residual(context: PatternCheckContext) -> bool:
    return _supports_residual(context, _supports_conv2d)


def _conv2d_patterns() -> list[FusionPattern]:
    out = []
    for with_bias in (False, True):
        for name, op in {"": None, **ACTIVATIONS}.items():
            if name and not with_bias:
                continue
            title = "cutlass.conv2d" + ("_bias" if with_bias else "") + (f"_{name}" if name else "")
            pattern, parts = make_fused_bias_activation_pattern("relax.nn.conv2d", with_bias, op)
            out.append(FusionPattern(title, pattern, parts, _supports_conv2d))
    return out


def _residual_patterns() -> list[FusionPattern]:
    out = []
    for name, op in {"": None, "relu": ACTIVATIONS["relu"]}.items():
        tail = f"_{name}" if name else ""
        conv = make_fused_bias_activation_pattern("relax.nn.conv2d", True)
        pattern, parts = make_residual_block_pattern(conv, activation=op)
        out.append(
            FusionPattern(
                f"cutlass.conv2d_bias_residual_add{tail}", pattern, parts, _conv2d_residual
            )
        )
        for transposed in (False, True):
            matmul = make_matmul_pattern(True, None, transposed)
            pattern, parts = make_residual_block_pattern(matmul, activation=op)
            kind = "matmul_transposed" if transposed else "matmul"
            title = f"cutlass.{kind}_bias_residual_add{tail}"
            out.append(FusionPattern(title, pattern, parts, _matmul_residual))
    return out


register_patterns(
    [
        *_conv2d_patterns(),
        *matmul_patterns("cutlass", ACTIVATIONS, supports_matmul),
        *_residual_patterns(),
    ]
)


def partition_for_cutlass(
    mod: IRModule,
    annotate_codegen: bool = True,
    use_flash_mqa: bool = True,
    entry_functions: Sequence[str] | None = None,
) -> IRModule:
    """The module with what CUTLASS takes in functions of its own."""
    return transform.FuseOpsByPattern(
        get_patterns_with_prefix("cutlass"),
        bind_constants=False,
        annotate_codegen=annotate_codegen,
        entry_functions=entry_functions,
    )(mod)
