# SPDX-License-Identifier: Apache-2.0
"""Patterns for external code generators."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...transform.passes import BuiltinPass
from ..dpl.pattern import DFPattern


@dataclass
class PatternCheckContext:
    """What a pattern's check sees: the matched value and its parts."""

    matched_expr: Any
    annotated_expr: Mapping[str, Any]
    matched_bindings: Mapping[Any, Any]
    var_usages: Mapping[Any, Sequence[Any]]
    value_to_bound_var: Mapping[Any, Any]


@dataclass
class FusionPattern:
    """A pattern under the name of what it is replaced by; `check` may refuse a match."""

    name: str
    pattern: DFPattern
    annotation_patterns: Mapping[str, DFPattern] = field(default_factory=dict)
    check: Callable[[PatternCheckContext], bool] | None = None
    attrs_getter: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None

    def row(self) -> list[Any]:
        """As the compiler takes it."""
        check = self.check
        wrapped = None
        if check is not None:

            def wrapped(*parts: Any) -> bool:
                return bool(check(PatternCheckContext(*parts)))

        return [self.name, self.pattern, dict(self.annotation_patterns or {}), wrapped]


def as_pattern(item: Any) -> FusionPattern:
    """A FusionPattern from one, or from a tuple of its fields."""
    return item if isinstance(item, FusionPattern) else FusionPattern(*item)


def fuse_ops_by_pattern(make: Callable[..., BuiltinPass]) -> Callable[..., BuiltinPass]:
    """The factory of the pass, for patterns given as objects or tuples."""

    def FuseOpsByPattern(
        patterns: Sequence[Any],
        bind_constants: bool = True,
        annotate_codegen: bool = False,
        entry_functions: Sequence[str] | None = None,
    ) -> BuiltinPass:
        rows = [as_pattern(p).row() for p in patterns]
        return make(rows, bind_constants, annotate_codegen, entry_functions)

    FuseOpsByPattern.__doc__ = make.__doc__
    FuseOpsByPattern.__module__ = "relaxvm.relax.transform"
    FuseOpsByPattern.__qualname__ = "FuseOpsByPattern"
    return FuseOpsByPattern
