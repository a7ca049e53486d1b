# SPDX-License-Identifier: Apache-2.0
# Written by tools/make_stubs.py from the compiler's tables.
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from relaxvm.ir.expr import Call, Expr

# An expression, or what becomes one: a number, an array, a tuple.
Argument = Any

def roi_align(data: Argument, rois: Argument, pooled_size: int | Sequence[int], spatial_scale: float, sample_ratio: int = -1, aligned: bool = False, layout: str = 'NCHW', mode: str = 'avg') -> Call: ...
def roi_pool(data: Argument, rois: Argument, pooled_size: int | Sequence[int], spatial_scale: float, layout: str = 'NCHW') -> Call: ...
