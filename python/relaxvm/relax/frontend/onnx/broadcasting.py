# SPDX-License-Identifier: Apache-2.0
"""Operands of different shapes: the shape that they have together, and how each comes to it.

Of two sizes that nobody knows to be equal, one may be 1 while running.  The result takes the size that
says more, and an operand of another one is repeated while running where its size is 1:

    a number, before the size of an operand that no other surpasses, before that of any other.

Where two variables have the same standing, the one that is not 1 is a size of its own.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from relaxvm import relax, tirx
from relaxvm.ir.expr import GlobalVar
from relaxvm.relax import op
from relaxvm.relax.utils import copy_with_new_vars

from .scalars import is_symbolic

if TYPE_CHECKING:
    from .graph import Graph


def joint_shape(g: Graph, shapes: list[list]) -> list:
    rank = max(map(len, shapes))
    padded = [[1] * (rank - len(s)) + s for s in shapes]
    return [_joint_size(g, padded, i) for i in range(rank)]


def stretches(g: Graph, have: Any, want: Any) -> bool:
    """Is `have` surely 1, or 0 where `want` is (as the last element of an axis), but not known which?"""
    if have is want or not is_symbolic(have):
        return False
    return not g.scalars.same(have, want) and g.scalars.same(have, g.scalars.minimum(want, 1))


def fitted(g: Graph, expr: Any, result: list) -> Any:
    """An operand whose sizes are those of the result, or a plain 1: repeated or checked while running."""
    shape = g.shape(expr)
    result = result[len(result) - len(shape) :]
    if any(stretches(g, have, want) for have, want in zip(shape, result)):
        shape = [w if stretches(g, h, w) else h for h, w in zip(shape, result, strict=True)]
        expr = g.emit(op.broadcast_to(expr, shape))
    wanted = list(shape)
    for i, (have, want) in enumerate(zip(shape, result, strict=True)):
        if not is_symbolic(have) and (have == 1 or is_symbolic(want)):
            continue
        if is_symbolic(have) and not g.scalars.same(have, want) and not g.scalars.differ(have, 1):
            expr = _repeated(g, expr, i, want)
            expr = g.match_cast(expr, [*wanted[:i], want, *shape[i + 1 :]])
        wanted[i] = want
    return g.checked(expr, wanted)


def _joint_size(g: Graph, shapes: list[list], i: int) -> Any:
    owners = [s for s in shapes if is_symbolic(s[i]) or s[i] != 1]
    owners = [s for s in owners if not any(stretches(g, s[i], t[i]) for t in owners)]
    # What is 0 or 1 says less than any other: the first row of a tensor that may have none.
    owners = [s for s in owners if not _is_at_most_one(g, s[i])] or owners
    number = next((s[i] for s in owners if not is_symbolic(s[i])), None)
    if not owners or number is not None:
        return 1 if number is None else number
    within = g.dimensions.is_within
    owners = [s for s in owners if not any(within(s[i], t[i]) for t in owners)]
    first = [s for s in owners if not _is_surpassed(s, shapes)] or owners
    sizes = [s[i] for s in first]
    if not all(map(g.dimensions.is_free, sizes)):
        return sizes[0]
    return functools.reduce(lambda a, b: _larger_than_one(g, a, b), sizes)


def _is_at_most_one(g: Graph, size: Any) -> bool:
    is_formula = is_symbolic(size) and not isinstance(size, tirx.Var)
    return is_formula and g.scalars.prove(size <= 1)


def _is_surpassed(shape: list, shapes: list[list]) -> bool:
    """Has another operand more than a plain 1 where `shape` has that, and nowhere less?"""
    is_one = lambda d: not is_symbolic(d) and d == 1
    below = lambda a, b: any(is_one(x) and not is_one(y) for x, y in zip(a, b))
    return any(below(shape, other) and not below(other, shape) for other in shapes)


def _larger_than_one(g: Graph, a: Any, b: Any) -> Any:
    """The size of what broadcasts from sizes a and b: b where a is 1, else a."""
    if g.scalars.same(a, b):
        return a
    size, is_new = g.dimensions.joint(a, b)
    if is_new:
        value = g.scalars.select(tirx.EQ(a, tirx.IntImm("int64", 1)), b, a)
        g.builder.match_cast(relax.ShapeExpr([value]), relax.ShapeType([size]), g.hint())
    return size


def _repeated(g: Graph, expr: Any, axis: int, size: Any) -> Any:
    """`expr` repeated along an axis of size 1, else `expr` itself, without a copy."""
    function = _repeater(g, g.rank(expr), axis, g.dtype(expr))
    return g.emit(relax.Call(function, [expr, relax.ShapeExpr([size])]))


def _repeater(g: Graph, rank: int, axis: int, dtype: str) -> Any:
    """A function of the module, so that what is around it stays one block."""
    if (rank, axis, dtype) in g.repeaters:
        return g.repeaters[rank, axis, dtype]
    from .subgraphs import binding_block

    dims = [tirx.Var(f"d{i}", "int64") for i in range(rank)]
    size = tirx.Var("size", "int64")
    x = relax.Var("x", relax.TensorType(dims, dtype))
    sizes = relax.Var("sizes", relax.ShapeType([size]))
    result = relax.TensorType(None, dtype, ndim=rank)
    shape_with = lambda d: [*dims[:axis], d, *dims[axis + 1 :]]
    with binding_block(g) as longer:
        one = g.builder.match_cast(x, relax.TensorType(shape_with(1), dtype))
        repeated = g.builder.emit(op.broadcast_to(one, shape_with(size)))
    condition = tirx.And(tirx.EQ(dims[axis], tirx.IntImm("int64", 1)), tirx.NE(size, dims[axis]))
    with binding_block(g) as blocks:
        chosen = relax.If(
            relax.prim_value(condition), relax.SeqExpr(longer, repeated), relax.SeqExpr([], x)
        )
        value = g.builder.emit(chosen)
    func = relax.Function([x, sizes], relax.SeqExpr(blocks, value), result, True, {})
    func = copy_with_new_vars(func)
    var = GlobalVar(g.unique_function("repeat"), func.ty)
    g.functions[var] = func
    g.repeaters[rank, axis, dtype] = var
    return var
