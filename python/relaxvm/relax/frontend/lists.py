# SPDX-License-Identifier: Apache-2.0
"""Lists of the virtual machine: what a loop gathers, and sequences of ONNX."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relaxvm import relax
from relaxvm.relax import op


def empty() -> Any:
    return op.call_pure_packed("vm.builtin.sequence_empty", ty_args=[relax.AnyType()])


def appended(items: Any, item: Any) -> Any:
    """The list with one more item."""
    return op.call_pure_packed("vm.builtin.sequence_insert", items, item, ty_args=[relax.AnyType()])


def joined(items: Any, axis: int, new_axis: bool, dtype: str, dims: Sequence[Any]) -> Any:
    """The items as one tensor, along an axis of them or a new one; a dimension of None in `dims` is unknown."""
    shape = relax.ShapeExpr([0 if d is None else d for d in dims])
    return op.call_pure_packed(
        "vm.builtin.sequence_concat",
        *(items, relax.prim_value(axis), relax.prim_value(int(new_axis))),
        *(relax.DataTypeImm(dtype), shape),
        ty_args=[relax.TensorType(None, dtype, ndim=len(dims) + int(new_axis))],
    )
