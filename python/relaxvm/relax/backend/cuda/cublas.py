# SPDX-License-Identifier: Apache-2.0
"""What cuBLAS takes of a graph."""

from __future__ import annotations

from ....ir.module import IRModule
from ... import transform
from ..pattern_registry import get_patterns_with_prefix, register_patterns
from .contraction import ACTIVATIONS, matmul_patterns, supports_matmul

register_patterns(
    matmul_patterns("cublas", {k: ACTIVATIONS[k] for k in ("relu", "gelu")}, supports_matmul)
)


def partition_for_cublas(mod: IRModule, bind_constants: bool = False) -> IRModule:
    """The module with every matmul that cuBLAS takes in a function of its own, with attribute "Codegen"."""
    patterns = get_patterns_with_prefix("cublas")
    return transform.FuseOpsByPattern(
        patterns, bind_constants=bind_constants, annotate_codegen=True
    )(mod)
