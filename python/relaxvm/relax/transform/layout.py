# SPDX-License-Identifier: Apache-2.0
"""Layouts given as functions of indices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...tirx.function import PrimFunc
from ...tirx.index_map import IndexMap
from ...transform.passes import BuiltinPass


def _as_map(layout: Any) -> IndexMap | None:
    if layout is None or isinstance(layout, IndexMap):
        return layout
    if callable(layout):
        return IndexMap.from_func(layout)
    raise TypeError(
        f"a layout is an IndexMap, a function of indices or None, not {type(layout).__name__}"
    )


def alter_op_impl(make: Callable[..., BuiltinPass]) -> Callable[..., BuiltinPass]:
    """The factory of the pass, for layouts given as maps or functions."""

    def AlterOpImpl(
        op_impl_map: Mapping[str, PrimFunc],
        op_buffer_transforms: Mapping[str, Sequence[IndexMap | Callable[..., Any] | None]],
    ) -> BuiltinPass:
        layouts = {op: [_as_map(m) for m in maps] for op, maps in op_buffer_transforms.items()}
        return make(dict(op_impl_map), layouts)

    AlterOpImpl.__doc__ = make.__doc__
    AlterOpImpl.__module__ = "relaxvm.relax.transform"
    AlterOpImpl.__qualname__ = "AlterOpImpl"
    return AlterOpImpl
