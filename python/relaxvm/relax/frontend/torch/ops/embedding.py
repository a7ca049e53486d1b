# SPDX-License-Identifier: Apache-2.0
"""Rows of a table by number, one by one and summed up in bags."""

from __future__ import annotations

import math
from typing import Any

from relaxvm.relax import op

from ..graph import Graph
from ..registry import aten_op

_SUM, _MEAN, _MAX = range(3)


@aten_op("embedding.default")
def embedding(g: Graph, weight: Any, indices: Any, *_: Any) -> Any:
    return op.take(weight, indices, axis=0)


@aten_op(
    "_embedding_bag.default",
    "_embedding_bag_forward_only.default",
    "embedding_bag.default",
    "embedding_bag.padding_idx",
)
def embedding_bag(
    g: Graph,
    weight: Any,
    indices: Any,
    offsets: Any,
    scale_grad_by_freq: bool = False,
    mode: int = _SUM,
    sparse: bool = False,
    per_sample_weights: Any = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> tuple:
    """Sums, means or greatest values of rows; bag i begins at offsets[i].  Bags without rows are 0."""
    dtype, count = g.dtype(weight), g.shape(offsets)[0]
    if include_last_offset:
        count = count - 1
        offsets = g.emit(op.strided_slice(offsets, [0], [0], [count], [1]))
    numbers = g.emit(op.arange(0, g.shape(indices)[0], 1, dtype="int64"))
    begun = g.emit(op.bucketize(numbers, g.cast(offsets, "int64"), False, True))
    bags = g.emit(op.subtract(begun, g.const(1, "int64")))
    rows = g.emit(op.take(weight, indices, axis=0))
    kept = None
    if padding_idx is not None and padding_idx >= 0:
        padding = g.const(padding_idx, g.dtype(indices))
        kept = g.emit(op.expand_dims(g.emit(op.not_equal(indices, padding)), [1]))
    if per_sample_weights is not None:
        rows = g.emit(op.multiply(rows, g.emit(op.expand_dims(per_sample_weights, [1]))))
    lowest = g.const(-math.inf if mode == _MAX else 0, dtype)
    if kept is not None:
        rows = g.emit(op.where(kept, rows, lowest))
    places = g.emit(op.expand_dims(bags, [1]))
    start = g.emit(op.full([count, g.shape(weight)[1]], lowest, dtype))
    result = g.emit(op.scatter_nd(start, places, rows, "max" if mode == _MAX else "add"))
    if mode == _MAX:
        result = g.emit(op.where(g.emit(op.equal(result, lowest)), g.const(0, dtype), result))
    if mode == _MEAN:
        ones = g.emit(op.full([g.shape(indices)[0], 1], g.const(1, dtype), dtype))
        ones = ones if kept is None else g.cast(kept, dtype)
        none = g.emit(op.full([count, 1], g.const(0, dtype), dtype))
        sizes = g.emit(op.scatter_nd(none, places, ones, "add"))
        result = g.emit(op.divide(result, g.emit(op.maximum(sizes, g.const(1, dtype)))))
    return result, None, None, None
