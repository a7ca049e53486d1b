# SPDX-License-Identifier: Apache-2.0
"""Definitions of algebraic data types: a class under @R.data whose functions are the constructors."""

from __future__ import annotations

import ast
from typing import Any, NoReturn

from ...relax.data_type import AdtDef, ConstructorDef
from ...relax.type import TypeParam
from ..types import adt_annotation, resolve_type
from .evaluate import Evaluator, Scope
from .source import Source


class _Name:
    """A data type while the types of fields are read: definitions may name each other."""

    def __init__(self, name: str, params: list[str]) -> None:
        self.name, self.params = name, params

    def __getitem__(self, args: Any) -> Any:
        args = args if isinstance(args, tuple) else (args,)
        if len(args) != len(self.params):
            raise TypeError(
                f"data type {self.name} has {len(self.params)} type parameters, got {len(args)}"
            )
        return adt_annotation(self.name, args)

    def as_object(self) -> Any:
        if self.params:
            listed = ", ".join(self.params)
            raise TypeError(
                f"data type {self.name} has type parameters; write {self.name}[{listed}]"
            )
        return adt_annotation(self.name, ())


def _decorator(evaluator: Evaluator, node: ast.ClassDef) -> ast.expr | None:
    for item in node.decorator_list:
        call = item.func if isinstance(item, ast.Call) else item
        if getattr(evaluator.eval(call), "script_kind", None) == "data":
            return item
    return None


def is_data_type(evaluator: Evaluator, node: ast.ClassDef) -> bool:
    """Does the class stand under @R.data?"""
    return _decorator(evaluator, node) is not None


def _params(evaluator: Evaluator, source: Source, node: ast.ClassDef) -> list[str]:
    """@R.data("A", "B"), or class List[A, B] where Python has that."""
    item = _decorator(evaluator, node)
    params = [evaluator.eval(a) for a in item.args] if isinstance(item, ast.Call) else []
    params += [p.name for p in getattr(node, "type_params", [])]
    for p in params:
        if not isinstance(p, str) or not p.isidentifier():
            source.fail(node, f'type parameters are names, such as @R.data("A"), got {p!r}')
    if len(set(params)) != len(params):
        source.fail(node, f"data type {node.name} has two type parameters of one name")
    return params


def parse_data_types(
    source: Source, nodes: list[ast.ClassDef], outside: dict[str, Any]
) -> list[AdtDef]:
    """Data types that may name each other."""
    outer = Evaluator(source, Scope(outside))
    params = {node.name: _params(outer, source, node) for node in nodes}
    names = {name: _Name(name, list(p)) for name, p in params.items()}
    result = []
    for node in nodes:
        types = {p: TypeParam(p) for p in params[node.name]}
        evaluator = Evaluator(source, Scope({**outside, **names, **types}))
        constructors = [c for s in node.body if (c := _constructor(evaluator, source, node, s))]
        try:
            adt = AdtDef(node.name, params[node.name], constructors, evaluator.span(node))
        except ValueError as error:
            source.fail(node, str(error).removeprefix(f"{source.name}:").split(": ", 1)[-1])
        result.append(adt)
    return result


def _constructor(
    evaluator: Evaluator, source: Source, owner: ast.ClassDef, node: ast.stmt
) -> ConstructorDef | None:
    if (
        isinstance(node, ast.Pass)
        or isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
    ):
        return None
    if not isinstance(node, ast.FunctionDef):
        source.fail(node, "a data type holds constructors: def Cons(head: ..., tail: ...): ...")
    args = node.args
    if args.vararg or args.kwarg or args.kwonlyargs or args.defaults or args.posonlyargs:
        source.fail(node, "fields are plain names with a type")
    if node.name.startswith("_"):
        source.fail(node, f"a constructor's name does not begin with an underscore: {node.name}")
    for stmt in node.body:
        empty = isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Constant)
        if not empty and not isinstance(stmt, ast.Pass):
            source.fail(stmt, "a constructor has no body; write `...`")
    fields = []
    for arg in args.args:
        if arg.annotation is None:
            source.fail(arg, f"field {arg.arg} of {owner.name}.{node.name} needs a type")
        fields.append((arg.arg, _field_type(evaluator, source, arg.annotation)))
    return ConstructorDef(node.name, fields, evaluator.span(node))


def _field_type(evaluator: Evaluator, source: Source, node: ast.expr) -> Any:
    def dim(text: str) -> NoReturn:
        source.fail(
            node,
            f'a field knows no size "{text}": write R.Tensor(ndim=...), and R.match_cast where it is used',
        )

    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        text = ast.parse(node.value, mode="eval").body
        for part in ast.walk(text):
            if isinstance(part, ast.expr):
                ast.copy_location(part, node)
        node = text
    value = evaluator.eval(node)
    if isinstance(value, _Name):
        try:
            value = value.as_object()
        except TypeError as error:
            source.fail(node, str(error))
    try:
        return resolve_type(value, dim)
    except (TypeError, ValueError) as error:
        source.fail(node, str(error))


__all__ = ["is_data_type", "parse_data_types"]
