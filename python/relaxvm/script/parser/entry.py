# SPDX-License-Identifier: Apache-2.0
"""Where parsing begins: decorators hand over a class or function, `from_source` a text."""

from __future__ import annotations

import ast
import sys
import types
import typing
from typing import Any

from ...error import DiagnosticError
from .source import Source, captured, find_class, find_function, in_module_class


def parse_class(cls: type, frame: types.FrameType, check_well_formed: bool = True) -> Any:
    """The module that a decorated class describes."""
    from .module import parse_module

    source, node = find_class(cls.__name__, frame)
    methods = [getattr(f, "script_function", f) for f in vars(cls).values()]
    mod = parse_module(source, node, captured(frame, *methods), vars(cls))
    return _checked(mod, source, node) if check_well_formed else mod


def _checked(parsed: Any, source: Source, node: ast.AST) -> Any:
    """What was parsed, unless it breaks a rule of the graph language."""
    from ...relax.analysis.programs import violation

    # A class that inherits from BasePyModule gives a factory, which has the module.
    found = violation(getattr(parsed, "ir_module", parsed))
    # A function on its own has no module that could declare the data types which it uses.
    declares = isinstance(node, ast.ClassDef) or "[data-type-is-declared]" not in (found or "")
    if found is not None and declares:
        source.fail(
            node,
            f"the program is not well formed: {found}; "
            "check_well_formed=False on the decorator keeps it as it is",
        )
    return parsed


def parse_data_type(cls: type, frame: types.FrameType, stand_in: Any) -> Any:
    """The data type that a decorated class describes, or a stand-in inside of a class that becomes a module."""
    from .data_type import parse_data_types

    if in_module_class(frame):
        return stand_in
    source, node = find_class(cls.__name__, frame)
    return parse_data_types(source, [node], captured(frame))[0]


def parse_function(func: Any, frame: types.FrameType, kind: str, options: dict[str, Any]) -> Any:
    """The function that a decorated function describes, or a mark when it stands in a class that becomes a module."""
    if in_module_class(frame):
        return func
    source, node = find_function(func)
    return parse_definition(source, node, captured(frame, func), kind, options)


def parse_definition(
    source: Source,
    node: ast.FunctionDef,
    outside: dict[str, Any],
    kind: str,
    options: dict[str, Any],
) -> Any:
    """A function outside of any module."""
    from .graph import GraphParser
    from .program import ProgramParser

    if kind == "prim_func":
        return ProgramParser(source, outside).parse(node, private=bool(options.get("private")))
    function = GraphParser(source, outside).parse(
        node, pure=bool(options.get("pure", True)), private=bool(options.get("private"))
    )
    return _checked(function, source, node) if options.get("check_well_formed", True) else function


def from_source(
    program: Any, extra_vars: dict[str, Any] | None = None, check_well_formed: bool = True
) -> Any:
    """The module or function that a text describes; names R, T, I are there without import."""
    from .. import ir, relax, tirx

    if isinstance(program, type):
        return parse_class(program, sys._getframe(1), check_well_formed)
    if isinstance(program, types.FunctionType):
        raise TypeError("decorate a function with @R.function or @T.prim_func to parse it")
    names: dict[str, Any] = {"I": ir, "R": relax, "T": tirx, "ir": ir, "relax": relax, "tirx": tirx}
    names["TypeVar"] = typing.TypeVar  # how sizes are declared ahead of the functions
    if "BasePyModule" in str(program):
        from ...relax.base_py_module import BasePyModule

        names["BasePyModule"] = BasePyModule
    names.update(extra_vars or {})
    source = Source("<script>", str(program))
    body = source.tree.body
    last = body[-1] if body and isinstance(body[-1], ast.Expr) else None
    results = [_top_level(source, n, names, check_well_formed) for n in body if n is not last]
    results = [r for r in results if r is not None]
    if last is not None and not results:
        return _expression(source, last.value, names)
    if last is not None:
        _top_level(source, last, names, check_well_formed)
    if not results:
        raise DiagnosticError(
            f"{source.name}:1:1: nothing to parse; write a class under @I.ir_module, "
            "or a function under @R.function or @T.prim_func"
        )
    return results[-1]


parse = from_source


def _expression(source: Source, node: ast.expr, names: dict[str, Any]) -> Any:
    """A type or expression on its own."""
    from ...ir.base import plain
    from ...ir.expr import Expr
    from ...relax.expr import to_expr
    from ..types import Annotation
    from .evaluate import Evaluator, Scope

    value = Evaluator(source, Scope(names)).eval(node)
    if isinstance(value, tuple) and all(isinstance(v, (Expr, tuple)) for v in value):
        return to_expr(value)
    return value.as_object() if isinstance(value, Annotation) else plain(value)


def _wants_check(node: ast.ClassDef) -> bool:
    """False when a decorator of the class says check_well_formed=False."""
    words = [k for d in node.decorator_list if isinstance(d, ast.Call) for k in d.keywords]
    return not any(
        k.arg == "check_well_formed" and isinstance(k.value, ast.Constant) and not k.value.value
        for k in words
    )


def _top_level(source: Source, node: ast.stmt, names: dict[str, Any], check: bool) -> Any:
    from .data_type import is_data_type, parse_data_types
    from .evaluate import Evaluator, Scope
    from .module import function_kind, parse_module

    if isinstance(node, ast.ClassDef):
        if is_data_type(Evaluator(source, Scope(names)), node):
            names[node.name] = parse_data_types(source, [node], names)[0]
            return names[node.name]
        mod = parse_module(source, node, names)
        return _checked(mod, source, node) if check and _wants_check(node) else mod
    if isinstance(node, ast.FunctionDef):
        kind, options = function_kind(Evaluator(source, Scope(names)), node)
        if kind is not None:
            options = {
                **options,
                "check_well_formed": check and options.get("check_well_formed", True),
            }
            return parse_definition(source, node, names, kind, options)
    # Anything else is ordinary Python: imports, metadata, helpers.
    try:
        exec(compile(ast.Module([node], []), source.name, "exec"), names)
    except DiagnosticError:
        raise
    except Exception as error:
        source.fail(node, str(error))
    return None
