# SPDX-License-Identifier: Apache-2.0
"""Operators that move elements, or choose among them, on dequantized tensors: the integers are moved.

move(dequantize(x)) = dequantize(move(x)), and quantize(dequantize(x)) with the same scale and zero point is x: what is
quantized again behind such an operator was never anything but integers, a quarter as large."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from relaxvm.relax import op

from .byte_products import is_single, known, shaped
from .element_types import NARROW
from .graph import Dequantized, Graph, Joined
from .subgraphs import RanksDiffer
from .values import Tensor, Value

# Operators whose results are elements of their first input, whatever the others are.
_MOVES = (
    "DepthToSpace", "Expand", "Flatten", "Gather", "GlobalMaxPool", "Identity", "MaxPool", "Reshape", "Resize",
    "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze", "Upsample",
)  # fmt: skip


def moved(
    g: Graph, node: Any, inputs: list[Value | None], call: Callable[[list], Any]
) -> list | None:
    """The node's results as real tensors, each noted as dequantized.  `call` imports the node with other inputs.
    None: it is no such operator, or of other tensors."""
    if node.domain not in ("", "ai.onnx") or not node.input:
        return None
    if node.op_type == "Concat":
        return _concat(g, node, inputs, call)
    if node.op_type not in _MOVES or not _only_moves(g, node):
        return None
    what = g.dequantized.get(node.input[0])
    if what is None or not _is_exact(g, what):
        return None
    try:
        return _noted(g, node, what, call([Tensor(what.values), *inputs[1:]]))
    except RanksDiffer:  # what follows needs the real tensor, once for each rank
        return None


def _only_moves(g, node):
    attributes = {a.name: a for a in node.attribute}
    if node.op_type in ("Resize", "Upsample"):
        text = lambda name, usual: attributes[name].s.decode() if name in attributes else usual
        outside = text("coordinate_transformation_mode", "") == "tf_crop_and_resize"
        return text("mode", "nearest") == "nearest" and not outside
    return node.op_type != "MaxPool" or not g.wants(1)


def _concat(g, node, inputs, call):
    parts = [g.dequantized.get(name) for name in node.input]
    if any(p is None or not _is_exact(g, p) for p in parts):
        return None
    if all(_same(g, parts[0], p) for p in parts[1:]):
        return _noted(g, node, parts[0], call([Tensor(p.values) for p in parts]))
    # Each part can be quantized by itself, where it is made.
    join = lambda values: call([Tensor(g.emit(v)) for v in values])
    g.joined[node.output[0]] = Joined([g.as_expr(i, "part") for i in inputs], parts, join)
    return None


def quantized_before(g: Graph, x: Dequantized | None, wanted: Dequantized) -> Any | None:
    """The integers of a tensor that is quantized again as `wanted` says (without `values`)."""
    return x.values if x is not None and _is_exact(g, x) and _same(g, x, wanted) else None


def _noted(g, node, what, results):
    results = list(results) if isinstance(results, (tuple, list)) else [results]
    real = []
    for name, values in zip(node.output, results):
        values = g.emit(values.expr if isinstance(values, Tensor) else values)
        if name:
            g.dequantized[name] = dataclasses.replace(what, values=values)
        real.append(g.emit(to_real(g, values, what)))
    return real


def to_real(g: Graph, values: Any, what: Dequantized) -> Any:
    """(values - zero) * scale with one scale and zero point."""
    wide = g.emit(op.astype(values, "float32"))  # which has all integers of 16 bits
    zero = np.zeros(()) if what.zero is None else known(what.zero)
    if zero is None:
        number = op.astype(op.reshape(what.zero, []), "float32")
        wide = g.emit(op.subtract(wide, g.emit(number)))
    elif zero.any():
        wide = g.emit(op.subtract(wide, g.constant(zero.reshape(()), "float32")))
    return op.multiply(wide, shaped(g, what.scale, []))


def _is_exact(g, what):
    """Is it of integers of up to 16 bits, with one known scale that loses nothing?"""
    if not is_single(g, what.scale) or not is_single(g, what.zero) or what.elem_type in NARROW:
        return False
    dtype = np.dtype(g.dtype(what.values))
    scale = known(what.scale)
    if dtype.kind not in "iu" or dtype.itemsize > 2 or scale is None or scale.dtype != np.float32:
        return False
    return bool(1e-30 < scale.reshape(()) < 1e30)


def _same(g, a, b):
    """Have both the same type, scale and zero point?"""
    if a.elem_type != b.elem_type or known(b.scale) is None:
        return False
    zeros = [np.zeros(()) if z is None else known(z) for z in (a.zero, b.zero)]
    if any(z is None or z.size != 1 for z in zeros):
        return False
    same_scale = known(b.scale).size == 1 and known(a.scale).item() == known(b.scale).item()
    return same_scale and zeros[0].item() == zeros[1].item()
