# SPDX-License-Identifier: Apache-2.0
"""Symbolic sizes in the types of a function's parameters, in variables of that function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relaxvm import _compiler
from relaxvm.ir.expr import Expr, Var
from relaxvm.relax.analysis import tir_vars_in_type
from relaxvm.relax.type import ShapeType

_substitute = _compiler.func("ir.Substitute")


class Sizes:
    """One variable for each name."""

    def __init__(self) -> None:
        self._by_name: dict[str, Var] = {}

    def named(self, name: str) -> Var:
        return self._by_name.setdefault(name, Var(name, "int64"))

    def variable(self, outer: Var) -> Var:
        return self.named(outer.name)

    def own(self, size: int | str | Expr) -> int | Expr:
        """A size in variables of this function."""
        if isinstance(size, str):
            return self.named(size)
        if isinstance(size, Var):
            return self.variable(size)
        found = variables_in([size])
        return _substitute(size, {v: self.variable(v) for v in found}) if found else size


class InnerSizes(Sizes):
    """One variable for each of the calling function."""

    def __init__(self) -> None:
        super().__init__()
        self.of_outer: dict[Var, Var] = {}

    def variable(self, outer: Var) -> Var:
        return self.of_outer.setdefault(outer, Var(outer.name, "int64"))


def variables_in(sizes: Sequence[Any]) -> list[Var]:
    """The variables of which sizes consist."""
    return list(tir_vars_in_type(ShapeType(list(sizes))))
