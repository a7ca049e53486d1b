# SPDX-License-Identifier: Apache-2.0
"""Sequences whose length is known at import: they do not exist at run time."""

from __future__ import annotations

from relaxvm.relax import op

from ..errors import InvalidModel, UnsupportedModel
from ..graph import Graph
from ..registry import Expr, Ints, onnx_op
from ..scalars import is_symbolic
from ..slicing import Range, take_ranges
from ..values import Known, Sequence, Value
from .movement import concat


def _items(value: Value) -> tuple:
    if not isinstance(value, Sequence):
        raise InvalidModel("its input is no sequence")
    return value.items


def _position(items: tuple, position: list[int], end: int) -> int:
    index = position[0]
    if not -len(items) <= index < end:
        raise InvalidModel(f"position {index} is out of range for a sequence of {len(items)}")
    return index + len(items) if index < 0 else index


@onnx_op("SequenceConstruct", since=11)
def sequence_construct(*items: Value) -> Sequence:
    return Sequence(items)


@onnx_op("SequenceEmpty", since=11)
def sequence_empty(*, dtype: int = 1) -> Sequence:
    return Sequence(())


@onnx_op("SequenceAt", since=11)
def sequence_at(sequence: Value, position: Ints) -> Value:
    items = _items(sequence)
    return items[_position(items, position, len(items))]


@onnx_op("SequenceInsert", since=11)
def sequence_insert(sequence: Value, item: Value, position: Ints | None = None) -> Sequence:
    items = _items(sequence)
    at = len(items) if position is None else _position(items, position, len(items) + 1)
    return Sequence((*items[:at], item, *items[at:]))


@onnx_op("SequenceErase", since=11)
def sequence_erase(sequence: Value, position: Ints | None = None) -> Sequence:
    items = _items(sequence)
    at = _position(items, [-1] if position is None else position, len(items))
    return Sequence(items[:at] + items[at + 1 :])


@onnx_op("SequenceLength", since=11)
def sequence_length(g: Graph, sequence: Value) -> Known:
    return g.dims_value([len(_items(sequence))], ())


@onnx_op("ConcatFromSequence", since=11)
def concat_from_sequence(g: Graph, sequence: Value, *, axis: int, new_axis: int = 0) -> Expr:
    parts = [g.as_expr(item, "sequence") for item in _items(sequence)]
    if not parts:
        raise InvalidModel("an empty sequence has nothing to concatenate")
    if new_axis:
        axis = g.axis(axis, g.rank(parts[0]) + 1)
        parts = [g.emit(op.expand_dims(p, axis=[axis])) for p in parts]
    return concat(g, *parts, axis=axis)


@onnx_op("SplitToSequence", since=11)
def split_to_sequence(
    g: Graph, x: Expr, split: Value | None = None, *, axis: int = 0, keepdims: int = 1
) -> Sequence:
    axis = g.axis(axis, g.rank(x))
    size = g.shape(x)[axis]
    if is_symbolic(size):
        raise UnsupportedModel("splits a symbolic dimension: the number of parts is unknown")
    sizes = _part_sizes(g, split, size)
    items, start = [], 0
    for length in sizes:
        part = g.emit(take_ranges(g, x, {axis: Range(start, start + length, 1)}))
        if split is None and not keepdims:
            part = g.emit(op.squeeze(part, axis=[axis]))
        items.append(g.to_value(part))
        start += length
    if start != size:
        raise InvalidModel(f"the parts {sizes} do not add up to {size}")
    return Sequence(tuple(items))


def _part_sizes(g: Graph, split: Value | None, size: int) -> list[int]:
    if split is None:
        return [1] * size
    sizes = g.as_ints(split, "split")
    if g.as_array(split, "split").ndim:
        return sizes
    each = sizes[0]
    if each <= 0:
        raise InvalidModel(f"split is {each}")
    return [min(each, size - i) for i in range(0, size, each)]


@onnx_op("OptionalHasElement", since=18)
def optional_has_element(g: Graph, x: Value | None = None) -> Known:
    return Known.constant(x is not None, bool)


@onnx_op("OptionalGetElement", since=18)
def optional_get_element(x: Value) -> Value:
    """A value that is there stands for itself: inputs of optional type are refused."""
    return x
