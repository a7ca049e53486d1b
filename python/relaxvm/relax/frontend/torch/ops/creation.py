# SPDX-License-Identifier: Apache-2.0
"""Tensors made of numbers, and numbers taken out of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from relaxvm import relax
from relaxvm.relax import op

from ..graph import Graph, Size
from ..registry import aten_op


def _full(g: Graph, shape: Sequence[Size], value: Any) -> Any:
    dtype = g.result_dtype()
    if isinstance(value, torch.Tensor):
        value = value.item()
    return op.full(list(shape), g.cast(value, dtype), dtype)


@aten_op("full.default")
def full(g: Graph, shape: Sequence[Size], value: Any, **_: Any) -> Any:
    return _full(g, shape, value)


@aten_op("full_like.default")
def full_like(g: Graph, x: Any, value: Any, **_: Any) -> Any:
    return _full(g, g.shape(x), value)


@aten_op("new_full.default")
def new_full(g: Graph, x: Any, shape: Sequence[Size], value: Any, **_: Any) -> Any:
    return _full(g, shape, value)


@aten_op("fill.Scalar", "fill.Tensor")
def fill(g: Graph, x: Any, value: Any) -> Any:
    return _full(g, g.shape(x), value)


@aten_op("ones.default")
def ones(g: Graph, shape: Sequence[Size], **_: Any) -> Any:
    return _full(g, shape, 1)


# What is empty gets zeros: a program that reads it would get what it finds.
@aten_op("zeros.default", "empty.memory_format", "empty_permuted.default")
def zeros(g: Graph, shape: Sequence[Size], *_: Any, **__: Any) -> Any:
    return _full(g, shape, 0)


@aten_op("ones_like.default")
def ones_like(g: Graph, x: Any, **_: Any) -> Any:
    return _full(g, g.shape(x), 1)


@aten_op("zeros_like.default", "empty_like.default")
def zeros_like(g: Graph, x: Any, **_: Any) -> Any:
    return _full(g, g.shape(x), 0)


@aten_op("new_ones.default")
def new_ones(g: Graph, x: Any, shape: Sequence[Size], **_: Any) -> Any:
    return _full(g, shape, 1)


@aten_op("new_zeros.default", "new_empty.default")
def new_zeros(g: Graph, x: Any, shape: Sequence[Size], **_: Any) -> Any:
    return _full(g, shape, 0)


@aten_op("scalar_tensor.default")
def scalar_tensor(g: Graph, value: Any, **_: Any) -> Any:
    return g.cast(value, g.result_dtype())


@aten_op("arange.default")
def arange(g: Graph, end: Any, **_: Any) -> Any:
    return op.arange(0, end, 1, dtype=g.result_dtype())


@aten_op("arange.start")
def arange_start(g: Graph, start: Any, end: Any, **_: Any) -> Any:
    return op.arange(start, end, 1, dtype=g.result_dtype())


@aten_op("arange.start_step")
def arange_step(g: Graph, start: Any, end: Any, step: Any = 1, **_: Any) -> Any:
    return op.arange(start, end, step, dtype=g.result_dtype())


@aten_op("item.default", "_local_scalar_dense.default")
def item(g: Graph, x: Any) -> Any:
    """A size that is known only while running, or a number: a tensor without axes."""
    if not isinstance(g.result, torch.SymInt):
        return x if g.rank(x) == 0 else op.reshape(x, [])
    vector = g.emit(op.reshape(g.cast(x, "int64"), [1]))
    size = g.symbols.variable(g.result.node.expr.name)
    shape = g.emit(op.tensor_to_shape(vector))
    g.builder.match_cast(shape, relax.ShapeType([size]))
    return size


@aten_op("sym_size.int")
def sym_size(g: Graph, x: Any, dim: int) -> Any:
    return g.shape(x)[g.axis(x, dim)]
