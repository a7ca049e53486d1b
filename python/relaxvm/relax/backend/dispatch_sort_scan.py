# SPDX-License-Identifier: Apache-2.0
"""DispatchSortScan: sorting and running sums get their implementations before other operators are lowered."""

from __future__ import annotations

from typing import Any

from ...ir.module import IRModule
from ...transform import module_pass
from ..op.build import ROWS

OPERATORS = ("argsort", "bucketize", "cumprod", "cumsum", "sort", "topk")


@module_pass(opt_level=0, name="DispatchSortScan")
class DispatchSortScan:
    """sort, argsort, topk, cumsum, cumprod and bucketize become calls of tensor programs; other operators stay."""

    def transform_module(self, mod: IRModule, context: Any) -> IRModule:
        from ..transform import LegalizeOps  # type: ignore[attr-defined]

        others = [f"relax.{name}" for name in ROWS if name not in OPERATORS]
        return LegalizeOps(skip_ops=others)(mod)
