# SPDX-License-Identifier: Apache-2.0
"""Rewriting by patterns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ... import _compiler
from ...ir.base import plain
from ...ir.module import IRModule
from ...transform.passes import Pass, PassContext, PassInfo
from .context import PatternContext
from .pattern import DFPattern

_from_function = _compiler.func("relax.dpl.RulesFromFunction")
_from_module = _compiler.func("relax.dpl.RulesFromModule")
_join = _compiler.func("relax.dpl.JoinRules")
_rewrite = _compiler.func("relax.dpl.Rewrite")
_rewrite_bindings = _compiler.func("relax.dpl.RewriteBindings")


class PatternMatchingRewriter(Pass):
    """Rules that are applied to a function or a module until none fits any more."""

    def __init__(self, rules: Any, name: str = "PatternMatchingRewriter") -> None:
        self.rules = rules
        self.info = PassInfo(0, name)

    @staticmethod
    def from_pattern(
        pattern: DFPattern, func: Callable[[Any, Mapping[DFPattern, Any]], Any]
    ) -> PatternMatchingRewriter:
        """What `pattern` fits becomes what `func(expression, matches)` gives."""
        return ExprPatternRewriter(pattern, func)

    @staticmethod
    def from_module(mod: IRModule) -> PatternMatchingRewriter:
        """What the module's function `pattern` computes becomes what `replacement` computes."""
        return PatternMatchingRewriter(_from_module(mod))

    def __or__(self, other: PatternMatchingRewriter) -> PatternMatchingRewriter:
        return OrRewriter(self, other)

    def __call__(self, target: Any) -> Any:
        return super().__call__(target) if isinstance(target, IRModule) else self._apply(target)

    def run(self, mod: IRModule, context: PassContext) -> IRModule:
        return self._apply(mod)

    def _apply(self, target: Any) -> Any:
        return _rewrite(self.rules, target)


class ExprPatternRewriter(PatternMatchingRewriter):
    """One pattern and the function that replaces what it fits."""

    def __init__(self, pattern: DFPattern, func: Callable[..., Any]) -> None:
        super().__init__(_from_function(pattern, lambda e, found: plain(func(e, found))))
        self.pattern, self.func = pattern, func


class OrRewriter(PatternMatchingRewriter):
    """The rules of both; those of `lhs` first."""

    def __init__(self, lhs: PatternMatchingRewriter, rhs: PatternMatchingRewriter) -> None:
        super().__init__(_join(lhs.rules, rhs.rules))
        self.lhs, self.rhs = lhs, rhs


class TupleRewriter(ExprPatternRewriter):
    """Several patterns at once: the values that they fit become the items of what `func` gives."""

    def __init__(self, patterns: Any, func: Callable[..., Any]) -> None:
        from .pattern import TuplePattern

        super().__init__(TuplePattern(list(patterns)), func)


def rewrite_call(
    pattern: DFPattern, rewriter: Callable[[Any, Mapping[DFPattern, Any]], Any], func: Any
) -> Any:
    """`func` with every value that `pattern` fits replaced by `rewriter(value, matches)`."""
    return ExprPatternRewriter(pattern, rewriter)(func)


def rewrite_bindings(
    ctx: PatternContext,
    rewriter: Callable[[Mapping[DFPattern, Any], Mapping[Any, Any]], Mapping[Any, Any]],
    func: Any,
) -> Any:
    """`func` with variables that fit the graph of `ctx` bound to what `rewriter(matches, values)` gives for them."""

    def call(found: Any, values: Any) -> dict[Any, Any]:
        return {k: plain(v) for k, v in (rewriter(found, values) or {}).items()}

    return _rewrite_bindings(ctx.nodes, ctx.edges, ctx.same_shape, call, func)
