# SPDX-License-Identifier: Apache-2.0
"""The road to an executable for CPUs in four lists of passes, to be run one after another or changed in between.

`relaxvm.compile` takes what any of them gives, and does more: layouts, attention, packed weights."""

from __future__ import annotations

from typing import Any

from ...transform import Pass, Sequential
from .. import transform as _transform
from .dispatch_sampling import DispatchSampling
from .dispatch_sort_scan import DispatchSortScan


def _made(*names: str) -> list[Pass]:
    return [getattr(_transform, name)() for name in names]


def library_dispatch_passes(target: Any) -> list[Pass]:
    """Operators that have an implementation of their own."""
    passes: list[Any] = [DispatchSampling(), DispatchSortScan()]
    return passes


def legalize_passes(target: Any) -> list[Pass]:
    """Operators become tensor programs, which are fused."""
    return _made("LegalizeOps", "AnnotateTIROpPattern", "FoldConstant", "FuseOps", "FuseTIR")


def dataflow_lower_passes(target: Any) -> list[Pass]:
    """Destination passing becomes explicit; dataflow blocks end."""
    return _made(
        "RewriteDataflowReshape", "ToNonDataflow", "RemovePurityChecking", "CallTIRRewrite"
    )


def finalize_passes(target: Any) -> list[Pass]:
    """Memory is planned, sizes are computed on the shape heap."""
    return _made(
        "StaticPlanBlockMemory",
        "LowerAllocTensor",
        "KillAfterLastUse",
        "LowerRuntimeBuiltin",
        "ComputePrimValue",
        "VMShapeLower",
        "AttachGlobalSymbol",
    )


def get_default_pipeline(target: Any) -> Pass:
    """All four lists as one pass."""
    return Sequential(
        [
            *library_dispatch_passes(target),
            *legalize_passes(target),
            *dataflow_lower_passes(target),
            *finalize_passes(target),
        ],
        name="cpu_generic",
    )
