# SPDX-License-Identifier: Apache-2.0
"""Operators that move elements and compute nothing."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from relaxvm.relax import op

from ..broadcasting import fitted, joint_shape
from ..errors import InvalidModel, UnsupportedModel
from ..graph import Graph
from ..padding import pad_constant
from ..registry import Axes, Dims, Expr, Offsets, onnx_op
from ..scalars import is_symbolic
from ..slicing import Range, resolve, take_ranges
from ..subgraphs import RanksDiffer
from ..values import Known, Value


@onnx_op("Identity", since=1)
def identity(x: Value) -> Value:
    return x


@onnx_op("Reshape", since=5)
def reshape(g: Graph, x: Expr, shape: Value, *, allowzero: int = 0) -> Expr:
    if isinstance(shape, Known):
        wanted = reshaped_dims(g, g.shape(x), g.as_dims(shape, "shape"), bool(allowzero))
        if allowzero and any(not is_symbolic(d) and d == 0 for d in wanted):
            return _empty(g, x, wanted)
    else:
        wanted = _run_time_shape(g, g.shape(x), g.as_offsets(shape, "shape"), bool(allowzero))
    return op.reshape(x, wanted)


def _empty(g: Graph, x: Any, wanted: list) -> Any:
    """`x`, which must have no elements, in a shape with a 0; to `op.reshape` that means another dimension."""
    flat = g.checked(g.emit(op.reshape(x, [g.product(g.shape(x))])), [0])
    zero = next(i for i, d in enumerate(wanted) if not is_symbolic(d) and d == 0)
    flat = g.emit(op.expand_dims(flat, axis=[i for i in range(len(wanted)) if i != zero]))
    return op.broadcast_to(flat, wanted)


def _run_time_shape(g: Graph, have: list, wanted: list, allowzero: bool) -> list:
    """0 and -1 resolved while running."""
    s = g.scalars
    if not allowzero:
        kept = [*have, *[0] * len(wanted)]
        wanted = [s.select(s.equal(d, 0), keep, d) for d, keep in zip(wanted, kept)]
    known = g.product([s.select(s.equal(d, -1), 1, d) for d in wanted])
    rest = s.floordiv(g.product(have), s.maximum(known, 1))
    return [s.maximum(s.select(s.equal(d, -1), rest, d), 0) for d in wanted]


def reshaped_dims(g: Graph, have: list, wanted: list, allowzero: bool) -> list:
    """ONNX's 0 (keep) and -1 (what is left) as dimensions."""
    s, dims, rest = g.scalars, [], None
    for i, d in enumerate(wanted):
        if not is_symbolic(d) and d == 0 and not allowzero:
            if i >= len(have):
                raise InvalidModel(
                    f"shape {wanted} keeps dimension {i} of an input with {len(have)}"
                )
            d = have[i]
        elif is_symbolic(d) and not allowzero and i < len(have) and s.chooses(d):
            d = s.select(s.equal(d, 0), have[i], d)
        elif not is_symbolic(d) and d < 0:
            if d != -1 or rest is not None:
                raise InvalidModel(f"shape {wanted} is not allowed: one -1, nothing below")
            rest = i
        dims.append(d)
    dims = _as_they_are(g, have, dims)
    if rest is not None:
        dims[rest] = _left_over(g, have, dims, rest)
    elif s.differ(g.product(have), g.product(dims)):
        raise InvalidModel(f"an input of shape {have} cannot have shape {dims}")
    return dims


def _as_they_are(g, have, dims):
    """Dimensions in the input's words, where they differ from its own for an empty input alone.

    PyTorch's exporter divides lengths as integers, towards zero: 1 + (h - 1) / 4 says 1 where an h of 0 has no windows.
    """
    open_dims = [h for h in have if is_symbolic(h)]

    def said(d):
        if not is_symbolic(d) or any(g.scalars.same(d, h) for h in open_dims):
            return d
        return next((h for h in open_dims if g.scalars.same_unless_empty(d, h)), d)

    return [said(d) for d in dims]


def _left_over(g, have, dims, rest):
    s, others = g.scalars, dims[:rest] + dims[rest + 1 :]
    # Equal dimensions on both sides cancel, whatever their value.
    left, right = list(have), []
    for d in others:
        match = next((i for i, h in enumerate(left) if s.same(h, d)), None)
        if match is None or (not is_symbolic(d) and d == 0):
            right.append(d)
        else:
            del left[match]
    total, known = g.product(left), g.product(right)
    if not is_symbolic(total) and not is_symbolic(known):
        if known == 0:
            raise InvalidModel(
                f"shape {dims} has a 0 beside the -1, which may be anything then;"
                f" give a number in the place of the -1 (the input has shape {have})"
            )
        if total % known:
            raise InvalidModel(f"an input of shape {have} cannot have shape {dims}")
    return s.floordiv(total, known)


@onnx_op("Flatten", since=1)
def flatten(g: Graph, x: Expr, *, axis: int = 1) -> Expr:
    shape = g.shape(x)
    axis = axis if axis == len(shape) else g.axis(axis, len(shape))
    return op.reshape(x, [g.product(shape[:axis]), g.product(shape[axis:])])


@onnx_op("Transpose", since=1)
def transpose(g: Graph, x: Expr, *, perm: list[int] | None = None) -> Expr:
    rank = g.rank(x)
    perm = perm if perm is not None else list(range(rank))[::-1]
    if sorted(perm) != list(range(rank)):
        raise InvalidModel(f"perm {perm} is no order of {rank} axes")
    weight = g.block_weights.get(g.node.input[0])
    if weight is not None and perm == [1, 0]:
        g.block_weights[g.node.output[0]] = weight.turned()
    return x if perm == list(range(rank)) else op.permute_dims(x, perm)


@onnx_op("Concat", since=4)
def concat(g: Graph, x: Expr, *rest: Expr, axis: int) -> Expr:
    if not rest:
        return x
    parts = [x, *rest]
    rank = g.rank(x)
    axis = g.axis(axis, rank)
    shapes = [g.shape(p) for p in parts]
    if any(len(s) != rank for s in shapes):
        raise InvalidModel(f"its inputs differ in their number of dimensions: {shapes}")
    for i in range(rank):
        if i != axis:
            dims = [s[i] for s in shapes]
            common = next((d for d in dims if not is_symbolic(d)), dims[0])
            for s in shapes:
                s[i] = common
    return op.concat([g.checked(p, s) for p, s in zip(parts, shapes)], axis=axis)


def _split(g, x, sizes, axis, parts, even):
    """`sizes` along an axis, or `parts` of equal size; if not `even` the last one may be smaller."""
    axis = g.axis(axis, g.rank(x))
    shape, s = g.shape(x), g.scalars
    size, whole = shape[axis], list(shape)
    if sizes is None:
        each = s.ceildiv(size, parts)
        most = s.mul(each, parts - 1)
        sizes = [each] * (parts - 1) + [each if even else s.sub(size, most)]
        x = g.at_least(x, [*shape[:axis], most, *shape[axis + 1 :]])
    elif any(not is_symbolic(d) and d < 0 for d in sizes):
        raise InvalidModel(f"the parts {sizes} are numbers of elements: give 0 or more for each")
    whole[axis] = functools.reduce(s.add, sizes)
    if s.differ(whole[axis], size):
        raise InvalidModel(f"the parts {sizes} do not add up to {size}")
    x = g.checked(x, whole)
    total, outputs = 0, []
    for d in sizes:
        end = s.add(total, d)
        outputs.append(take_ranges(g, x, {axis: Range(total, end, 1)}))
        total = end
    return tuple(outputs)


@onnx_op("Split", since=2)
def split_2(g: Graph, x: Expr, *, axis: int = 0, split: list[int] | None = None) -> tuple:
    return _split(g, x, split, axis, len(g.node.output), True)


@onnx_op("Split", since=13)
def split_13(
    g: Graph, x: Expr, split: Dims | None = None, *, axis: int = 0, num_outputs: int | None = None
) -> tuple:
    even = num_outputs is None
    return _split(g, x, split, axis, num_outputs or len(g.node.output), even)


@onnx_op("Slice", since=1)
def slice_1(
    g: Graph, x: Expr, *, starts: list[int], ends: list[int], axes: list[int] | None = None
) -> Expr:
    return _slice(g, x, starts, ends, axes, None)


@onnx_op("Slice", since=10)
def slice_10(
    g: Graph,
    x: Expr,
    starts: Value,
    ends: Value,
    axes: Axes | None = None,
    steps: Value | None = None,
) -> Expr:
    starts, ends = _bounds(g, starts, "starts", axes), _bounds(g, ends, "ends", axes)
    if steps is not None and not g.is_constant(steps):
        return _slice_by_index(g, x, starts, ends, axes, g.as_expr(steps, "steps"))
    return _slice(g, x, starts, ends, axes, None if steps is None else g.as_ints(steps, "steps"))


def _bounds(g, bounds, name, axes):
    """One of them for each axis, also where what computes them does not tell how many there are."""
    if axes is not None and not isinstance(bounds, Known):
        expr = g.as_expr(bounds, name)
        if g.rank(expr) == 1:
            bounds = g.to_value(g.checked(expr, [len(axes)]))
    return g.as_offsets(bounds, name)


def _slice_by_index(g, x, starts, ends, axes, steps):
    """Steps that are computed while running: the indices are written down, then gathered."""
    shape, i64 = g.shape(x), lambda v: g.constant(v, "int64")
    axes = list(range(len(starts))) if axes is None else [g.axis(a, len(shape)) for a in axes]
    steps = op.astype(steps, "int64") if g.dtype(steps) != "int64" else steps
    number = lambda v: g.as_expr(g.dims_value([v], ()), "bound")
    for k, axis in enumerate(axes):
        step = op.reshape(op.strided_slice(steps, axes=[0], begin=[k], end=[k + 1]), [])
        step = g.emit(step)
        up, size = g.emit(op.greater(step, i64(0))), number(shape[axis])
        last = g.emit(op.where(up, size, op.subtract(size, i64(1))))
        least = g.emit(op.where(up, i64(0), i64(-1)))

        def bound(v, low, size=size, last=last):
            v = number(v)
            v = op.where(op.less(v, i64(0)), op.add(v, size), v)
            return g.emit(op.minimum(op.maximum(v, low), last))

        start, end = bound(starts[k], i64(0)), bound(ends[k], least)
        length = op.where(up, op.subtract(end, start), op.subtract(start, end))
        width = op.abs(step)
        count = op.floor_divide(op.subtract(op.add(length, width), i64(1)), width)
        count = g.run_time_dims(g.emit(op.reshape(op.maximum(count, i64(0)), [1])), "count")[0]
        steps_taken = op.multiply(op.arange(0, count, 1, dtype="int64"), step)
        x = g.emit(op.take(x, op.add(steps_taken, start), axis=axis))
    return x


def _slice(g, x, starts, ends, axes, steps):
    shape = g.shape(x)
    axes = list(range(len(starts))) if axes is None else [g.axis(a, len(shape)) for a in axes]
    steps = steps or [1] * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise InvalidModel("starts, ends, axes and steps differ in length")
    ranges = {
        axis: resolve(g.scalars, start, end, step, shape[axis])
        for start, end, axis, step in zip(starts, ends, axes, steps)
    }
    return take_ranges(g, x, ranges)


@onnx_op("Squeeze", since=1)
def squeeze_1(g: Graph, x: Expr, *, axes: list[int] | None = None) -> Expr:
    return _squeeze(g, x, axes)


@onnx_op("Squeeze", since=13)
def squeeze_13(g: Graph, x: Expr, axes: Axes | None = None) -> Expr:
    return _squeeze(g, x, axes)


# Axes that may turn out to have one element: every one doubles what follows.
_MAX_OPEN_AXES = 3


def _squeeze_ones(g, x, is_one):
    """Without the axes of one element; `is_one` says of axes whether they are, for which it is decided."""
    shape = g.shape(x)
    for axis, dim in enumerate(shape):
        if axis in is_one:
            continue
        alike = next((is_one[a] for a in is_one if g.scalars.same(shape[a], dim)), None)
        one = g.scalars.equal(dim, 1) if alike is None else alike
        if is_symbolic(one):
            if sum(is_symbolic(d) for d in shape) > _MAX_OPEN_AXES:
                raise UnsupportedModel(
                    f"which axes to squeeze depends on more than {_MAX_OPEN_AXES} symbolic dimensions; give axes"
                )
            decided = ({**is_one, axis: True}, {**is_one, axis: False})
            branches = tuple(lambda d=d: [g.to_value(_squeeze_ones(g, x, d))] for d in decided)
            raise RanksDiffer(Known.of(np.array(one, object), bool), branches)
        is_one = {**is_one, axis: bool(one)}
    return _squeeze(g, x, [axis for axis, one in is_one.items() if one])


def _squeeze(g, x, axes):
    if axes is None:
        return _squeeze_ones(g, x, {})
    shape = g.shape(x)
    axes = sorted({g.axis(a, len(shape)) for a in axes})
    x = g.checked(x, [1 if i in axes else d for i, d in enumerate(shape)])
    return op.squeeze(x, axis=axes) if axes else x


@onnx_op("Unsqueeze", since=1)
def unsqueeze_1(g: Graph, x: Expr, *, axes: list[int]) -> Expr:
    return _unsqueeze(g, x, axes)


@onnx_op("Unsqueeze", since=13)
def unsqueeze_13(g: Graph, x: Expr, axes: Axes) -> Expr:
    return _unsqueeze(g, x, axes)


def _unsqueeze(g, x, axes):
    rank = g.rank(x) + len(axes)
    axes = sorted(g.axis(a, rank) for a in axes)
    if len(set(axes)) != len(axes):
        raise InvalidModel(f"axes {axes} name an axis twice")
    return op.expand_dims(x, axis=axes) if axes else x


@onnx_op("Expand", since=8)
def expand(g: Graph, x: Expr, shape: Dims) -> Expr:
    target = joint_shape(g, [shape, g.shape(x)])
    return op.broadcast_to(fitted(g, x, target), target)


@onnx_op("Tile", since=6)
def tile(g: Graph, x: Expr, repeats: Dims) -> Expr:
    shape = g.shape(x)
    if not any(is_symbolic(r) or (r != 1 and is_symbolic(d)) for r, d in zip(repeats, shape)):
        return op.tile(x, repeats)
    # [a, b, c] -> [1, a, 1, b, c] -> [r, a, s, b, c] -> [r * a, s * b, c]: no division by a size that is not known.
    between, repeated = [], []
    for r, d in zip(repeats, shape):
        between += [d] if r == 1 else [1, d]
        repeated += [d] if r == 1 else [r, d]
    final = [g.scalars.mul(r, d) for r, d in zip(repeats, shape)]
    return op.reshape(op.broadcast_to(op.reshape(x, between), repeated), final)


@onnx_op("Pad", since=2)
def pad_2(
    g: Graph, x: Expr, *, pads: list[int], mode: str = "constant", value: float = 0.0
) -> Expr:
    return _pad(g, x, pads, value, mode, None)


@onnx_op("Pad", since=11)
def pad_11(
    g: Graph,
    x: Expr,
    pads: Offsets,
    value: Value | None = None,
    axes: Axes | None = None,
    *,
    mode: str = "constant",
) -> Expr:
    fill = 0
    if isinstance(value, Known) and value.is_constant:
        fill = value.array.reshape(-1)[0].item() if value.array.size else 0
    elif value is not None:
        fill = op.reshape(g.as_expr(value, "value"), [])
    return _pad(g, x, pads, fill, mode, axes)


@onnx_op("CenterCropPad", since=18)
def center_crop_pad(g: Graph, x: Expr, shape: Dims, *, axes: list[int] | None = None) -> Expr:
    rank, s = g.rank(x), g.scalars
    axes = list(range(rank)) if axes is None else [g.axis(a, rank) for a in axes]
    if len(shape) != len(axes):
        raise InvalidModel(f"shape has {len(shape)} values, {len(axes)} are needed")
    more = [s.sub(wanted, g.shape(x)[axis]) for axis, wanted in zip(axes, shape)]
    before = [s.truncdiv(n, 2) for n in more]  # what is odd stands behind
    return _pad(g, x, [*before, *map(s.sub, more, before)], 0, "constant", axes)


_PAD_MODES = {"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"}


def _pad(g, x, pads, value, mode, axes):
    rank = g.rank(x)
    axes = list(range(rank)) if axes is None else [g.axis(a, rank) for a in axes]
    if len(pads) != 2 * len(axes):
        raise InvalidModel(f"pads has {len(pads)} values, {2 * len(axes)} are needed")
    if mode not in _PAD_MODES:
        raise InvalidModel(f"mode is one of {sorted(_PAD_MODES)}, not '{mode}'")
    before, after = [0] * rank, [0] * rank
    for i, axis in enumerate(axes):
        before[axis], after[axis] = pads[i], pads[i + len(axes)]
    if mode == "constant":
        return pad_constant(g, x, before, after, value)
    x, before, after = _cut(g, x, before, after)
    if any(is_symbolic(p) for p in before + after):
        for axis, (low, high) in enumerate(zip(before, after)):
            x = _repeat_border(g, x, axis, low, high, mode)
        return x
    if not any(before + after):
        return x
    if mode == "reflect":
        longest = [max(low, high) for low, high in zip(before, after)]
        x = g.at_least(x, [n + 1 if n else 0 for n in longest])
    widths = [p for pair in zip(before, after) for p in pair]
    return op.nn.pad(x, pad_width=widths, pad_value=0.0, pad_mode=_PAD_MODES[mode])


def _repeat_border(g, x, axis, before, after, mode):
    """Padding of one axis by the indices of the elements that stand there; amounts may be symbolic."""
    if not is_symbolic(before) and not is_symbolic(after) and before == after == 0:
        return x
    s, count = g.scalars, g.shape(x)[axis]
    last = g.as_expr(g.dims_value([s.sub(count, 1)], ()), "size")
    places = op.arange(0, s.add(s.add(before, count), after), 1, dtype="int64")
    index = op.subtract(places, g.as_expr(g.dims_value([before], ()), "pads"))
    zero, one = g.constant(0, "int64"), g.constant(1, "int64")
    if mode == "edge":
        index = op.minimum(op.maximum(index, zero), last)
    elif mode == "wrap":
        index = op.floor_mod(index, op.add(last, one))
    else:
        # There and back again; one element alone has nothing to go to.
        period = op.maximum(op.multiply(last, g.constant(2, "int64")), one)
        index = op.floor_mod(index, period)
        index = op.minimum(index, op.subtract(period, index))
        index = op.minimum(index, last)
    return g.emit(op.take(x, g.emit(index), axis=axis))


def _cut(g, x, before, after):
    """Negative padding removes elements; what an axis has not, it takes off the padding of the other side."""
    s, ranges, padding = g.scalars, {}, []
    for axis, size in enumerate(g.shape(x)):
        low, high = (s.maximum(s.sub(0, side[axis]), 0) for side in (before, after))
        grown = [s.maximum(side[axis], 0) for side in (before, after)]
        if is_symbolic(low) or is_symbolic(high) or low or high:
            begin = s.minimum(low, size)
            ranges[axis] = Range(begin, s.maximum(s.sub(size, high), begin), 1)
            missing = [s.maximum(s.sub(cut, size), 0) for cut in (high, low)]
            grown = [
                s.maximum(s.sub(a, b), 0) if is_symbolic(a) or a else 0
                for a, b in zip(grown, missing)
            ]
        padding.append(grown)
    x = g.emit(take_ranges(g, x, ranges)) if ranges else x
    return x, [p[0] for p in padding], [p[1] for p in padding]


@onnx_op("DepthToSpace", since=1)
def depth_to_space(g: Graph, x: Expr, *, blocksize: int, mode: str = "DCR") -> Expr:
    n, c, h, w = g.shape(x)
    s, b = g.scalars, blocksize
    depth = s.floordiv(c, b * b)
    if mode == "DCR":
        x, order = op.reshape(x, [n, b, b, depth, h, w]), [0, 3, 4, 1, 5, 2]
    else:
        x, order = op.reshape(x, [n, depth, b, b, h, w]), [0, 1, 4, 2, 5, 3]
    return op.reshape(op.permute_dims(x, order), [n, depth, s.mul(h, b), s.mul(w, b)])


@onnx_op("SpaceToDepth", since=1)
def space_to_depth(g: Graph, x: Expr, *, blocksize: int, mode: str = "DCR") -> Expr:
    n, c, h, w = g.shape(x)
    s, b = g.scalars, blocksize
    rows, columns = s.floordiv(h, b), s.floordiv(w, b)
    x = g.checked(x, [n, c, s.mul(rows, b), s.mul(columns, b)])
    order = [0, 3, 5, 1, 2, 4] if mode == "DCR" else [0, 1, 3, 5, 2, 4]
    x = op.permute_dims(op.reshape(x, [n, c, rows, b, columns, b]), order)
    return op.reshape(x, [n, s.mul(c, b * b), rows, columns])


@onnx_op("Trilu", since=14)
def trilu(g: Graph, x: Expr, k: Value | None = None, *, upper: int = 1) -> Expr:
    if k is None or g.is_constant(k):
        offset = 0 if k is None else g.as_ints(k, "k")[0]
        return op.triu(x, offset) if upper else op.tril(x, offset)
    rows, columns = g.shape(x)[-2:]
    offset = op.reshape(g.as_expr(k, "k"), [])
    row = op.reshape(op.arange(0, rows, 1, dtype="int64"), [rows, 1])
    column = op.reshape(op.arange(0, columns, 1, dtype="int64"), [1, columns])
    distance = op.subtract(column, row)
    kept = op.greater_equal(distance, offset) if upper else op.less_equal(distance, offset)
    return op.where(kept, x, g.scalar(0, x))


@onnx_op("ReverseSequence", since=10)
def reverse_sequence(
    g: Graph, x: Expr, lengths: Expr, *, batch_axis: int = 1, time_axis: int = 0
) -> Expr:
    return op.reverse_sequence(x, lengths, seq_axis=time_axis, batch_axis=batch_axis)
