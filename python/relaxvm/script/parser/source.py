# SPDX-License-Identifier: Apache-2.0
"""Sources of decorated functions and classes, and errors that point into them."""

from __future__ import annotations

import ast
import contextlib
import functools
import linecache
import types
from typing import Any, NoReturn

from ...error import DiagnosticError


class Source:
    """A file or text, and its syntax tree."""

    def __init__(self, name: str, text: str) -> None:
        self.name, self.lines = name, text.splitlines()
        try:
            self.tree = ast.parse(text)
        except SyntaxError as error:
            raise DiagnosticError(
                f"{name}:{error.lineno}:{error.offset}: {error.msg}\n    {(error.text or '').strip()}"
            ) from None

    def fail(self, node: ast.AST, message: str) -> NoReturn:
        """Raises the error `message` about `node`: where, what, the line itself."""
        line, column = getattr(node, "lineno", 0), getattr(node, "col_offset", -1) + 1
        text = self.lines[line - 1] if 0 < line <= len(self.lines) else ""
        pointer = " " * (column - 1) + "^" if text else ""
        raise DiagnosticError(
            f"{self.name}:{line}:{column}: {message}\n{text}\n{pointer}".rstrip()
        ) from None

    @functools.cached_property
    def definitions(self) -> list[ast.ClassDef | ast.FunctionDef]:
        """All classes and functions."""
        kinds = (ast.ClassDef, ast.FunctionDef)
        return [n for n in ast.walk(self.tree) if isinstance(n, kinds)]


def first_line(node: ast.ClassDef | ast.FunctionDef) -> int:
    return min([node.lineno, *(d.lineno for d in node.decorator_list)])


@functools.lru_cache(maxsize=64)
def _load(name: str, text: str) -> Source:
    return Source(name, text)


def source_of_file(filename: str, module_globals: dict[str, Any] | None = None) -> Source:
    linecache.checkcache(filename)
    lines = linecache.getlines(filename, module_globals)
    if not lines:
        raise DiagnosticError(
            f"{filename}: the source of a script cannot be read; put it into a file, "
            "or pass its text to relaxvm.script.from_source"
        )
    return _load(filename, "".join(lines))


def find_function(func: types.FunctionType) -> tuple[Source, ast.FunctionDef]:
    """The syntax tree of a function."""
    code = func.__code__
    source = source_of_file(code.co_filename, func.__globals__)
    for node in source.definitions:
        if isinstance(node, ast.FunctionDef) and node.name == code.co_name:
            if first_line(node) <= code.co_firstlineno <= node.lineno:
                return source, node
    raise DiagnosticError(
        f"{code.co_filename}: function {code.co_name} is not where it was defined"
    )


def find_class(name: str, frame: types.FrameType) -> tuple[Source, ast.ClassDef]:
    """The syntax tree of the class `name` that is being decorated in `frame`."""
    source = source_of_file(frame.f_code.co_filename, frame.f_globals)
    line = frame.f_lineno
    found = [
        node
        for node in source.definitions
        if isinstance(node, ast.ClassDef)
        and node.name == name
        and first_line(node) <= line <= (node.end_lineno or node.lineno)
    ]
    if not found:
        raise DiagnosticError(f"{source.name}:{line}: class {name} is not where it was defined")
    return source, max(found, key=first_line)


def in_module_class(frame: types.FrameType) -> bool:
    """Is `frame` the body of a class that becomes a module?"""
    if "__module__" not in frame.f_locals or "__qualname__" not in frame.f_locals:
        return False
    filename, line = frame.f_code.co_filename, frame.f_code.co_firstlineno
    source = source_of_file(filename, frame.f_globals)
    for node in source.definitions:
        if isinstance(node, ast.ClassDef) and first_line(node) <= line <= node.lineno:
            if node.name == frame.f_code.co_name:
                marks = [ast.unparse(d) for d in node.decorator_list]
                return any("ir_module" in m or m.split(".")[-1] == "rewriter" for m in marks)
    return False


def captured(frame: types.FrameType | None, *functions: Any) -> dict[str, Any]:
    """Names that a script sees from outside: globals, then locals of the caller, then closures."""
    names: dict[str, Any] = {}
    if frame is not None:
        names.update(frame.f_globals)
        outer = []
        scope: types.FrameType | None = frame
        while scope is not None and scope.f_code.co_filename == frame.f_code.co_filename:
            outer.append(scope.f_locals)
            scope = scope.f_back
        for values in reversed(outer):
            names.update(values)
    for func in functions:
        if isinstance(func, types.FunctionType):
            names.update(func.__globals__)
            for name, cell in zip(func.__code__.co_freevars, func.__closure__ or ()):
                with contextlib.suppress(
                    ValueError
                ):  # not assigned yet: the class that is being made
                    names[name] = cell.cell_contents
    return names
