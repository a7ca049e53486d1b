# SPDX-License-Identifier: Apache-2.0
"""`match value:` with `case List.Cons(head, tail):` in functions of the graph language."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from ... import _compiler
from ...ir.expr import Expr, Var
from ...relax.data_type import Constructor, Match, MatchCase
from ...relax.type import AdtType, AnyType, NothingType

if TYPE_CHECKING:
    from .graph import GraphParser

_field_types = _compiler.func("ir.FieldTypes")
_mistake = _compiler.func("ir.MistakeInCases")


def parse_match(parser: GraphParser, stmt: ast.Match) -> str:
    """Binds the value of a match; gives the name that its cases end by assigning."""
    if parser.in_dataflow:
        parser.source.fail(stmt, "a dataflow block has no control flow; move `match` out of it")
    value = parser._argument(stmt.subject, parser._value(stmt.subject))
    if not isinstance(value.ty, (AdtType, AnyType, NothingType)):
        parser.source.fail(
            stmt.subject, f"match takes a value of a data type, but this is {value.ty}"
        )
    cases: list[MatchCase] = []
    result = ""
    for case in stmt.cases:
        if case.guard is not None:
            parser.source.fail(case.guard, "a case has no condition; write `if` inside of it")
        constructor, variables, names = _pattern(parser, case.pattern, value)
        name, body = parser._branch(case.body, names)
        if result and name != result:
            parser.source.fail(
                case.body[-1],
                f"the cases end by assigning different names, {result} and {name}; give all the same name",
            )
        result = name
        span = parser.evaluator.span(case.pattern)
        cases.append(MatchCase(constructor, variables, body, span))
    text, at = _mistake(value, cases)
    if text:
        parser.source.fail(stmt if at < 0 else stmt.cases[at].pattern, str(text))
    match = Match(value, cases, parser.evaluator.span(stmt))
    parser.scope.define(result, parser._bind_value(stmt, result, match, None))
    return result


def _pattern(
    parser: GraphParser, pattern: ast.pattern, value: Expr
) -> tuple[Constructor | None, list[Var], dict[str, Any]]:
    """The constructor of a case, a variable for each field, and the names that the case defines."""
    if isinstance(pattern, ast.MatchAs) and pattern.pattern is None:
        return None, [], {} if pattern.name is None else {pattern.name: value}
    if isinstance(pattern, ast.MatchValue):
        parser.source.fail(
            pattern, f"a case calls its constructor: case {ast.unparse(pattern.value)}(...):"
        )
    if not isinstance(pattern, ast.MatchClass):
        parser.source.fail(pattern, "a case is a constructor with names for its fields, or _")
    constructor = parser.evaluator.eval(pattern.cls)
    if not isinstance(constructor, Constructor):
        parser.source.fail(pattern.cls, f"{ast.unparse(pattern.cls)} is no constructor")
    fields = _fields(parser, pattern, constructor)
    variables, names = [], {}
    for field, ty in zip(fields, _field_types(constructor, value.ty)):
        name = _name(parser, field)
        span = parser.evaluator.span(field if field is not None else pattern)
        variables.append(Var(name or "_", ty, span))
        if name is None:
            continue
        if name in names:
            parser.source.fail(field or pattern, f"two fields are called {name}; rename one")
        names[name] = variables[-1]
    return constructor, variables, names


def _fields(
    parser: GraphParser, pattern: ast.MatchClass, constructor: Constructor
) -> list[ast.pattern | None]:
    """A pattern for each field; fields may be left out when others are given by name."""
    named = dict(zip(pattern.kwd_attrs, pattern.kwd_patterns))
    names = [str(n) for n in constructor.definition.field_names]
    missing = {} if not named else dict.fromkeys(names[len(pattern.patterns) :])
    try:
        return constructor.fields_in_order(pattern.patterns, {**missing, **named})
    except TypeError as error:
        parser.source.fail(pattern, str(error))


def _name(parser: GraphParser, field: ast.pattern | None) -> str | None:
    if field is None:
        return None
    if not isinstance(field, ast.MatchAs) or field.pattern is not None:
        parser.source.fail(field, "a field is a name or _; match it again inside of the case")
    return field.name
