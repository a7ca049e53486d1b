# SPDX-License-Identifier: Apache-2.0
"""Arithmetic on single elements that may be symbolic: what a model does with its own shapes.

An element is a Python number or an integer expression over dimensions.  Floating-point values that
come from dimensions (`Shape -> Cast -> Mul 0.5 -> Floor`) are kept as exact ratios; `Undecided`
says that an operation cannot be written this way, and the caller computes it at run time instead.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from relaxvm import _compiler, relax, tirx
from relaxvm.relax.analysis import free_symbolic_vars
from relaxvm.tirx.stmt_functor import substitute

from .values import NUMBERS

# A variable about which nothing is said is a dimension there: at least 0.
_simplify = _compiler.func("analysis.simplify")
_prove = _compiler.func("analysis.prove")
_prove_equal = _compiler.func("analysis.prove_equal")

# A float32 product of a dimension below 2**24 / MAX_EXACT and such a factor has no rounding error.
MAX_EXACT = 1 << 12


class Undecided(Exception):
    """The result depends on the values of symbolic dimensions in a way that no expression states."""


@dataclasses.dataclass(frozen=True)
class Ratio:
    """numerator / denominator as a real number: an integer expression over a positive constant."""

    numerator: Any
    denominator: int


def is_symbolic(element: Any) -> bool:
    return not isinstance(element, NUMBERS)


class Scalars:
    """Builds and simplifies element expressions."""

    def new_dim(self, name: str) -> Any:
        return tirx.Var(name, "int64")

    def simplify(self, e: Any) -> Any:
        """The simplest form; a Python number when it is one."""
        if not is_symbolic(e):
            return e.item() if hasattr(e, "item") else e
        e = _simplify(e)
        return e.value if isinstance(e, tirx.IntImm) else e

    def prove(self, condition: Any) -> bool:
        if isinstance(condition, NUMBERS):
            return bool(condition)
        return _prove(condition)

    def same(self, a: Any, b: Any) -> bool:
        """Surely equal?"""
        if not is_symbolic(a) and not is_symbolic(b):
            return a == b
        return a is b or _prove_equal(_wrap(a), _wrap(b))

    def same_unless_empty(self, a: Any, b: Any) -> bool:
        """Surely equal where no dimension is 0?"""
        if self.same(a, b) or not (is_symbolic(a) and is_symbolic(b)):
            return self.same(a, b)
        variables = free_symbolic_vars(relax.ShapeExpr([a, b]))
        longer = {v: tirx.Var(v.name, "int64") + 1 for v in variables}
        return self.same(substitute(a, longer), substitute(b, longer))

    def differ(self, a: Any, b: Any) -> bool:
        """Surely unequal?"""
        if not is_symbolic(a) and not is_symbolic(b):
            return a != b
        return self.prove(tirx.NE(_wrap(a), _wrap(b)))  # also of what is a multiple of 2, and 1

    # ---- integers

    def add(self, a: Any, b: Any) -> Any:
        return self.simplify(a + b)

    def sub(self, a: Any, b: Any) -> Any:
        return self.simplify(a - b)

    def mul(self, a: Any, b: Any) -> Any:
        return self.simplify(a * b)

    def floordiv(self, a: Any, b: Any) -> Any:
        if not is_symbolic(b) and b == 0:
            raise Undecided
        return self.simplify(a // b)

    def ceildiv(self, a: Any, b: Any) -> Any:
        return self.simplify((a + (b - 1)) // b)

    def truncdiv(self, a: Any, b: Any) -> Any:
        """Division that rounds towards zero."""
        if not is_symbolic(a) and not is_symbolic(b):
            if b == 0:
                raise Undecided
            quotient = abs(a) // abs(b)
            return quotient if (a < 0) == (b < 0) else -quotient
        if self.prove(a >= 0) and self.prove(b > 0):
            return self.floordiv(a, b)
        return self.simplify(tirx.truncdiv(a, b))

    def floormod(self, a: Any, b: Any) -> Any:
        if not is_symbolic(b) and b == 0:
            raise Undecided
        return self.simplify(a % b)

    def truncmod(self, a: Any, b: Any) -> Any:
        return self.sub(a, self.mul(self.truncdiv(a, b), b))

    def minimum(self, a: Any, b: Any) -> Any:
        if not is_symbolic(a) and not is_symbolic(b):
            return min(a, b)
        if self.prove(a <= b):
            return a
        if self.prove(b <= a):
            return b
        return self.simplify(tirx.min(a, b))

    def maximum(self, a: Any, b: Any) -> Any:
        if not is_symbolic(a) and not is_symbolic(b):
            return max(a, b)
        if self.prove(a >= b):
            return a
        if self.prove(b >= a):
            return b
        return self.simplify(tirx.max(a, b))

    def compare(self, relation: Callable[[Any, Any], Any], a: Any, b: Any) -> Any:
        """True, False or a condition; `relation` is an ordering (operator.lt, ...)."""
        condition = relation(a, b)
        if isinstance(condition, NUMBERS):
            return bool(condition)
        return self._decide(condition)

    def equal(self, a: Any, b: Any) -> Any:
        # `==` of two expressions asks whether they are one object.
        if not is_symbolic(a) and not is_symbolic(b):
            return a == b
        if self.same(a, b):
            return True
        if self.differ(a, b):
            return False
        return tirx.EQ(_wrap(a), _wrap(b))

    def chooses(self, a: Any) -> bool:
        """Does the expression choose between values: may it be 0 though no dimension is?"""
        if isinstance(a, tirx.Select):
            return True
        return isinstance(a, tirx.Binary) and (self.chooses(a.a) or self.chooses(a.b))

    def logical_not(self, a: Any) -> Any:
        return (not a) if not is_symbolic(a) else tirx.Not(a)

    def select(self, condition: Any, a: Any, b: Any) -> Any:
        if not is_symbolic(condition):
            return a if condition else b
        if not is_symbolic(a) and not is_symbolic(b) and a == b:
            return a
        if isinstance(a, (Ratio, Fraction, float)) or isinstance(b, (Ratio, Fraction, float)):
            raise Undecided
        return self.simplify(tirx.Select(condition, _wrap(a), _wrap(b)))

    def _decide(self, condition: Any) -> Any:
        if self.prove(condition):
            return True
        return False if self.prove(tirx.Not(condition)) else condition

    # ---- floating point

    def real(self, a: Any) -> Ratio | Fraction:
        """An element of a floating-point value, exactly."""
        if isinstance(a, Ratio):
            return a
        return Ratio(a, 1) if is_symbolic(a) else Fraction(a)

    def real_add(self, a: Any, b: Any) -> Any:
        a, b = self.real(a), self.real(b)
        if isinstance(a, Fraction) and isinstance(b, Fraction):
            return a + b
        a, b = _as_ratio(a), _as_ratio(b)
        top = self.add(self.mul(a.numerator, b.denominator), self.mul(b.numerator, a.denominator))
        return self._ratio(top, a.denominator * b.denominator)

    def real_mul(self, a: Any, b: Any) -> Any:
        a, b = self.real(a), self.real(b)
        if isinstance(a, Fraction) and isinstance(b, Fraction):
            return a * b
        a, b = _as_ratio(a), _as_ratio(b)
        return self._ratio(self.mul(a.numerator, b.numerator), a.denominator * b.denominator)

    def real_div(self, a: Any, b: Any) -> Any:
        a, b = self.real(a), self.real(b)
        if not isinstance(b, Fraction) or b == 0:
            raise Undecided
        if isinstance(a, Fraction):
            return a / b
        if b.denominator != 1:
            return self.real_mul(a, 1 / b)
        # Rounding the quotient of a dimension and an integer never reaches the next integer.
        sign = 1 if b > 0 else -1
        return self._ratio(self.mul(a.numerator, sign), a.denominator * abs(b.numerator))

    def real_minimum(self, a: Any, b: Any) -> Any:
        return self._real_bound(a, b, min, self.minimum)

    def real_maximum(self, a: Any, b: Any) -> Any:
        return self._real_bound(a, b, max, self.maximum)

    def _real_bound(self, a: Any, b: Any, native: Callable, symbolic: Callable) -> Any:
        a, b = self.real(a), self.real(b)
        if isinstance(a, Fraction) and isinstance(b, Fraction):
            return native(a, b)
        a, b = _as_ratio(a), _as_ratio(b)
        top = symbolic(self.mul(a.numerator, b.denominator), self.mul(b.numerator, a.denominator))
        return self._ratio(top, a.denominator * b.denominator)

    def real_floor(self, a: Any) -> Any:
        a = self.real(a)
        if isinstance(a, Fraction):
            return a.numerator // a.denominator
        return self.floordiv(a.numerator, a.denominator)

    def real_ceil(self, a: Any) -> Any:
        a = self.real(a)
        if isinstance(a, Fraction):
            return -(-a.numerator // a.denominator)
        return self.ceildiv(a.numerator, a.denominator)

    def to_integer(self, a: Any) -> Any:
        """Towards zero, as a cast does."""
        a = self.real(a)
        if isinstance(a, Fraction):
            return int(a)
        return self.truncdiv(a.numerator, a.denominator)

    def _ratio(self, numerator: Any, denominator: int) -> Any:
        if denominator == 1 or not is_symbolic(numerator):
            return Ratio(numerator, 1) if denominator == 1 else Fraction(numerator, denominator)
        return Ratio(numerator, denominator)


def _as_ratio(a: Ratio | Fraction) -> Ratio:
    """A constant factor or summand as a ratio; only those that floating point treats exactly."""
    if isinstance(a, Ratio):
        return a
    exact = a.denominator & (a.denominator - 1) == 0
    if not exact or a.denominator > MAX_EXACT or abs(a.numerator) > MAX_EXACT:
        raise Undecided
    return Ratio(a.numerator, a.denominator)


def _wrap(a: Any) -> Any:
    return a if is_symbolic(a) else tirx.IntImm("int64", int(a))
