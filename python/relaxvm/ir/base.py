# SPDX-License-Identifier: Apache-2.0
"""Objects of the languages: printing, comparing, places in sources."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import tvm_ffi
from tvm_ffi import Object

from .. import _compiler

_compiler.load()
_print = _compiler.func("script.Print")
_equal = _compiler.func("ir.StructuralEqual")
_mismatch = _compiler.func("ir.FirstMismatch")
_hash = _compiler.func("ir.StructuralHash")
_span = _compiler.func("ir.Span")


def plain(obj: Any) -> Any:
    """What `obj` stands for: proxies of types and deferred comparisons become objects."""
    convert = getattr(obj, "as_object", None)
    return convert() if convert is not None else obj


class Scriptable:
    """Adds `script()`, `show()` and a readable `str()`."""

    __slots__ = ()

    def script(
        self,
        *,
        name: str | None = None,
        show_meta: bool = False,
        module_name: str = "Module",
        extra_config: dict[str, Any] | None = None,
        **_ignored: Any,
    ) -> str:
        """The object as TVMScript; `show_meta` writes the contents of large constants."""
        return _print(self, name or module_name, show_meta)

    def show(self, *args: Any, **options: Any) -> None:
        """Prints `script()`; arguments that choose colours are accepted and not needed."""
        print(self.script(show_meta=bool(options.get("show_meta", False))))

    def __str__(self) -> str:
        return _print(self, "Module", False)

    def __repr__(self) -> str:
        return _print(self, "Module", False)


@tvm_ffi.register_object("relaxvm.ir.Span")
class Span(Object):
    """A place in a source: file, line and column, counted from 1."""

    def __init__(
        self, source_name: Any, line: int, end_line: int, column: int, end_column: int
    ) -> None:
        self.__init_handle_by_constructor__(
            _span, str(source_name), line, column, end_line, end_column
        )


class _Place(threading.local):
    span: Span | None = None


_place = _Place()


@contextlib.contextmanager
def span_scope(span: Span) -> Iterator[None]:
    """Operator calls and match_casts made inside come from this place."""
    outer, _place.span = _place.span, span
    try:
        yield
    finally:
        _place.span = outer


def current_span() -> Span | None:
    return _place.span


def SourceName(name: str) -> str:
    """The name of a source; a plain string here."""
    return name


def structural_equal(lhs: Any, rhs: Any, map_free_vars: bool = False) -> bool:
    """Are two programs the same up to the names of bound variables?"""
    return _equal(plain(lhs), plain(rhs), map_free_vars)


def structural_hash(node: Any, map_free_vars: bool = False) -> int:
    """Equal programs have equal hashes."""
    return _hash(plain(node), map_free_vars)


def assert_structural_equal(lhs: Any, rhs: Any, map_free_vars: bool = False) -> None:
    """Raises ValueError that shows the first difference."""
    lhs, rhs = plain(lhs), plain(rhs)
    if _equal(lhs, rhs, map_free_vars):
        return
    path = _mismatch(lhs, rhs, map_free_vars)
    where = f"{path[0]} and {path[1]}" if path is not None else "<root>"
    raise ValueError(
        f"the programs differ at {where}\n---- left ----\n{_text(lhs)}\n---- right ----\n{_text(rhs)}"
    )


def _text(obj: Any) -> str:
    return _print(obj, "Module", False) if isinstance(obj, Object) else repr(obj)


def save_json(node: Any) -> str:
    """A module, function, type or expression as text that `load_json` takes back; free variables are declared first.

    ValueError for a node that has no meaning of its own (a block, a statement) and for free variables that share a
    name."""
    from .module import BaseFunc, IRModule

    node = plain(node)
    if isinstance(node, (BaseFunc, IRModule)):
        return _print(node, "Module", True)
    from .text import with_variables

    text = with_variables(node)
    if not structural_equal(node, _loaded(text), map_free_vars=True):
        raise ValueError(
            f"save_json: a {type(node).__name__} has no text of its own; save the function that it stands in"
        )
    return text


def _loaded(text: str) -> Any:
    from ..error import DiagnosticError

    try:
        return load_json(text)
    except DiagnosticError:
        return None


def load_json(json_str: str) -> Any:
    """What `save_json` wrote."""
    from ..script.parser import from_source

    return from_source(json_str)
