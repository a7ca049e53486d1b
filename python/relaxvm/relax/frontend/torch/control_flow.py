# SPDX-License-Identifier: Apache-2.0
"""Operators that take graphs: cond becomes an If; while_loop, map and scan tail-recursive functions of the module.

    loop(sizes, captured..., carried..., lists...):
        if it goes on:  body; loop(sizes with the number of the next step, captured..., new carried..., longer lists...)
        else:           carried..., lists...

`sizes` is a shape value with every symbolic size that the body uses, and the number of the step where there is one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch

from relaxvm import relax, tirx
from relaxvm.ir.expr import GlobalVar
from relaxvm.relax import op
from relaxvm.relax.analysis import free_symbolic_vars, free_vars
from relaxvm.relax.utils import copy_with_new_vars

from .. import lists
from .errors import UnsupportedProgram

Walk = Any  # importer._Walk: emits the nodes of graphs


def find(target: Any) -> Callable[[Walk, Any], tuple] | None:
    """The importer of an operator that takes graphs: from a node to its results."""
    return _IMPORTERS.get(target)


def places_of(module: Any) -> list[Any]:
    """The nodes that stand for a graph's arguments."""
    return [n for n in module.graph.nodes if n.op == "placeholder"]


def _block(walk: Walk, emit: Callable[[], Any]) -> tuple[list[Any], Any]:
    """What `emit` binds, as blocks, and what it gives."""
    builder = walk.g.builder
    builder._begin_binding_block()
    value = emit()
    block = builder._end_block()
    return [block] if len(block.bindings) else [], value


def _condition(walk: Walk, value: Any) -> Any:
    """Of an If: a tensor, or an expression over sizes."""
    if isinstance(value, (bool, tirx.PrimExpr)) and not walk.g.is_tensor(value):
        return relax.prim_value(value)
    return walk.g.emit(walk.g.cast(value, "bool"))


def cond(walk: Walk, node: Any) -> tuple:
    condition, then_branch, else_branch, operands = node.args
    builder, metas = walk.g.builder, node.meta["val"]
    chosen = _condition(walk, walk.value(condition))
    arguments = [walk.value(a) for a in operands]
    bodies = []
    for branch in (then_branch, else_branch):
        emit = lambda branch=branch: [walk.g.emit(v) for v in walk.graph(branch, arguments)]
        blocks, results = _block(walk, emit)
        bodies.append(
            relax.SeqExpr(blocks, results[0] if len(results) == 1 else relax.Tuple(results))
        )
    value = builder.emit(relax.If(chosen, *bodies))
    if len(metas) == 1:
        return (walk.sized(value, metas[0]),)
    parts = [builder.emit(relax.TupleGetItem(value, i)) for i in range(len(metas))]
    return tuple(walk.sized(p, m) for p, m in zip(parts, metas))


# ---- loops


@dataclasses.dataclass
class _Loop:
    """A loop whose body is emitted: `carried` are (parameter, first value, next value)."""

    goes_on: tuple[list[Any], Any]  # blocks, condition
    body: list[Any]  # blocks
    carried: list[tuple[Any, Any, Any]]
    gathered: list[Any]  # what each step gives
    number: Any = None  # of the step


def _parameters(walk: Walk, places: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Variables for what is carried, and the values that the body sees."""
    symbols = walk.g.symbols
    params, values = [], []
    for i, place in enumerate(places):
        meta = place.meta["val"]
        if isinstance(meta, torch.Tensor):
            ty = relax.TensorType(symbols.shape(meta.shape), str(meta.dtype).removeprefix("torch."))
            params.append(relax.Var(f"carried_{i}", ty))
            values.append(params[-1])
        elif isinstance(meta, torch.SymInt) and meta.node.expr.is_Symbol:
            size = symbols.variable(meta.node.expr.name)
            params.append(relax.Var(f"carried_{i}", relax.ShapeType([size])))
            values.append(size)
        else:
            raise UnsupportedProgram(f"a loop that carries {type(meta).__name__}")
    return params, values


def _carried(param: Any, value: Any) -> Any:
    return relax.ShapeExpr([value]) if isinstance(param.ty, relax.ShapeType) else value


def while_loop(walk: Walk, node: Any) -> tuple:
    condition, body, first, more = node.args
    starts, extras = [walk.value(v) for v in first], [walk.value(v) for v in more]
    places = places_of(_module(walk, body))[: len(first)]
    params, values = _parameters(walk, places)
    goes_on = _block(walk, lambda: _condition(walk, walk.graph(condition, values + extras)[0]))
    blocks, nexts = _block(walk, lambda: walk.graph(body, values + extras))
    loop = _Loop(goes_on, blocks, list(zip(params, starts, nexts)), [])
    results, _ = _emit_loop(walk, loop)
    return tuple(_result(walk, r, m) for r, m in zip(results, node.meta["val"]))


def scan(walk: Walk, node: Any) -> tuple:
    body, first, rows, more = node.args
    return _scan(walk, node, body, first, rows, more)


def map_(walk: Walk, node: Any) -> tuple:
    body, rows, more = node.args
    return _scan(walk, node, body, [], rows, more)


def _scan(walk: Walk, node: Any, body: Any, first: Any, rows: Any, more: Any) -> tuple:
    g = walk.g
    starts, scanned = [walk.value(v) for v in first], [walk.value(v) for v in rows]
    extras = [walk.value(v) for v in more]
    params, values = _parameters(walk, places_of(_module(walk, body))[: len(starts)])
    number, count = tirx.Var("step", "int64"), g.shape(scanned[0])[0]

    def emit() -> list[Any]:
        place = g.number(number, "int64")
        parts = [g.emit(op.take(x, place, axis=0)) for x in scanned]
        return [g.emit(v) for v in walk.graph(body, [*values, *parts, *extras])]

    blocks, results = _block(walk, emit)
    nexts, given = results[: len(starts)], results[len(starts) :]
    goes_on = [], relax.prim_value(number < count)
    loop = _Loop(goes_on, blocks, list(zip(params, starts, nexts)), given, number)
    ends, gathered = _emit_loop(walk, loop)
    metas = node.meta["val"]
    last = [_result(walk, e, m) for e, m in zip(ends, metas)]
    for items, meta in zip(gathered, metas[len(ends) :]):
        dims = g.symbols.shape(meta.shape[1:])
        dtype = str(meta.dtype).removeprefix("torch.")
        value = g.emit(lists.joined(items, 0, True, dtype, dims))
        last.append(g.builder.match_cast(value, relax.TensorType([count, *dims], dtype)))
    return tuple(last)


def _module(walk: Walk, node: Any) -> Any:
    module = walk.module
    for name in node.target.split("."):
        module = getattr(module, name)
    return module


def _result(walk: Walk, value: Any, meta: Any) -> Any:
    if isinstance(meta, torch.Tensor):
        return walk.sized(value, meta)
    size = walk.g.symbols.variable(meta.node.expr.name)
    walk.g.builder.match_cast(value, relax.ShapeType([size]))
    return size


def _emit_loop(walk: Walk, loop: _Loop) -> tuple[list[Any], list[Any]]:
    """Writes the function of a loop and calls it; the carried values at the end, and the lists."""
    g = walk.g
    params = [p for p, _, _ in loop.carried]
    gathered = [relax.Var(f"list_{i}", relax.AnyType()) for i in range(len(loop.gathered))]
    append = lambda: [g.emit(lists.appended(a, v)) for a, v in zip(gathered, loop.gathered)]
    more, longer = _block(walk, append)
    nexts = [_carried(p, v) for p, _, v in loop.carried]
    done = relax.Tuple([*params, *gathered])

    # Everything of the graph around that the steps use
    condition, ends = loop.goes_on[1], relax.SeqExpr([], done)
    steps = relax.SeqExpr([*loop.body, *more], relax.Tuple([*nexts, *longer]))
    whole = relax.SeqExpr(loop.goes_on[0], relax.If(condition, steps, ends))
    used = [v for v in free_vars(whole) if isinstance(v.ty, relax.TensorType)]
    captured = _distinct(used, params)
    trial = relax.Function([*captured, *params, *gathered], whole, None, g.is_pure, {})
    own = [loop.number] if loop.number is not None else []
    own += [v for p in params if isinstance(p.ty, relax.ShapeType) for v in p.ty.values]
    sizes = _distinct(list(free_symbolic_vars(trial)), own)

    first = relax.Var("sizes", relax.ShapeType([*own[: loop.number is not None], *sizes]))
    all_params = [first, *captured, *params, *gathered]
    result = relax.TupleType([_type_after(v) for v in (*params, *gathered)])
    stub = relax.Function(all_params, relax.SeqExpr([], done), result, g.is_pure, {})
    var = GlobalVar(f"loop_{len(walk.importer.functions)}", copy_with_new_vars(stub).ty)

    def call(number: list[Any], carried: list[Any], items: list[Any]) -> Any:
        shape = relax.ShapeExpr([*number, *sizes])
        return g.emit(relax.Call(var, [shape, *captured, *carried, *items]))

    following = [loop.number + 1] if loop.number is not None else []
    last, again = _block(walk, lambda: call(following, nexts, longer))
    goes_on = relax.SeqExpr([*loop.body, *more, *last], again)
    blocks, chosen = _block(walk, lambda: g.emit(relax.If(condition, goes_on, ends)))
    body = relax.SeqExpr([*loop.goes_on[0], *blocks], chosen)
    function = relax.Function(all_params, body, result, g.is_pure, {})
    walk.importer.functions[var] = copy_with_new_vars(function)

    starts = [_carried(p, g.emit(v) if g.is_tensor(v) else v) for p, v, _ in loop.carried]
    empty = [g.emit(lists.empty()) for _ in gathered]
    value = call([0] if loop.number is not None else [], starts, empty)
    parts = [g.emit(relax.TupleGetItem(value, i)) for i in range(len(params) + len(gathered))]
    return parts[: len(params)], parts[len(params) :]


def _type_after(param: Any) -> Any:
    """Numbers are others after the loop."""
    is_number = isinstance(param.ty, relax.ShapeType)
    return relax.ShapeType(ndim=param.ty.ndim) if is_number else param.ty


def _distinct(values: Sequence[Any], known: Sequence[Any]) -> list[Any]:
    found: list[Any] = []
    for value in values:
        if not any(value.same_as(v) for v in (*known, *found)):
            found.append(value)
    return found


_IMPORTERS: dict[Any, Callable[[Walk, Any], tuple]] = {
    torch.ops.higher_order.cond: cond,
    torch.ops.higher_order.while_loop: while_loop,
    torch.ops.higher_order.map_impl: map_,
    torch.ops.higher_order.scan: scan,
}
