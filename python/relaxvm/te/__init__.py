# SPDX-License-Identifier: Apache-2.0
"""Tensor expressions: what a tensor program computes, element by element."""

from .tensor import (
    ReduceAxis,
    Tensor,
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
