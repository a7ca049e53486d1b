# SPDX-License-Identifier: Apache-2.0
"""Sequences.  One whose length is known at import does not exist at run time; others are lists of the VM."""

from __future__ import annotations

from typing import Any

from relaxvm import relax
from relaxvm.relax import op
from relaxvm.relax.op import call_pure_packed

from ..errors import InvalidModel, UnsupportedModel
from ..graph import Graph
from ..registry import Expr, onnx_op
from ..scalars import is_symbolic
from ..slicing import Range, take_ranges
from ..values import (
    ItemSequence,
    Known,
    Maybe,
    Sequence,
    Tensor,
    Value,
    fixed_dims,
    item_type_of,
    joined_item_type,
)
from .movement import concat


def _call(g: Graph, name: str, *args: Any) -> Any:
    return g.emit(call_pure_packed(f"vm.builtin.{name}", *args, ty_args=[relax.AnyType()]))


def _is_static(sequence: Value, position: Value | None) -> bool:
    known = position is None or (isinstance(position, Known) and position.is_constant)
    return isinstance(sequence, Sequence) and known


def _position(items: tuple, position: Value, end: int) -> int:
    index = int(position.array.reshape(-1)[0])
    if not -len(items) <= index < end:
        raise InvalidModel(f"position {index} is out of range for a sequence of {len(items)}")
    return index + len(items) if index < 0 else index


def _item_type(sequence: Value) -> Any:
    if isinstance(sequence, ItemSequence):
        return sequence.item_type
    found = None
    for item in sequence.items:
        found = joined_item_type(found, item_type_of(item))
    return found


@onnx_op("SequenceConstruct", since=11)
def sequence_construct(*items: Value) -> Sequence:
    return Sequence(items)


@onnx_op("SequenceEmpty", since=11)
def sequence_empty(*, dtype: int = 1) -> Sequence:
    return Sequence(())


@onnx_op("SequenceAt", since=11)
def sequence_at(g: Graph, sequence: Value, position: Value) -> Value:
    if _is_static(sequence, position):
        return sequence.items[_position(sequence.items, position, len(sequence.items))]
    ty = _item_type(sequence)
    if ty is None or ty.ndim < 0:
        raise UnsupportedModel("its items have different numbers of dimensions, or unknown ones")
    where = g.as_expr(position, "position")
    expr = _call(g, "sequence_at", g.sequence_expr(sequence), where)
    dims = [g.dimensions.fresh("item") if d is None else d for d in fixed_dims(ty)]
    return Tensor(g.builder.match_cast(expr, relax.TensorType(dims, ty.dtype), g.hint()))


@onnx_op("SequenceInsert", since=11)
def sequence_insert(g: Graph, sequence: Value, item: Value, position: Value | None = None) -> Value:
    if _is_static(sequence, position):
        items = sequence.items
        at = len(items) if position is None else _position(items, position, len(items) + 1)
        return Sequence((*items[:at], item, *items[at:]))
    ty = joined_item_type(_item_type(sequence), item_type_of(item))
    args = [g.sequence_expr(sequence), g.emit(g.as_expr(item, "item"))]
    if position is not None:
        args.append(g.as_expr(position, "position"))
    return ItemSequence(_call(g, "sequence_insert", *args), ty)


@onnx_op("SequenceErase", since=11)
def sequence_erase(g: Graph, sequence: Value, position: Value | None = None) -> Value:
    if _is_static(sequence, position):
        items = sequence.items
        last = Known.constant(-1) if position is None else position
        at = _position(items, last, len(items))
        return Sequence(items[:at] + items[at + 1 :])
    where = [] if position is None else [g.as_expr(position, "position")]
    expr = _call(g, "sequence_erase", g.sequence_expr(sequence), *where)
    return ItemSequence(expr, _item_type(sequence))


@onnx_op("SequenceLength", since=11)
def sequence_length(g: Graph, sequence: Value) -> Known:
    if isinstance(sequence, Sequence):
        return g.dims_value([len(sequence.items)], ())
    count = g.dimensions.fresh("length")
    shape = g.emit(
        call_pure_packed(
            "vm.builtin.sequence_length",
            g.sequence_expr(sequence),
            ty_args=[relax.ShapeType(ndim=1)],
        )
    )
    g.builder.match_cast(shape, relax.ShapeType([count]), g.hint())
    return g.dims_value([count], ())


@onnx_op("ConcatFromSequence", since=11)
def concat_from_sequence(g: Graph, sequence: Value, *, axis: int, new_axis: int = 0) -> Expr:
    if isinstance(sequence, ItemSequence):
        ty = sequence.item_type
        if ty is None or ty.ndim < 0:
            raise UnsupportedModel("its items have different numbers of dimensions")
        axis = g.axis(axis, ty.ndim + new_axis)
        return g.list_concat(sequence.expr, axis, bool(new_axis), str(ty.dtype), [None] * ty.ndim)
    if not isinstance(sequence, Sequence):
        raise InvalidModel("its input is no sequence")
    parts = [g.as_expr(item, "sequence") for item in sequence.items]
    if not parts:
        raise InvalidModel("an empty sequence has nothing to concatenate")
    if new_axis:
        axis = g.axis(axis, g.rank(parts[0]) + 1)
        parts = [g.emit(op.expand_dims(p, axis=[axis])) for p in parts]
    return concat(g, *parts, axis=axis)


@onnx_op("SplitToSequence", since=11)
def split_to_sequence(
    g: Graph, x: Expr, split: Value | None = None, *, axis: int = 0, keepdims: int = 1
) -> Value:
    axis = g.axis(axis, g.rank(x))
    size = g.shape(x)[axis]
    keepdims = 1 if split is not None else keepdims
    if is_symbolic(size) or not (split is None or (isinstance(split, Known) and split.is_constant)):
        sizes = [] if split is None else [g.as_expr(split, "split")]
        flags = [relax.prim_value(axis), relax.prim_value(keepdims)]
        ones = split is None or _is_one(split) or g.filled.get(g.node.input[1]) == 1
        part = 1 if ones else g.dimensions.fresh("part")
        dims = [part if i == axis else d for i, d in enumerate(g.shape(x)) if keepdims or i != axis]
        ty = relax.TensorType(dims, g.dtype(x))
        return ItemSequence(_call(g, "sequence_split", g.emit(x), *flags, *sizes), ty)
    sizes = _part_sizes(g, split, size)
    items, start = [], 0
    for length in sizes:
        part = g.emit(take_ranges(g, x, {axis: Range(start, start + length, 1)}))
        if not keepdims:
            part = g.emit(op.squeeze(part, axis=[axis]))
        items.append(g.to_value(part))
        start += length
    if start != size:
        raise InvalidModel(f"the parts {sizes} do not add up to {size}")
    return Sequence(tuple(items))


def _is_one(split: Value) -> bool:
    """Are all parts of one element?"""
    known = isinstance(split, Known) and split.is_constant
    return known and split.array.ndim == 0 and int(split.array) == 1


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


@onnx_op("Optional", since=15)
def optional(x: Value | None = None, *, type: object | None = None) -> Value:
    """A value that is there stands for itself."""
    return Maybe(None, None) if x is None else x


@onnx_op("OptionalHasElement", since=15)
def optional_has_element(g: Graph, x: Value | None = None) -> Value:
    if not isinstance(x, Maybe) or x.expr is None:
        return Known.constant(x is not None and not isinstance(x, Maybe), bool)
    ty = relax.TensorType((), "bool")
    return Tensor(g.emit(call_pure_packed("vm.builtin.optional_has_element", x.expr, ty_args=[ty])))


@onnx_op("OptionalGetElement", since=15)
def optional_get_element(g: Graph, x: Value) -> Value:
    """The element; while running it is an error when there is none."""
    if not isinstance(x, Maybe):
        return x
    if x.expr is None:
        raise InvalidModel("the optional value has no element")
    if x.is_sequence:
        return ItemSequence(x.expr, x.item_type)
    if x.item_type.ndim < 0:
        raise UnsupportedModel("the element has an unknown number of dimensions")
    dims = [g.dimensions.fresh("item") for _ in range(x.item_type.ndim)]
    ty = relax.TensorType(dims, x.item_type.dtype)
    return Tensor(g.builder.match_cast(x.expr, ty, g.hint()))
