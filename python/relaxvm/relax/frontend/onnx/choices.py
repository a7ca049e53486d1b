# SPDX-License-Identifier: Apache-2.0
"""Axes that a model computes while running: the node is imported once for each choice that there is."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from relaxvm import relax, tirx
from relaxvm.relax import op

from .errors import InvalidModel, UnsupportedModel
from .graph import Graph
from .scalars import is_symbolic
from .subgraphs import emit_if, walked
from .values import Known, Tensor, Value

MAX_CHOICES = 64
# Operators whose axes count the dimensions of the result.
_OF_RESULT = ("Unsqueeze",)
# Operators that pair axes with other inputs.
_ORDERED = ("Pad", "Slice")


def each(g: Graph, rule: Any, node: Any, inputs: list, position: int) -> tuple:
    """The outputs of the node, whose input `position` holds axes."""
    name = rule.inputs[position].name
    expr = g.as_expr(inputs[position], name)
    shape = g.shape(expr)
    if any(is_symbolic(d) for d in shape) or len(shape) > 1:
        raise UnsupportedModel(f"input '{name}' must have a known number of elements")
    count = shape[0] if shape else 1
    take = lambda axes: _with(inputs, position, Known.constant(axes, np.int64))
    if count == 0:
        return _values(g, rule(g, node, take([])))
    rank = g.rank(g.as_expr(inputs[0], "x"))
    rank += count if node.op_type in _OF_RESULT else 0
    # The order says nothing where all axes are treated alike.
    pick = itertools.permutations if node.op_type in _ORDERED else itertools.combinations
    picked = list(pick(range(rank), count))
    if not picked or len(picked) > MAX_CHOICES:
        raise UnsupportedModel(f"input '{name}' must be a constant: it may take too many values")
    zero = g.scalar(0, expr)
    expr = op.where(op.less(expr, zero), op.add(expr, g.scalar(rank, expr)), expr)
    if count > 1 and node.op_type not in _ORDERED:
        expr = op.sort(g.emit(expr))
    dims = g.run_time_dims(g.emit(expr), name)
    possible = [axes for axes in picked if _is_possible(g, rule, node, take(list(axes)))]
    if not possible:
        _values(g, rule(g, node, take(list(picked[0]))))  # says what is wrong
    return tuple(_first_of(g, rule, node, dims, possible, take))


def _is_possible(g: Graph, rule: Any, node: Any, inputs: list) -> bool:
    """A choice that contradicts the shapes is refused while running."""
    try:
        walked(g, lambda: list(_values(g, rule(g, node, inputs))))
    except (InvalidModel, ValueError) as e:
        if isinstance(e, UnsupportedModel):
            raise
        return False
    return True


def _with(inputs: list, position: int, value: Value) -> list:
    return [*inputs[:position], value, *inputs[position + 1 :]]


def _values(g: Graph, result: Any) -> tuple:
    results = result if isinstance(result, (tuple, list)) else [result]
    return tuple(None if r is None else g.to_value(r) for r in results)


def _first_of(g: Graph, rule: Any, node: Any, dims: list, picked: list, take: Any) -> list:
    """A chain of conditions, one for each choice; the last one must hold."""
    axes, rest = picked[0], picked[1:]
    condition = tirx.EQ(dims[0], tirx.IntImm("int64", axes[0]))
    for dim, axis in zip(dims[1:], axes[1:]):
        condition = tirx.And(condition, tirx.EQ(dim, tirx.IntImm("int64", axis)))
    if not rest:
        checked, *others = take(list(axes))
        checked = Tensor(g.only_if(condition, checked, "x"))
        return list(_values(g, rule(g, node, [checked, *others])))
    bodies = [
        walked(g, lambda: list(_values(g, rule(g, node, take(list(axes)))))),
        walked(g, lambda: _first_of(g, rule, node, dims, rest, take)),
    ]
    return emit_if(g, relax.prim_value(condition), bodies)
