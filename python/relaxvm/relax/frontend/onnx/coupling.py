# SPDX-License-Identifier: Apache-2.0
"""Probabilities of classes from those of their pairs.

The second method of T.-F. Wu, C.-J. Lin and R. C. Weng, "Probability Estimates for Multi-class
Classification by Pairwise Coupling" (2004): p minimises sum over pairs of (r_ji p_i - r_ij p_j)^2.
Its iteration ends where LIBSVM and its kin end it, before the minimum, and gives what they give.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from relaxvm.relax import op

from . import loops
from .graph import Graph
from .slicing import Range, take_ranges
from .values import Known, Tensor, Value

_ROUNDS = 100
_ERROR = 0.005  # divided by the number of classes
_NODES_A_STEP = 24


def coupled(g: Graph, pairs: Any, classes: int) -> Any:
    """[rows, classes] from [rows, pairs], the probability of the first of each pair (0, 1), (0, 2) ..."""
    quadratic = g.emit(_quadratic(g, pairs, classes))  # [rows, classes, classes]
    rows = g.shape(pairs)[0]
    start = g.emit(op.full([rows, classes], g.constant(1 / classes, "float32")))
    limit = g.constant(_ERROR / classes, "float32")

    def one_round(number: Value, condition: Value, carried: list[Value]) -> tuple:
        p = carried[0].expr
        qp = g.emit(op.sum(op.multiply(quadratic, op.expand_dims(p, axis=[1])), axis=[2]))
        pqp = g.emit(op.sum(op.multiply(p, qp), axis=[1], keepdims=True))
        error = op.max(op.abs(op.subtract(qp, pqp)), axis=[1], keepdims=True)
        open_ = g.emit(op.greater_equal(g.emit(error), limit))
        following = _each_class(g, quadratic, classes, [p, qp, pqp])
        p = g.emit(op.where(open_, following, p))
        more = op.max(op.astype(open_, "int32"))
        more = g.emit(op.greater(g.emit(more), g.constant(0, "int32")))
        return Tensor(more), [Tensor(p)], []

    always = Tensor(g.constant(True, "bool"))
    loop = loops.Loop(_ROUNDS, always, [Tensor(start)], one_round, _NODES_A_STEP * classes)
    (p,), _ = loops.run(g, loop)
    return p.expr


def _quadratic(g: Graph, pairs: Any, classes: int) -> Any:
    """Q: the sum of r_ji^2 over j on the diagonal, -r_ji r_ij beside it."""
    rows, count = g.shape(pairs)[0], g.shape(pairs)[1]
    other = op.subtract(g.constant(1.0, "float32"), pairs)
    all_ = g.emit(op.concat([pairs, g.emit(other), op.zeros([rows, 1], "float32")], axis=1))
    places = np.full((classes, classes), 2 * count, np.int64)  # that of 0
    for p, (i, j) in enumerate(itertools.combinations(range(classes), 2)):
        places[i, j], places[j, i] = p, count + p
    take = lambda at: g.emit(op.take(all_, g.constant(at), axis=1))
    r, turned = take(places), take(np.ascontiguousarray(places.T))
    squares = g.emit(op.sum(op.multiply(turned, turned), axis=[2], keepdims=True))
    diagonal = op.multiply(squares, g.constant(np.eye(classes, dtype=np.float32)))
    return op.subtract(g.emit(diagonal), g.emit(op.multiply(r, turned)))


def _each_class(g: Graph, quadratic: Any, classes: int, first: list[Any]) -> Any:
    """One round: each class in turn is set to its minimum, and all are scaled to sum to 1."""

    def one_class(number: Value, condition: Value, carried: list[Value]) -> tuple:
        p, qp, pqp = (v.expr for v in carried)
        i = number.array.reshape(()).item()
        here = Range(i, g.scalars.add(i, 1), 1)
        row = g.emit(take_ranges(g, quadratic, {1: here}))
        rows = g.shape(quadratic)[0]
        row = g.emit(op.squeeze(g.checked(row, [rows, 1, classes]), axis=[1]))
        column = lambda x: g.checked(g.emit(take_ranges(g, x, {1: here})), [rows, 1])
        diagonal, own = column(row), column(qp)
        step = g.emit(op.divide(op.subtract(pqp, own), diagonal))
        scale = g.emit(op.add(step, g.constant(1.0, "float32")))
        two = g.constant(2.0, "float32")
        change = op.add(op.multiply(step, diagonal), op.multiply(two, own))
        pqp = op.add(pqp, op.multiply(step, g.emit(change)))
        pqp = g.emit(op.divide(op.divide(g.emit(pqp), scale), scale))
        qp = g.emit(op.divide(op.add(qp, op.multiply(step, row)), scale))
        moved = op.equal(g.constant(np.arange(classes)), g.as_expr(number, "i"))
        p = op.add(p, op.where(g.emit(moved), step, g.constant(0.0, "float32")))
        p = g.emit(op.divide(g.emit(p), scale))
        return condition, [Tensor(v) for v in (p, qp, pqp)], []

    always = Known.constant(True, bool)
    carried = [Tensor(v) for v in first]
    loop = loops.Loop(classes, always, carried, one_class, _NODES_A_STEP)
    (p, _, _), _ = loops.run(g, loop)
    return p.expr
