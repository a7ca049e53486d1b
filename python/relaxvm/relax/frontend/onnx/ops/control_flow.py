# SPDX-License-Identifier: Apache-2.0
"""If, Loop and Scan.  The branches of a condition that is known at import are imported in place."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np

from relaxvm.relax import op

from .. import loops
from ..errors import InvalidModel, UnsupportedModel
from ..graph import Graph
from ..registry import Expr, Subgraph, onnx_op
from ..scalars import is_symbolic
from ..slicing import Range, take_ranges
from ..subgraphs import (
    RanksDiffer,
    emit_if,
    joined_outputs,
    leaf_rows,
    outputs_of,
    ranks_differ,
    walked,
)
from ..values import Known, Value


@onnx_op("If", since=1)
def if_(g: Graph, condition: Value, *, then_branch: Subgraph, else_branch: Subgraph) -> tuple:
    """Outputs that are known at import and equal in both branches stay known."""
    branches = (then_branch, else_branch)
    if isinstance(condition, Known) and condition.is_constant:
        return tuple(outputs_of(g, branches[0] if condition.array.all() else branches[1]))
    makers = tuple(functools.partial(outputs_of, g, b) for b in branches)
    bodies = [walked(g, make) for make in makers]
    if ranks_differ(leaf_rows(joined_outputs(g, bodies))):
        raise RanksDiffer(condition, makers)
    return tuple(emit_if(g, g.as_expr(condition, "cond"), bodies))


def _count_nodes(graph: Any) -> int:
    subgraphs = [a.g for n in graph.node for a in n.attribute if a.HasField("g")]
    return len(graph.node) + sum(map(_count_nodes, subgraphs))


@onnx_op("Loop", since=1)
def loop(
    g: Graph,
    limit: Value | None = None,
    condition: Value | None = None,
    *carried: Value,
    body: Subgraph,
) -> tuple:
    if limit is not None and not isinstance(limit, Known):
        limit_expr = g.as_expr(limit, "M")
        limit = g.to_value(g.emit(op.maximum(limit_expr, g.scalar(0, limit_expr))))
    count = None if limit is None else g.as_dims(limit, "M")[0]
    if isinstance(count, int) and count >= np.iinfo(np.int64).max:
        count = None
    first = Known.constant(True, bool) if condition is None else condition

    def step(number: Value, cond: Value, values: list[Value]) -> tuple:
        results = outputs_of(g, body, [number, cond, *values])
        return results[0], results[1 : 1 + len(values)], results[1 + len(values) :]

    spec = loops.Loop(count, first, list(carried), step, _count_nodes(body))
    values, gathered = loops.run(g, spec)
    return (*values, *(loops.joined(g, each) for each in gathered))


@dataclasses.dataclass(frozen=True)
class _Directions:
    """Axis and direction of each scanned input or output."""

    axes: list[int]
    reverse: list[int]

    @staticmethod
    def of(axes: list[int] | None, reverse: list[int] | None, count: int) -> _Directions:
        return _Directions(axes or [0] * count, reverse or [0] * count)


@onnx_op("Scan", since=9)
def scan(
    g: Graph,
    *values: Expr,
    body: Subgraph,
    num_scan_inputs: int,
    scan_input_axes: list[int] | None = None,
    scan_input_directions: list[int] | None = None,
    scan_output_axes: list[int] | None = None,
    scan_output_directions: list[int] | None = None,
) -> tuple:
    num_states = len(values) - num_scan_inputs
    if num_scan_inputs < 1 or num_states < 0:
        raise InvalidModel(f"num_scan_inputs is {num_scan_inputs}, it has {len(values)} inputs")
    inputs = _Directions.of(scan_input_axes, scan_input_directions, num_scan_inputs)
    num_outputs = len(body.output) - num_states
    outputs = _Directions.of(scan_output_axes, scan_output_directions, num_outputs)
    states = [g.to_value(v) for v in values[:num_states]]
    scanned = list(zip(values[num_states:], inputs.axes, inputs.reverse, strict=True))
    final, gathered = _scan(g, body, states, scanned)
    results = []
    for each, axis, reverse in zip(gathered, outputs.axes, outputs.reverse, strict=True):
        value = loops.joined(g, each, axis)
        if reverse:
            value = g.to_value(op.flip(value.expr, axis=g.axis(axis, g.rank(value.expr))))
        results.append(value)
    return (*final, *results)


def _scan(g: Graph, body: Any, states: list[Value], scanned: list[tuple]) -> tuple:
    scanned = [(x, g.axis(axis, g.rank(x)), reverse) for x, axis, reverse in scanned]
    sizes = [g.shape(x)[axis] for x, axis, _ in scanned]
    length = next((s for s in sizes if not is_symbolic(s)), sizes[0])
    if not is_symbolic(length) and length == 0:
        raise InvalidModel("its scan inputs have no elements to scan; give them 1 or more")

    def whole(x: Any, axis: int) -> Any:
        x = g.at_least(x, [1 if i == axis else 0 for i in range(g.rank(x))])
        shape = g.shape(x)
        return g.checked(x, [*shape[:axis], length, *shape[axis + 1 :]])

    scanned = [(whole(x, axis), axis, reverse) for x, axis, reverse in scanned]

    def step(number: Value, cond: Value, carried: list[Value]) -> tuple:
        i = number.array.reshape(()).item()
        parts = []
        for x, axis, reverse in scanned:
            at = g.scalars.sub(g.scalars.sub(length, 1), i) if reverse else i
            row = g.emit(take_ranges(g, x, {axis: Range(at, g.scalars.add(at, 1), 1)}))
            shape = g.shape(x)
            row = g.checked(row, [*shape[:axis], 1, *shape[axis + 1 :]])
            parts.append(g.to_value(op.squeeze(row, axis=[axis])))
        results = outputs_of(g, body, [*carried, *parts])
        return cond, results[: len(carried)], results[len(carried) :]

    known = Known.constant(True, bool)
    return loops.run(g, loops.Loop(length, known, states, step, _count_nodes(body)))


@onnx_op("Scan", since=8)
def scan_8(
    g: Graph,
    lengths: Expr | None = None,
    *values: Expr,
    body: Subgraph,
    num_scan_inputs: int,
    directions: list[int] | None = None,
) -> tuple:
    """The first form: every input has a batch axis in front."""
    if lengths is not None:
        raise UnsupportedModel("sequence lengths of Scan-8 are not supported")
    batch = g.shape(values[0])[0]
    if is_symbolic(batch):
        raise UnsupportedModel("Scan-8 needs a known batch size")
    num_states = len(values) - num_scan_inputs
    reverse = directions or [0] * num_scan_inputs
    rows = []
    for b in range(batch):
        part = lambda v, b=b: g.emit(
            op.squeeze(g.emit(take_ranges(g, v, {0: Range(b, b + 1, 1)})), axis=[0])
        )
        parts = [part(v) for v in values]
        states = [g.to_value(p) for p in parts[:num_states]]
        scanned = [(p, 0, r) for p, r in zip(parts[num_states:], reverse, strict=True)]
        final, gathered = _scan(g, body, states, scanned)
        rows.append([*final, *(loops.joined(g, each) for each in gathered)])
    return tuple(loops.joined(g, loops.Gathered(list(column))) for column in zip(*rows))
