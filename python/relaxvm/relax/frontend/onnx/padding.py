# SPDX-License-Identifier: Apache-2.0
"""Padding whose amount may be symbolic; shared by convolution, pooling and Pad."""

from __future__ import annotations

from typing import Any

from relaxvm.relax import op

from .graph import Graph
from .scalars import Scalars, is_symbolic


def same_padding(
    scalars: Scalars, size: list, reach: list[int], strides: list[int], lower: bool
) -> tuple[list, list]:
    """Padding before and after each axis so that the output has ceil(size / stride) elements."""
    before, after = [], []
    for have, kernel, stride in zip(size, reach, strides):
        out = scalars.ceildiv(have, stride)
        needed = scalars.add(scalars.mul(scalars.sub(out, 1), stride), kernel)
        total = scalars.maximum(scalars.sub(needed, have), 0)
        small = scalars.floordiv(total, 2)
        large = scalars.sub(total, small)
        before.append(large if lower else small)
        after.append(small if lower else large)
    return before, after


def window_counts(
    scalars: Scalars,
    size: list,
    kernel: list[int],
    strides: list[int],
    dilations: list[int],
    pads: list[int],
) -> list:
    """How many whole windows lie along each axis; `pads` holds all begins, then all ends."""
    n, counts = len(kernel), []
    for i, extent in enumerate(size):
        reach = (kernel[i] - 1) * dilations[i] + 1
        room = scalars.sub(scalars.add(extent, pads[i] + pads[n + i]), reach)
        counts.append(scalars.add(scalars.floordiv(room, strides[i]), 1))
    return counts


def pad_constant(g: Graph, x: Any, before: list, after: list, value: Any) -> Any:
    """`x` with `value` (a number, or a scalar tensor) around it; negative amounts cut off."""
    # The attribute of nn.pad is a double: a wider integer is written as a tensor.
    number = isinstance(value, float) or (isinstance(value, int) and float(value) == value)
    is_known = not any(is_symbolic(p) for p in (*before, *after))
    if is_known and not any(before) and not any(after):
        return x
    if number and is_known:
        widths = [p for pair in zip(before, after) for p in pair]
        return g.emit(op.nn.pad(x, pad_width=widths, pad_value=float(value), pad_mode="constant"))
    fill = g.scalar(value, x) if isinstance(value, (bool, int, float)) else g.emit(value)
    return g.emit(op.rvm.pad(x, list(before), list(after), fill))
