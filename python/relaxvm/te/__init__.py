# SPDX-License-Identifier: Apache-2.0
"""Tensor expressions: what a tensor program computes, element by element; with scalar functions for formulas."""

from ..tirx import SizeVar as size_var
from ..tirx import const
from ..tirx import op as _scalar
from .tensor import (
    ReduceAxis,
    Tensor,
    comm_reducer,
    compute,
    create_prim_func,
    max,
    min,
    placeholder,
    prod,
    reduce_axis,
    sum,
    var,
)

__all__ = [
    "ReduceAxis",
    "Tensor",
    "comm_reducer",
    "compute",
    "create_prim_func",
    "max",
    "min",
    "placeholder",
    "prod",
    "reduce_axis",
    "sum",
    "var",
]
_SCALAR = (
    "abs acos acosh all any asin asinh atan atanh ceil cos cosh div erf exp floor floordiv floormod fmod if_then_else "
    "indexdiv indexmod isfinite isinf isnan log log10 log2 logaddexp max_value min_value popcount power round rsqrt "
    "sigmoid sin sinh sqrt tan tanh trunc truncdiv truncmod"
).split()
globals().update({name: getattr(_scalar, name) for name in _SCALAR})
__all__ += ["const", "size_var", *_SCALAR]
