# SPDX-License-Identifier: Apache-2.0
"""Subgraphs of If, Loop and Scan: walks their nodes in a scope of their own.

A subgraph sees the values of the graph around it.  What it emits lands in binding blocks that become
a branch or a function; dimensions that are found inside of it are unknown outside.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from relaxvm import relax

from .errors import InvalidModel, UnsupportedModel
from .graph import Graph
from .values import Known, Maybe, Sequence, Tensor, Value


@dataclasses.dataclass
class Body:
    """A walked subgraph: its bindings, its results, and which known values it has emitted."""

    blocks: list
    outputs: list[Value]
    emitted: list[tuple[Known, Any]]


def outputs_of(g: Graph, graph: Any, inputs: list[Value] = []) -> list[Value]:  # noqa: B006
    """Walks `graph` in place: its bindings go where the surrounding ones go."""
    outer, node = g.values, g.node
    g.values = dict(outer)
    try:
        for info, value in zip(graph.input, inputs, strict=True):
            g.values[info.name] = value
        g.walk(graph)
        return [_output(g, info.name) for info in graph.output]
    finally:
        g.values, g.node = outer, node


def _output(g: Graph, name: str) -> Value:
    if name not in g.values:
        raise InvalidModel(f"no node of its subgraph makes the output '{name}'")
    return g.values[name]


def walked(g: Graph, outputs_in: Callable[[], list[Value]]) -> Body:
    """What `outputs_in` emits, in blocks of its own, and the values that it gives."""
    with binding_block(g) as blocks, g.emitting_known() as emitted:
        outputs = outputs_in()
        kept = [(known, known.expr) for known in emitted]
    return Body(blocks, outputs, kept)


@contextlib.contextmanager
def binding_block(g: Graph) -> Iterator[list]:
    """Collects what is emitted inside; the list is filled at the end."""
    blocks: list = []
    g.builder._begin_binding_block()
    try:
        yield blocks
    finally:
        block = g.builder._end_block()
        if len(block.bindings):
            blocks.append(block)


@contextlib.contextmanager
def inside(g: Graph, body: Body) -> Iterator[list]:
    """Emits at the end of `body`, where its own values are visible; yields its blocks."""
    with binding_block(g) as more, g.emitting_known():
        for known, expr in body.emitted:
            known.expr = expr
        try:
            yield body.blocks
        finally:
            for known, _ in body.emitted:
                known.expr = None
    body.blocks.extend(more)


class RanksDiffer(Exception):
    """A condition chooses between tensors of different ranks: what follows is imported once for each.

    `branches` make the node's outputs, where it holds and where it does not.
    """

    def __init__(
        self,
        condition: Value,
        branches: tuple[Callable[[], list[Value]], Callable[[], list[Value]]],
    ) -> None:
        super().__init__()
        self.condition, self.branches = condition, branches


def joined_outputs(g: Graph, bodies: list[Body]) -> list[list[Value]]:
    """The outputs of branches, by position: one row for each output, one value for each branch."""
    counts = {len(b.outputs) for b in bodies}
    if len(counts) != 1:
        raise InvalidModel(f"its branches have {sorted(counts)} outputs")
    rows = [list(row) for row in zip(*(b.outputs for b in bodies))]
    for row in rows:
        if any(isinstance(v, Maybe) for v in row):
            raise UnsupportedModel("its branches make optional values")
        if any(isinstance(v, Sequence) for v in row) and not _same_length(row):
            raise UnsupportedModel("its branches make sequences of different lengths")
    return rows


def _same_length(row: list[Value]) -> bool:
    return len({len(v.items) if isinstance(v, Sequence) else -1 for v in row}) == 1


def same_known(g: Graph, row: list[Value]) -> bool:
    """Do all branches give this value, known at import and equal?"""
    first = row[0]
    if not all(isinstance(v, Known) for v in row):
        return False
    return all(v.dtype == first.dtype and _same_array(g, v.array, first.array) for v in row[1:])


def _same_array(g: Graph, a: Any, b: Any) -> bool:
    if a is b or a.shape != b.shape:
        return a is b
    if a.dtype == b.dtype and a.dtype != object:  # perhaps weights, of many elements
        return bool(a.tobytes() == b.tobytes())
    return all(g.scalars.same(x, y) for x, y in zip(a.flat, b.flat))


def joined_type(g: Graph, types: list[Any]) -> Any:
    """The type that holds tensors of all `types`; a dimension that differs becomes a new variable."""
    dtypes = {str(t.dtype) for t in types}
    if len(dtypes) != 1:
        raise InvalidModel(f"its branches make tensors of types {sorted(dtypes)}")
    dtype, ranks = dtypes.pop(), {t.ndim for t in types}
    if len(ranks) != 1 or -1 in ranks:
        return relax.TensorType(None, dtype)
    shapes = [None if t.shape is None else list(t.shape.values) for t in types]
    dims = []
    for i in range(ranks.pop()):
        known = [s[i] for s in shapes if s is not None]
        alike = len(known) == len(shapes) and all(g.scalars.same(known[0], d) for d in known[1:])
        dims.append(known[0] if alike else g.dimensions.fresh("m"))
    return relax.TensorType(dims, dtype)


def flat(values: list[Value]) -> list[Value]:
    """The tensors of the values: a sequence counts as its items."""
    out: list[Value] = []
    for value in values:
        out += flat(list(value.items)) if isinstance(value, Sequence) else [value]
    return out


def unflat(pattern: list[Value], tensors: Iterator[Value]) -> list[Value]:
    """The reverse of `flat`: values shaped like `pattern`."""
    return [
        Sequence(tuple(unflat(list(v.items), tensors)))
        if isinstance(v, Sequence)
        else next(tensors)
        for v in pattern
    ]


def ranks_differ(rows: list[list[Value]]) -> bool:
    def rank(value: Value) -> int:
        return value.array.ndim if isinstance(value, Known) else value.expr.ty.ndim

    return any(len({rank(v) for v in row}) != 1 for row in rows)


def emit_if(g: Graph, cond: Any, bodies: list[Body]) -> list[Value]:
    """The outputs of the bodies, of which `cond` chooses one.  What is known and equal stays known."""
    rows = joined_outputs(g, bodies)
    leaves = leaf_rows(rows)
    open_rows = [row for row in leaves if not same_known(g, row)]
    results = iter(_branches(g, cond, bodies, open_rows))
    joined = [row[0] if same_known(g, row) else next(results) for row in leaves]
    return unflat([row[0] for row in rows], iter(joined))


def leaf_rows(rows: list[list[Value]]) -> list[list[Value]]:
    return [list(row) for row in zip(*(flat(list(column)) for column in zip(*rows)))]


def _branches(g: Graph, cond: Any, bodies: list[Body], rows: list[list[Value]]) -> list[Value]:
    """The VM's If, giving a tensor for each row."""
    if not rows:
        return []
    exprs: list[list] = []
    for i, body in enumerate(bodies):
        with inside(g, body):
            exprs.append([g.emit(g.as_expr(row[i], "output")) for row in rows])
    types = [joined_type(g, [e.ty for e in row]) for row in zip(*exprs)]
    branches = []
    for body, results in zip(bodies, exprs):
        result = results[0] if len(results) == 1 else relax.Tuple(results)
        branches.append(relax.SeqExpr(body.blocks, result))
    value = g.emit(relax.If(cond, *branches))
    if len(rows) == 1:
        return [cast_to(g, value, types[0])]
    items = [g.emit(relax.TupleGetItem(value, i)) for i in range(len(rows))]
    return [cast_to(g, item, ty) for item, ty in zip(items, types)]


def cast_to(g: Graph, expr: Any, ty: Any) -> Tensor:
    """`expr` with type `ty`, which it surely has."""
    if ty.shape is None:
        return Tensor(expr)
    have = expr.ty.shape
    if have is not None and all(g.scalars.same(a, b) for a, b in zip(have.values, ty.shape.values)):
        return Tensor(expr)
    return Tensor(g.builder.match_cast(expr, ty, g.hint()))
