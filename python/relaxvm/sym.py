# SPDX-License-Identifier: Apache-2.0
"""Facts about integer expressions: simplified forms, proofs, bounds.  `relaxvm.arith` is the same module."""

from __future__ import annotations

import enum
from types import TracebackType
from typing import Any, NamedTuple

import tvm_ffi
from tvm_ffi import Object

from . import _compiler
from .ir.base import plain
from .ir.expr import Expr, Range, Var

_compiler.load()
_NEG_INF, _POS_INF = -(1 << 63), (1 << 63) - 1


class ProofStrength(enum.IntEnum):
    """How hard to try; all proofs here do what they can."""

    DEFAULT = 0
    SYMBOLIC_BOUND = 1


class ConstIntBound(NamedTuple):
    """min_value <= an expression <= max_value; NEG_INF and POS_INF where nothing is known."""

    min_value: int
    max_value: int


ConstIntBound.NEG_INF = -_POS_INF  # type: ignore[attr-defined]
ConstIntBound.POS_INF = _POS_INF  # type: ignore[attr-defined]


class ModularSet(NamedTuple):
    """An expression is base + k * coeff for some integer k."""

    coeff: int
    base: int


class ConstraintScope:
    """`with analyzer.constraint_scope(n > 5):` holds inside of the block."""

    def __init__(self, analyzer: Analyzer, constraint: Any) -> None:
        self._analyzer, self._constraint = analyzer, constraint

    def __enter__(self) -> None:
        _compiler.func("sym.EnterScope")(self._analyzer, plain(self._constraint))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _compiler.func("sym.ExitScope")(self._analyzer)


@tvm_ffi.register_object("relaxvm.sym.Analyzer")
class Analyzer(Object):
    """What is known of variables.  One of which nothing was said is the extent of a dimension: at least 0.

    "No" always means "not proved".  Raises TypeError for expressions of other types than integers, or bool for
    conditions.
    """

    def __init__(self) -> None:
        self.__init_handle_by_constructor__(_compiler.func("sym.Analyzer"))

    def simplify(self, expr: Any, steps: int = 2) -> Expr:
        """An expression of the same value that is not larger."""
        return _compiler.func("sym.Simplify")(self, plain(expr))

    rewrite_simplify = simplify
    canonical_simplify = simplify

    def can_prove(self, expr: Any, strength: ProofStrength = ProofStrength.DEFAULT) -> bool:
        """Whether the condition holds for all values of its variables."""
        return bool(_compiler.func("sym.Prove")(self, plain(expr)))

    def can_prove_equal(self, lhs: Any, rhs: Any) -> bool:
        """Whether two expressions have the same value whatever their variables are."""
        return bool(_compiler.func("sym.ProveEqual")(self, plain(lhs), plain(rhs)))

    def const_int_bound(self, expr: Any) -> ConstIntBound:
        """The least and the greatest value that the expression may have."""
        low, high = _compiler.func("sym.Bounds")(self, plain(expr))
        return ConstIntBound(max(low, -_POS_INF), high)

    def modular_set(self, expr: Any) -> ModularSet:
        """What the value leaves when it is divided."""
        return ModularSet(*_compiler.func("sym.Modular")(self, plain(expr)))

    def bind(self, var: Var, expr: Any, allow_override: bool = False) -> None:
        """From here on `var` has that value, or lies in that Range."""
        if isinstance(expr, Range):
            _compiler.func("sym.BindRange")(self, var, plain(expr.min), plain(expr.extent))
        else:
            _compiler.func("sym.BindValue")(self, var, plain(expr))

    def update(self, var: Var, info: ConstIntBound, override: bool = False) -> None:
        """From here on `var` lies within these bounds."""
        if not isinstance(info, ConstIntBound):
            raise TypeError(f"update takes a ConstIntBound, not {type(info).__name__}; use bind")
        low = _NEG_INF if info.min_value <= -_POS_INF else info.min_value
        _compiler.func("sym.SetBounds")(self, var, low, info.max_value)

    def constraint_scope(self, constraint: Any) -> ConstraintScope:
        """A context in which the condition is known to hold."""
        return ConstraintScope(self, constraint)


__all__ = ["Analyzer", "ConstIntBound", "ConstraintScope", "ModularSet", "ProofStrength"]
