# SPDX-License-Identifier: Apache-2.0
"""Symbolic sizes of an exported program: sympy's expressions become ours.

PyTorch names its unknown sizes s77, s12 .. (of inputs) and u0, u1 .. (known only while running).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import sympy
from torch.utils._sympy.value_ranges import bound_sympy

from relaxvm import tirx

from .errors import UnsupportedProgram

Size = Any  # an int, or an expression over symbolic dimensions


def same_size(a: Size, b: Size) -> bool:
    """Are they surely one size: equal numbers, or the same expression?"""
    if isinstance(a, int) or isinstance(b, int):
        return isinstance(a, int) and isinstance(b, int) and a == b
    return bool(a.same_as(b))


def _fold(function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def apply(*values: Any) -> Any:
        result = values[0]
        for value in values[1:]:
            result = function(result, value)
        return result

    return apply


def _power(base: Any, exponent: Any) -> Any:
    if not isinstance(exponent, int) or exponent < 0:
        raise UnsupportedProgram(f"a size to the power of {exponent}")
    return _fold(lambda a, b: a * b)(1, *[base] * exponent)


def _int_or(native: Callable[[int, int], int], symbolic: Callable[[Any, Any], Any]) -> Callable:
    def apply(a: Any, b: Any) -> Any:
        both = isinstance(a, int) and isinstance(b, int)
        return native(a, b) if both else symbolic(a, b)

    return apply


_floordiv = _int_or(lambda a, b: a // b, lambda a, b: tirx.floordiv(a, b))
_floormod = _int_or(lambda a, b: a % b, lambda a, b: tirx.floormod(a, b))

# By the name of the class: PyTorch has its own FloorDiv and kin beside sympy's Add and Mul.
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Add": _fold(lambda a, b: a + b),
    "Mul": _fold(lambda a, b: a * b),
    "Pow": _power,
    "PowByNatural": _power,
    "FloorDiv": _floordiv,
    "CleanDiv": _floordiv,
    "Mod": _floormod,
    "PythonMod": _floormod,
    "ModularIndexing": lambda a, b, c: _floormod(_floordiv(a, b), c),
    "CeilDiv": lambda a, b: _floordiv(a + b - 1, b),
    "Max": _fold(_int_or(max, lambda a, b: tirx.max(a, b))),
    "Min": _fold(_int_or(min, lambda a, b: tirx.min(a, b))),
    "ToFloat": lambda a: a,
    "Identity": lambda a: a,
}


Ratio = tuple[Size, Size]  # numerator and denominator, which is above 0


def _times(a: Ratio, b: Ratio) -> Ratio:
    return a[0] * b[0], a[1] * b[1]


def _plus(a: Ratio, b: Ratio) -> Ratio:
    return a[0] * b[1] + b[0] * a[1], a[1] * b[1]


def _round(n: Size, d: Size) -> Size:
    """To the nearest, halves to the even one, as Python does."""
    up = _floordiv(2 * n + d, 2 * d)
    is_no_half = _FUNCTIONS["Min"](_floormod(2 * n + d, 2 * d), 1)
    return up - (1 - is_no_half) * _floormod(up, 2)


# Of numerator and denominator; sizes are not below 0, so cutting off is rounding down.
_ROUNDED: dict[str, Callable[[Any, Any], Any]] = {
    "TruncToInt": _floordiv,
    "FloorToInt": _floordiv,
    "CeilToInt": lambda n, d: _floordiv(n + d - 1, d),
    "RoundToInt": _round,
}
_MAX_DENOMINATOR = 1 << 12


def _is_size(expr: Any) -> bool:
    return type(expr).__name__ == "ToFloat" or bool(expr.is_integer)


def _simple(factor: float) -> Fraction | None:
    """A fraction r for which floor(n * factor), the product rounded to float64, is floor(n * r) for n below 2^30.

    Where n * r is no integer, it is further from one than any error.  Where it is one, n * factor must not fall
    below: factor >= r, or so near that the product is rounded to it.
    """
    exact = Fraction(factor)
    if exact.denominator <= _MAX_DENOMINATOR:
        return exact
    near = exact.limit_denominator(_MAX_DENOMINATOR >> 1)
    error = (near - exact) / near if near else Fraction(1)
    below = Fraction(1, 1 << 54)
    return near if factor < 4096 and abs(error) <= 2 * below and error <= below else None


# Conditions on sizes
_RELATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "Equality": lambda a, b: tirx.EQ(a, b),
    "Unequality": lambda a, b: tirx.NE(a, b),
    "StrictLessThan": lambda a, b: tirx.LT(a, b),
    "LessThan": lambda a, b: tirx.LE(a, b),
    "StrictGreaterThan": lambda a, b: tirx.GT(a, b),
    "GreaterThan": lambda a, b: tirx.GE(a, b),
}


class Symbols:
    """The variables of one program, by PyTorch's names."""

    def __init__(self, ranges: Mapping[Any, Any]) -> None:
        """`ranges` has PyTorch's bounds of symbols."""
        self._values: dict[str, Any] = {}
        self._ranges = dict(ranges)

    def variable(self, name: str) -> Any:
        """The variable for a symbol, made when it is met first."""
        if name not in self._values:
            self._values[name] = tirx.Var(name, "int64")
        return self._values[name]

    def knows(self, expr: Any) -> bool:
        return all(s.name in self._values for s in expr.free_symbols)

    def define(self, name: str, value: Any) -> None:
        self._values[name] = value

    def size(self, value: Any) -> Size:
        """An int, or the expression of a `SymInt`."""
        return int(value) if isinstance(value, int) else self.of(value.node.expr)

    def shape(self, shape: Any) -> list[Size]:
        return [self.size(d) for d in shape]

    def condition(self, value: Any) -> Any:
        """A bool, or the expression of a `SymBool`."""
        return value if isinstance(value, bool) else self._condition_of(value.node.expr)

    def _condition_of(self, expr: Any) -> Any:
        if expr in (sympy.true, sympy.false):
            return bool(expr)
        if isinstance(expr, sympy.Not):
            return tirx.Not(self._condition_of(expr.args[0]))
        if isinstance(expr, (sympy.And, sympy.Or)):
            join = tirx.And if isinstance(expr, sympy.And) else tirx.Or
            return functools.reduce(join, (self._condition_of(a) for a in expr.args))
        relation = _RELATIONS.get(type(expr).__name__)
        if relation is None:
            raise UnsupportedProgram(f"the condition {expr}")
        return relation(
            *(tirx.const(v, "int64") if isinstance(v, int) else v for v in map(self.of, expr.args))
        )

    def of(self, expr: Any) -> Size:
        if isinstance(expr, sympy.Integer):
            return int(expr)
        if isinstance(expr, sympy.Symbol):
            if expr.name not in self._values:
                raise UnsupportedProgram(f"the size {expr.name} is not known where it is needed")
            return self._values[expr.name]
        if type(expr).__name__ in _ROUNDED:
            return self._rounded(type(expr).__name__, expr.args[0])
        function = _FUNCTIONS.get(type(expr).__name__)
        if function is None:
            raise UnsupportedProgram(f"the size {expr} has the operation {type(expr).__name__}")
        if isinstance(expr, sympy.Mul):
            return self._product(expr)
        args = self._extremes(expr) if type(expr).__name__ in ("Max", "Min") else expr.args
        return function(*(self.of(a) for a in args))

    def _extremes(self, expr: Any) -> list[Any]:
        """The arguments of a maximum or minimum, without those that are never the only ones."""
        sign, kept = 1 if type(expr).__name__ == "Max" else -1, list(expr.args)
        for arg in expr.args:
            others = [o for o in kept if o is not arg]
            if any(bound_sympy(sign * (o - arg), self._ranges).lower >= 0 for o in others):
                kept.remove(arg)
        return kept

    def _rounded(self, kind: str, expr: Any) -> Size:
        factors = expr.args if isinstance(expr, sympy.Mul) else ()
        if kind in ("TruncToInt", "FloorToInt") and len(factors) == 2:
            for factor, size in (factors, factors[::-1]):
                if isinstance(factor, sympy.Float) and _is_size(size):
                    parts = self._ratio(factor, is_factor=True), self._ratio(size)
                    return _ROUNDED[kind](*_times(*parts))
        return _ROUNDED[kind](*self._ratio(expr))

    def _ratio(self, expr: Any, is_factor: bool = False) -> Ratio:
        """A real number made of sizes as numerator and denominator, without rounding errors.

        `is_factor`: a size times it is rounded down.
        """
        if isinstance(expr, (sympy.Float, sympy.Rational)):
            fraction = _simple(float(expr)) if is_factor else Fraction(float(expr))
            if fraction is None or fraction.denominator > _MAX_DENOMINATOR:
                raise UnsupportedProgram(f"a size times {expr}, which is not exact in binary")
            return fraction.numerator, fraction.denominator
        if isinstance(expr, (sympy.Mul, sympy.Add)):
            parts = [self._ratio(a) for a in expr.args]
            return functools.reduce(_times if isinstance(expr, sympy.Mul) else _plus, parts)
        if type(expr).__name__ == "ToFloat":
            return self.of(expr.args[0]), 1
        if type(expr).__name__ in ("IntTrueDiv", "FloatTrueDiv"):
            a, b = (self._ratio(x) for x in expr.args)
            return _times(a, (b[1], b[0]))
        if expr.is_integer:
            return self.of(expr), 1
        raise UnsupportedProgram(f"the size {expr} has the operation {type(expr).__name__}")

    def _product(self, expr: Any) -> Size:
        """Of sizes; sympy writes a division as a factor 1/n."""
        numerator, denominator = expr.as_numer_denom()
        if denominator == 1:
            return _FUNCTIONS["Mul"](*(self.of(a) for a in expr.args))
        return _floordiv(self.of(numerator), self.of(denominator))
