# SPDX-License-Identifier: Apache-2.0
# Written by tools/make_stubs.py from the compiler's tables.
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from relaxvm.ir.expr import Call, Expr

# An expression, or what becomes one: a number, an array, a tuple.
Argument = Any

def affine_grid(data: Argument, size: Argument, align_corners: bool = True) -> Call: ...
def grid_sample(data: Argument, grid: Argument, method: str = 'bilinear', layout: str = 'NCHW', padding_mode: str = 'zeros', align_corners: bool = False) -> Call: ...
def resize2d(data: Argument, size: Argument, roi: Sequence[float] = ..., layout: str = 'NCHW', method: str = 'linear', coordinate_transformation_mode: str = 'half_pixel', rounding_method: str = 'round', cubic_alpha: float = -0.75, cubic_exclude: int = 0, extrapolation_value: float = 0.0, out_dtype: str | None = None, antialias: bool = False, scales: Sequence[float] = ...) -> Call: ...
def resize3d(data: Argument, size: Argument, roi: Sequence[float] = ..., layout: str = 'NCDHW', method: str = 'linear', coordinate_transformation_mode: str = 'half_pixel', rounding_method: str = 'round', cubic_alpha: float = -0.75, cubic_exclude: int = 0, extrapolation_value: float = 0.0, out_dtype: str | None = None, antialias: bool = False, scales: Sequence[float] = ...) -> Call: ...
