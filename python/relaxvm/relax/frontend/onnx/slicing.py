# SPDX-License-Identifier: Apache-2.0
"""Slices with ONNX's rules for ends that are negative, out of range or symbolic."""

from __future__ import annotations

import dataclasses
from typing import Any

from relaxvm.relax import op

from .errors import InvalidModel
from .graph import Graph
from .scalars import Scalars, is_symbolic


@dataclasses.dataclass(frozen=True)
class Range:
    """Elements `begin`, `begin + step`, ... below `end`, all inside the axis; `reverse` flips them."""

    begin: Any
    end: Any
    step: int
    reverse: bool = False


def resolve(s: Scalars, start: Any, end: Any, step: int, size: Any) -> Range:
    """ONNX's start, end and step on an axis of `size` elements."""
    if step == 0:
        raise InvalidModel("a step is 0")
    start, end = _from_front(s, start, size), _from_front(s, end, size)
    if step > 0:
        begin = _clamp(s, start, 0, size)
        return Range(begin, s.maximum(_clamp(s, end, 0, size), begin), step)
    last = s.sub(size, 1)
    first, stop = _clamp(s, start, -1, last), _clamp(s, end, -1, last)
    # first, first + step, ... above stop: the same elements upwards, then flipped.
    count = s.ceildiv(s.maximum(s.sub(first, stop), 0), -step)
    low = s.sub(first, s.mul(s.sub(count, 1), -step))
    empty = s.equal(count, 0)
    low = s.select(empty, 0, low)
    return Range(low, s.select(empty, 0, s.add(first, 1)), -step, True)


def _from_front(s: Scalars, index: Any, size: Any) -> Any:
    if not is_symbolic(index):
        return s.add(index, size) if index < 0 else index
    if s.prove(index >= 0):
        return index
    if s.prove(index < 0):
        return s.add(index, size)
    return s.select(s.compare(lambda a, b: a < b, index, 0), s.add(index, size), index)


def _clamp(s: Scalars, value: Any, low: Any, high: Any) -> Any:
    if not is_symbolic(value) and value >= (1 << 31) - 1:
        return high  # "to the end": ONNX has no other way to say it
    return s.minimum(s.maximum(value, low), high)


def take_ranges(g: Graph, x: Any, ranges: dict[int, Range]) -> Any:
    """The part of `x` that the ranges name, by axis."""
    axes = [a for a, r in ranges.items() if not _is_whole(g.scalars, r, g.shape(x)[a])]
    if axes:
        x = op.strided_slice(
            x,
            axes=axes,
            begin=[ranges[a].begin for a in axes],
            end=[ranges[a].end for a in axes],
            strides=[ranges[a].step for a in axes],
            assume_inbound=True,
        )
    for axis, r in ranges.items():
        if r.reverse:
            x = op.flip(x, axis=axis)
    return x


def _is_whole(s: Scalars, r: Range, size: Any) -> bool:
    return r.step == 1 and s.same(r.begin, 0) and s.same(r.end, size)


def take_first(g: Graph, x: Any, sizes: list) -> Any:
    """The first `sizes[i]` elements along each axis; None keeps an axis."""
    ranges = {
        i: Range(0, n, 1)
        for i, (n, d) in enumerate(zip(sizes, g.shape(x)))
        if n is not None and not g.scalars.same(n, d)
    }
    return take_ranges(g, x, ranges)
