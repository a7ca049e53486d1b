# SPDX-License-Identifier: Apache-2.0
"""Operators that PyTorch expresses by others: with an importer a program needs no rewriting by PyTorch, which
traces it again and takes seconds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from relaxvm.relax import TupleGetItem, op

from ..errors import refuse_training
from ..graph import Graph, dtype_name
from ..registry import aten_op
from . import convolution, movement, reductions

# ---- convolutions, pooling, padding


def _convolution(rank: int) -> None:
    name = f"conv{rank}d"

    @aten_op(f"{name}.default", f"{name}.padding")
    def conv(
        g: Graph,
        x: Any,
        weight: Any,
        bias: Any = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Any:
        if padding == "same":
            return _same(g, x, weight, bias, stride, dilation, groups)
        pads = 0 if padding == "valid" else padding
        return _batched(g, x, rank, weight, bias, stride, pads, dilation, False, 0, groups)

    def _same(g: Graph, x: Any, weight: Any, bias: Any, stride: Any, dilation: Any, groups: int) -> Any:  # fmt: skip
        steps = convolution.each(dilation, rank)
        missing = [d * (k - 1) for d, k in zip(steps, g.shape(weight)[2:])]
        odd = [m % 2 for m in missing]
        if any(odd):
            width = [0, 0] * (g.rank(x) - rank) + [v for o in odd for v in (0, o)]
            x = g.emit(op.nn.pad(x, width))
        pads = [m // 2 for m in missing]
        return _batched(g, x, rank, weight, bias, stride, pads, dilation, False, 0, groups)

    overload = f"conv_transpose{rank}d." + ("default" if rank == 1 else "input")

    @aten_op(overload)
    def conv_transpose(
        g: Graph,
        x: Any,
        weight: Any,
        bias: Any = None,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        dilation: Any = 1,
    ) -> Any:
        return _batched(
            g, x, rank, weight, bias, stride, padding, dilation, True, output_padding, groups
        )

    @aten_op(f"max_pool{rank}d.default")
    def max_pool(
        g: Graph,
        x: Any,
        kernel: Any,
        stride: Any = (),
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
    ) -> Any:
        return convolution.max_pool_values(g, x, rank, kernel, stride, padding, dilation, ceil_mode)


def _batched(g: Graph, x: Any, rank: int, *options: Any) -> Any:
    return convolution.with_batch(
        g, x, rank, lambda batch: convolution.convolution(g, batch, *options)
    )


for _rank in (1, 2, 3):
    _convolution(_rank)


@aten_op("pad.default")
def pad(g: Graph, x: Any, width: Sequence[Any], mode: str = "constant", value: Any = None) -> Any:
    if mode == "constant":
        return convolution.constant_pad(g, x, width, 0.0 if value is None else value)
    return convolution.bordered(g, x, width, mode)


# ---- activations


def _clipped(g: Graph, x: Any, shift: float) -> Any:
    """min(max(x + shift, 0), 6)"""
    moved = x if shift == 0 else g.emit(op.add(x, g.const(shift, g.dtype(x))))
    return g.emit(op.clip(moved, 0, 6))


@aten_op("relu6.default")
def relu6(g: Graph, x: Any) -> Any:
    return _clipped(g, x, 0)


@aten_op("hardsigmoid.default")
def hardsigmoid(g: Graph, x: Any) -> Any:
    return op.divide(_clipped(g, x, 3), g.const(6, g.dtype(x)))


@aten_op("hardswish.default")
def hardswish(g: Graph, x: Any) -> Any:
    return op.divide(g.emit(op.multiply(x, _clipped(g, x, 3))), g.const(6, g.dtype(x)))


@aten_op("selu.default")
def selu(g: Graph, x: Any) -> Any:
    return op.nn.selu(x)


@aten_op("mish.default")
def mish(g: Graph, x: Any) -> Any:
    return op.multiply(x, g.emit(op.tanh(g.emit(op.nn.softplus(x, 1.0, 20.0)))))


@aten_op("glu.default")
def glu(g: Graph, x: Any, dim: int = -1) -> Any:
    axis = g.axis(x, dim)
    halves = g.emit(op.split(x, 2, axis))
    gate = g.emit(op.sigmoid(g.emit(TupleGetItem(halves, 1))))
    return op.multiply(g.emit(TupleGetItem(halves, 0)), gate)


# ---- views and copies


@aten_op("flatten.using_ints")
def flatten(g: Graph, x: Any, start_dim: int = 0, end_dim: int = -1) -> Any:
    shape = g.shape(x)
    if not shape:
        return op.reshape(x, [1])
    first, last = g.axis(x, start_dim), g.axis(x, end_dim)
    product: Any = 1
    for d in shape[first : last + 1]:
        product = d if isinstance(product, int) and product == 1 else product * d
    return op.reshape(x, [*shape[:first], product, *shape[last + 1 :]])


@aten_op("unflatten.int", "view_as.default", "reshape_as.default")
def to_result_shape(g: Graph, x: Any, *_: Any) -> Any:
    return op.reshape(x, g.result_shape())


@aten_op("expand_as.default", "broadcast_to.default")
def to_broadcast(g: Graph, x: Any, *_: Any) -> Any:
    return g.broadcast(x, g.result_shape())


@aten_op("t.default", "numpy_T.default", "mT.default", "adjoint.default")
def turned(g: Graph, x: Any) -> Any:
    rank = g.rank(x)
    if rank < 2:
        return x
    order = list(range(rank))
    if g.node.target.name() == "aten::numpy_T":
        return op.permute_dims(x, order[::-1])
    return op.permute_dims(x, [*order[:-2], rank - 1, rank - 2])


@aten_op("movedim.int", "movedim.intlist")
def movedim(g: Graph, x: Any, source: Any, destination: Any) -> Any:
    pairs = [([v] if isinstance(v, int) else list(v)) for v in (source, destination)]
    places = {g.axis(x, b): g.axis(x, a) for a, b in zip(*pairs)}
    rest = iter([i for i in range(g.rank(x)) if i not in places.values()])
    return op.permute_dims(x, [places[i] if i in places else next(rest) for i in range(g.rank(x))])


@aten_op("chunk.default")
def chunk(g: Graph, x: Any, chunks: int, dim: int = 0) -> tuple:
    axis = g.axis(x, dim)
    sizes = [g.symbols.size(part.shape[axis]) for part in g.result]
    return movement.split_with_sizes(g, x, sizes, dim)


@aten_op("narrow.default")
def narrow(g: Graph, x: Any, dim: int, start: Any, length: Any) -> Any:
    return movement.slice_tensor(g, x, dim, start)


@aten_op("to.dtype")
def to_dtype(g: Graph, x: Any, dtype: torch.dtype, *_: Any, **__: Any) -> Any:
    return g.cast(x, dtype_name(dtype))


@aten_op("to.dtype_layout", "to.device", "to.other", "type_as.default")
def to_result_dtype(g: Graph, x: Any, *_: Any, **__: Any) -> Any:
    return g.cast(x, g.result_dtype())


@aten_op("feature_dropout.default", "alpha_dropout.default")
def other_dropout(g: Graph, x: Any, p: float, train: bool) -> Any:
    refuse_training(train)
    return x


# ---- reductions


@aten_op("std.default", "var.default", "std.dim", "var.dim")
def spread(g: Graph, x: Any, *rest: Any, **options: Any) -> Any:
    """Overloads with `unbiased` in the place of a correction."""
    values = list(rest)
    dims = values.pop(0) if values and not isinstance(values[0], bool) else options.get("dim")
    unbiased = values.pop(0) if values else options.get("unbiased", True)
    keepdim = values.pop(0) if values else options.get("keepdim", False)
    result = reductions.variance(g, x, dims, keepdim, 1 if unbiased else 0)
    return op.sqrt(result) if g.node.target.name().startswith("aten::std") else result


@aten_op("logsumexp.default")
def logsumexp(g: Graph, x: Any, dims: Any, keepdim: bool = False) -> Any:
    axes = g.axes(x, dims)
    top = g.emit(op.max(x, axes, keepdims=True))
    infinite = g.emit(op.equal(g.emit(op.abs(top)), g.const(math.inf, g.dtype(x))))
    top = g.emit(op.where(infinite, g.const(0, g.dtype(x)), top))
    total = g.emit(op.sum(g.emit(op.exp(g.emit(op.subtract(x, top)))), axes, keepdims=True))
    result = g.emit(op.add(g.emit(op.log(total)), top))
    return result if keepdim else op.squeeze(result, axes)
