# SPDX-License-Identifier: Apache-2.0
"""Loops as tail-recursive functions of the module.

    loop(sizes, captured..., carried..., lists...):
        if i < limit and condition:  body; loop(sizes with i + 1, captured..., new carried..., longer lists...)
        else:                        carried..., lists...

`sizes` is a shape value that holds the iteration's number and every symbolic size of the body.  What the
body gives for each iteration is gathered in lists (sequences of the VM) and joined after the loop.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from relaxvm import relax
from relaxvm.ir.expr import GlobalVar
from relaxvm.relax.analysis import free_symbolic_vars, free_vars
from relaxvm.relax.utils import copy_with_new_vars

from ..lists import appended
from .errors import InvalidModel, UnsupportedModel
from .graph import Graph
from .scalars import is_symbolic
from .subgraphs import Body, binding_block, cast_to, inside, joined_type, same_known, walked
from .values import (
    ItemSequence,
    Known,
    Maybe,
    Sequence,
    Tensor,
    Value,
    item_type_of,
    joined_item_type,
)

# Loops of few nodes in all are written out.
MAX_UNROLLED_NODES = 512
# Types of carried values that change from iteration to iteration settle within this many tries.
MAX_TRIES = 12

# body(iteration, condition, carried) -> (condition, carried, what is gathered)
Step = Callable[[Value, Value, list[Value]], tuple[Value, list[Value], list[Value]]]


@dataclasses.dataclass
class Loop:
    limit: Any  # a dimension, or None
    condition: Value
    carried: list[Value]
    step: Step
    num_nodes: int
    start: int = 0  # of the iterations
    done: list[Value] = dataclasses.field(default_factory=list)  # what those before it gathered


class RankChanges(UnsupportedModel):
    """A carried tensor does not keep its number of dimensions."""


@dataclasses.dataclass
class Gathered:
    """What the iterations gave: the values themselves, or a list of the VM and the type of its items."""

    items: list[Value] | None
    expr: Any = None
    item_type: Any = None
    count: Any = None  # a dimension, if the compiler knows it


def run(g: Graph, loop: Loop) -> tuple[list[Value], list[Gathered]]:
    """The carried values after the loop, and what was gathered."""
    if isinstance(loop.limit, int) and loop.limit * max(loop.num_nodes, 1) <= MAX_UNROLLED_NODES:
        done = _unrolled(g, loop)
        if done is not None:
            return done
    if isinstance(loop.condition, Known) and not _may_run(loop.condition):
        loop = dataclasses.replace(loop, limit=0)
    try:
        return _recursive(g, loop)
    except RankChanges:
        if not _surely_runs(loop):
            raise
        # What is carried in may stand for "not set yet": with the first iteration written out, it is set.
        condition, carried, done = loop.step(
            Known.constant(0, np.int64), loop.condition, loop.carried
        )
        return _recursive(
            g, dataclasses.replace(loop, condition=condition, carried=carried, start=1, done=done)
        )


def _surely_runs(loop: Loop) -> bool:
    if loop.limit is not None and not (isinstance(loop.limit, int) and loop.limit > 0):
        return False
    condition = loop.condition
    return isinstance(condition, Known) and condition.is_constant and bool(condition.array.all())


def _may_run(condition: Known) -> bool:
    return not condition.is_constant or bool(condition.array.all())


def _unrolled(g: Graph, loop: Loop) -> tuple[list[Value], list[Gathered]] | None:
    """None when it depends on data how often the body runs."""
    condition, carried = loop.condition, loop.carried
    rows: list[list[Value]] = []
    for i in range(loop.limit):
        if not isinstance(condition, Known) or not condition.is_constant:
            return None
        if not condition.array.all():
            break
        number = Known.constant(i, np.int64)
        condition, carried, gathered = loop.step(number, condition, carried)
        rows.append(gathered)
    if not rows:
        return None  # the types of what would be gathered are unknown
    return carried, [Gathered(list(column)) for column in zip(*rows)]


# ---- the general form


@dataclasses.dataclass
class Slot:
    """How a carried value is carried: known (it does not change), as a tensor or as a list."""

    first: Value
    ty: Any = None  # of the parameter; None: known
    item_type: Any = None  # of a list
    value: Value | None = None  # what the body sees

    @property
    def is_known(self) -> bool:
        return self.ty is None


def _first_slot(value: Value) -> Slot:
    if isinstance(value, Maybe):
        raise UnsupportedModel("carries an optional value")
    if isinstance(value, Known):
        return Slot(value)
    if isinstance(value, Tensor):
        return Slot(value, value.expr.ty)
    return Slot(value, relax.AnyType(), _item_type(value))


def _type_of(value: Value) -> Any:
    if isinstance(value, Known):
        return relax.TensorType(list(value.array.shape), value.dtype.name)
    return value.expr.ty


def _next_slot(g: Graph, slot: Slot, result: Value) -> Slot:
    """The slot that also holds what the body gives."""
    if isinstance(slot.first, (Sequence, ItemSequence)):
        if not isinstance(result, (Sequence, ItemSequence)):
            raise InvalidModel("a carried sequence becomes a tensor")
        item_type = joined_item_type(slot.item_type, _item_type(result))
        return slot if item_type is slot.item_type else Slot(slot.first, slot.ty, item_type)
    if not isinstance(result, (Known, Tensor)):
        raise InvalidModel("a carried tensor becomes a sequence")
    if slot.is_known and same_known(g, [slot.first, result]):
        return slot
    have = slot.ty if slot.ty is not None else _type_of(slot.first)
    want = _type_of(result)
    if have.ndim != want.ndim or have.ndim < 0:
        raise RankChanges("a carried tensor changes its number of dimensions")
    if slot.ty is not None and _holds(g, have, want):
        return slot
    return Slot(slot.first, joined_type(g, [have, want]))


def _holds(g: Graph, have: Any, want: Any) -> bool:
    """Is every tensor of type `want` one of type `have`, whose own variables are free?"""
    if str(have.dtype) != str(want.dtype):
        raise InvalidModel(f"a carried tensor of type {have.dtype} becomes one of {want.dtype}")
    if want.shape is None:
        return False
    pairs = zip(have.shape.values, want.shape.values)
    return all(_is_own(g, a) or g.scalars.same(a, b) for a, b in pairs)


def _is_own(g: Graph, dim: Any) -> bool:
    return is_symbolic(dim) and _among(dim, g.loop_dims)


def _among(expr: Any, exprs: list) -> bool:
    return any(expr.same_as(e) for e in exprs)


def _recursive(g: Graph, loop: Loop) -> tuple[list[Value], list[Gathered]]:
    number = g.dimensions.fresh("i")
    slots = [_first_slot(v) for v in (loop.condition, *loop.carried)]
    outer_dims, g.loop_dims = g.loop_dims, []
    try:
        for _ in range(MAX_TRIES):
            body, gathered = _walk_body(g, loop, number, slots)
            nexts = [_next_slot(g, s, v) for s, v in zip(slots, body.outputs)]
            if all(a is b for a, b in zip(slots, nexts)):
                break
            slots = [_with_own_dims(g, s) for s in nexts]
        else:
            raise UnsupportedModel("the types of its carried values do not settle")
        return _Emitter(g, loop, number, slots, body, gathered).run()
    finally:
        g.loop_dims = outer_dims


def _with_own_dims(g: Graph, slot: Slot) -> Slot:
    """Dimensions that the join made new vary from iteration to iteration."""
    if isinstance(slot.ty, relax.TensorType) and slot.ty.shape is not None:
        outer = [] if isinstance(slot.first, Known) else list(slot.first.expr.ty.shape.values)
        outer = [d for d in outer if is_symbolic(d)]
        g.loop_dims += [
            d
            for d in map(g.scalars.simplify, slot.ty.shape.values)
            if is_symbolic(d) and not _among(d, outer) and not _is_own(g, d)
        ]
    return slot


def _walk_body(g: Graph, loop: Loop, number: Any, slots: list[Slot]) -> tuple[Body, list[Value]]:
    for i, slot in enumerate(slots):
        if slot.is_known:
            slot.value = slot.first
        elif isinstance(slot.first, (Sequence, ItemSequence)):
            slot.value = ItemSequence(relax.Var(f"carried_{i}", slot.ty), slot.item_type)
        else:
            slot.value = Tensor(relax.Var(f"carried_{i}", slot.ty))
    gathered: list[Value] = []

    def emit() -> list[Value]:
        values = [s.value for s in slots]
        condition, carried, scans = loop.step(g.dims_value([number], ()), values[0], values[1:])
        gathered[:] = scans
        return [condition, *carried]

    return walked(g, emit), gathered


def _item_type(value: Value) -> Any:
    if isinstance(value, ItemSequence):
        return value.item_type
    found = None
    for item in value.items:
        found = joined_item_type(found, item_type_of(item))
    return found


class _Emitter:
    """Writes the function of a loop whose types have settled, and the first call."""

    def __init__(
        self, g: Graph, loop: Loop, number: Any, slots: list[Slot], body: Body, gathered: list
    ) -> None:
        self.g, self.loop, self.number, self.body, self.gathered = g, loop, number, body, gathered
        self.open = [(s, v) for s, v in zip(slots, body.outputs) if not s.is_known]
        self.slots = slots
        self.var = GlobalVar(g.unique_function("loop"))

    def run(self) -> tuple[list[Value], list[Gathered]]:
        g = self.g
        params = [s.value.expr for s, _ in self.open]
        lists = [relax.Var(f"list_{k}", relax.AnyType()) for k in range(len(self.gathered))]
        with inside(g, self.body):
            carried = [self._carried(s, v) for s, v in self.open]
            items = [g.emit(g.as_expr(v, "output")) for v in self.gathered]
        with inside(g, self.body):
            longer = [g.emit(appended(a, item)) for a, item in zip(lists, items)]
        types = [self._type_outside(v) for v in [*params, *lists]]
        result_type = relax.TupleType(types)
        sizes, captured = self._captured([*params, *lists], carried, longer)
        first = relax.Var("sizes", relax.ShapeType([self.number, *sizes]))
        done = relax.Tuple([*params, *lists])
        self._declare([first, *captured, *params, *lists], done, result_type)
        with inside(g, self.body):
            following = g.scalars.add(self.number, 1)
            again = g.emit(
                relax.Call(
                    self.var, [relax.ShapeExpr([following, *sizes]), *captured, *carried, *longer]
                )
            )
        body = self._choice(relax.SeqExpr(self.body.blocks, again), done)
        func = relax.Function([first, *captured, *params, *lists], body, result_type, g.is_pure, {})
        g.functions[self.var] = copy_with_new_vars(func)
        return self._results(self._first_call(sizes, captured, len(lists)), items)

    # ---- parts of the function

    def _declare(self, params: list, done: Any, result_type: Any) -> None:
        """Gives the function its type, in variables of its own, before its body calls it."""
        stub = copy_with_new_vars(
            relax.Function(params, relax.SeqExpr([], done), result_type, self.g.is_pure, {})
        )
        self.var = GlobalVar(str(self.var.name_hint), stub.ty)

    def _carried(self, slot: Slot, value: Value) -> Any:
        g = self.g
        if isinstance(slot.first, (Sequence, ItemSequence)):
            return g.sequence_expr(value)
        expr = g.emit(g.as_expr(value, "output"))
        if slot.ty.shape is None:
            return expr
        want = [b if _is_own(g, a) else a for a, b in zip(slot.ty.shape.values, g.shape(expr))]
        return g.checked(expr, want)

    def _type_outside(self, var: Any) -> Any:
        """Of a result: dimensions that vary are unknown to the caller."""
        ty = var.ty
        if not isinstance(ty, relax.TensorType) or ty.shape is None:
            return ty
        if any(_is_own(self.g, d) for d in ty.shape.values):
            return relax.TensorType(None, ty.dtype, ndim=ty.ndim)
        return ty

    def _limits(self) -> Any:
        limit = self.loop.limit
        return None if limit is None else relax.prim_value(self.number < limit)

    def _captured(self, params: list, carried: list, longer: list) -> tuple[list, list]:
        """Symbolic sizes and variables of the graph around that the function needs."""
        parts = [*carried, *longer]
        if self.loop.limit is not None:
            parts.append(relax.ShapeExpr([self.loop.limit]))
        seq = relax.SeqExpr(self.body.blocks, relax.Tuple(parts))
        captured = [v for v in free_vars(seq) if not _among(v, params)]
        captured = [v for v in captured if isinstance(v, relax.Var) and not _is_scalar(v)]
        trial = relax.Function([*captured, *params], seq, None, True, {})
        # Sizes in the types of parameters may be expressions: only variables that stand alone are bound.
        return self._sizes(trial), captured

    def _sizes(self, trial: Any) -> list:
        sizes = [v for v in _symbolic_vars(trial) if not v.same_as(self.number)]
        return [v for v in sizes if not _is_own(self.g, v)]

    def _choice(self, again: Any, done: Any) -> Any:
        g = self.g
        with binding_block(g) as blocks:
            value, limit = again, self._limits()
            condition = self.slots[0]
            if not condition.is_known:
                with binding_block(g) as inner:
                    chosen = g.emit(relax.If(condition.value.expr, value, relax.SeqExpr([], done)))
                value = relax.SeqExpr(inner, chosen)
            if limit is not None:
                chosen = g.emit(relax.If(limit, value, relax.SeqExpr([], done)))
            elif condition.is_known:
                raise InvalidModel("the loop never ends: it has neither a limit nor a condition")
        if limit is None:
            return value
        return relax.SeqExpr(blocks, chosen)

    # ---- around the function

    def _first_call(self, sizes: list, captured: list, num_lists: int) -> Any:
        g, args = self.g, []
        for slot, _ in self.open:
            if isinstance(slot.first, (Sequence, ItemSequence)):
                args.append(g.sequence_expr(slot.first))
                continue
            expr = g.emit(g.as_expr(slot.first, "initial"))
            args.append(expr)
        lists = [g.empty_list() for _ in range(num_lists)]
        if self.loop.start > 0:
            items = [g.emit(g.as_expr(v, "output")) for v in self.loop.done]
            lists = [g.emit(appended(a, item)) for a, item in zip(lists, items)]
        start = relax.ShapeExpr([self.loop.start, *sizes])
        return g.emit(relax.Call(self.var, [start, *captured, *args, *lists]), "loop")

    def _results(self, value: Any, items: list) -> tuple[list[Value], list[Gathered]]:
        g, at = self.g, iter(range(len(self.open) + len(items)))
        carried: list[Value] = []
        for slot in self.slots[1:] if self.slots[0].is_known else self.slots:
            if slot.is_known:
                carried.append(slot.first)
                continue
            expr = g.emit(relax.TupleGetItem(value, next(at)))
            if isinstance(slot.first, (Sequence, ItemSequence)):
                carried.append(ItemSequence(expr, slot.value.item_type))
            else:
                carried.append(Tensor(g.named(expr)))
        if not self.slots[0].is_known:
            carried = carried[1:]
        count = self.loop.limit if self.slots[0].is_known else None
        gathered = []
        for item in items:
            expr = g.emit(relax.TupleGetItem(value, next(at)))
            gathered.append(Gathered(None, expr, self._item_type_outside(item), count))
        return carried, gathered

    def _item_type_outside(self, item: Any) -> Any:
        """Dimensions that only the body knows are left out (None)."""
        outer = _symbolic_vars(relax.ShapeExpr(self._outer_dims()))

        def is_outer(dim: Any) -> bool:
            return all(_among(v, outer) for v in _symbolic_vars(relax.ShapeExpr([dim])))

        dims = [d if not is_symbolic(d) or is_outer(d) else None for d in self.g.shape(item)]
        return dims, self.g.dtype(item)

    def _outer_dims(self) -> list:
        dims: list = []
        for slot, _ in self.open:
            if isinstance(slot.first, Tensor) and slot.first.expr.ty.shape is not None:
                dims += list(slot.first.expr.ty.shape.values)
        for var in free_vars(relax.SeqExpr(self.body.blocks, relax.Tuple([]))):
            ty = var.ty
            if isinstance(ty, relax.TensorType) and ty.shape is not None:
                if not _among(var, [s.value.expr for s, _ in self.open]):
                    dims += list(ty.shape.values)
        return [d for d in dims if is_symbolic(d)]


def _is_scalar(var: Any) -> bool:
    return str(getattr(var.ty, "dtype", "")) != "" and not isinstance(var.ty, relax.TensorType)


def _symbolic_vars(expr: Any) -> list:
    """Symbolic variables that `expr` uses and does not bind."""
    if not hasattr(expr, "params"):
        expr = relax.Function([], relax.SeqExpr([], expr), None, True, {})
    return list(free_symbolic_vars(expr))


def joined(g: Graph, gathered: Gathered, axis: int = 0) -> Value:
    """What was gathered as one tensor, along a new axis."""
    from relaxvm.relax import op

    if gathered.items is not None:
        parts = [g.as_expr(v, "output") for v in gathered.items]
        axis = g.axis(axis, g.rank(parts[0]) + 1)
        parts = [g.emit(op.expand_dims(p, axis=[axis])) for p in parts]
        return Tensor(g.emit(op.concat(parts, axis=axis)) if len(parts) > 1 else parts[0])
    dims, dtype = gathered.item_type
    axis = g.axis(axis, len(dims) + 1)
    expr = g.list_concat(gathered.expr, axis, True, dtype, dims)
    known = [g.dimensions.fresh("m") if d is None else d for d in dims]
    count = g.dimensions.fresh("count") if gathered.count is None else gathered.count
    return cast_to(g, expr, relax.TensorType([*known[:axis], count, *known[axis:]], dtype))
