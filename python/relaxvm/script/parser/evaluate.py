# SPDX-License-Identifier: Apache-2.0
"""Evaluates the expressions of a script: Python's syntax over the objects of both languages."""

from __future__ import annotations

import ast
import builtins
import operator
from collections.abc import Callable
from typing import Any

import tvm_ffi

from ... import _compiler
from ...error import DiagnosticError
from ...ir.base import Span, plain
from ...ir.expr import Call, Expr, GlobalVar, is_prim_expr
from ...ir.type import FuncType, PrimType
from ...relax.expr import ExternFunc
from ...tirx import op as scalar
from .source import Source

_set_span = _compiler.func("ir.SetSpan")

_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.MatMult: operator.matmul,
}
_COMPARE: dict[type, Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}


class Undefined(Exception):
    """A name that nothing defines."""


class Scope:
    """Names of a script, innermost last; what Python itself sees lies under them."""

    def __init__(self, outside: dict[str, Any]) -> None:
        self.outside = outside
        self.frames: list[dict[str, Any]] = [{}]

    def push(self) -> None:
        self.frames.append({})

    def pop(self) -> dict[str, Any]:
        return self.frames.pop()

    def define(self, name: str, value: Any) -> None:
        self.frames[-1][name] = value

    def find(self, name: str) -> Any:
        for frame in reversed(self.frames):
            if name in frame:
                return frame[name]
        if name in self.outside:
            return self.outside[name]
        try:
            return getattr(builtins, name)
        except AttributeError:
            raise Undefined(name) from None

    def local(self, name: str) -> Any:
        """What the script itself defines as `name`; None when it does not."""
        for frame in reversed(self.frames):
            if name in frame:
                return frame[name]
        return None

    def all(self) -> dict[str, Any]:
        names = dict(self.outside)
        for frame in self.frames:
            names.update(frame)
        return names


def describe_error(error: BaseException) -> str:
    """An exception as one message: the last part of C++ messages already says what is wrong."""
    text = str(error).strip() or type(error).__name__
    if isinstance(error, KeyError):
        text = text.strip("'\"")
    return text


class Evaluator:
    """Evaluates expression nodes in a scope."""

    def __init__(self, source: Source, scope: Scope) -> None:
        self.source, self.scope = source, scope
        self.call_macro: Callable[[Any, ast.Call, list[Any], dict[str, Any]], Any] | None = None

    def span(self, node: ast.AST) -> Span:
        return Span(
            self.source.name,
            getattr(node, "lineno", 0),
            getattr(node, "end_lineno", 0) or 0,
            getattr(node, "col_offset", -1) + 1,
            (getattr(node, "end_col_offset", -1) or -1) + 1,
        )

    def eval(self, node: ast.expr) -> Any:
        method = getattr(self, "_" + type(node).__name__, None)
        try:
            if method is None:
                return self._python(node)
            return method(node)
        except DiagnosticError:
            raise
        except Undefined as error:
            self.source.fail(node, f"name '{error}' is not defined; assign it before, or import it")
        except RecursionError:
            self.source.fail(node, "the expression is nested too deeply; bind parts of it to names")
        except Exception as error:
            self.source.fail(node, describe_error(error))

    def _python(self, node: ast.expr) -> Any:
        """Anything else (comprehensions, lambdas, formatted strings) is Python's own business."""
        code = compile(ast.Expression(node), self.source.name, "eval")
        return eval(code, self.scope.all())

    def _Name(self, node: ast.Name) -> Any:
        return self.scope.find(node.id)

    def _Constant(self, node: ast.Constant) -> Any:
        return node.value

    def _Attribute(self, node: ast.Attribute) -> Any:
        return getattr(self.eval(node.value), node.attr)

    def _Tuple(self, node: ast.Tuple) -> Any:
        return tuple(self._elements(node.elts))

    def _List(self, node: ast.List) -> Any:
        return self._elements(node.elts)

    def _elements(self, nodes: list[ast.expr]) -> list[Any]:
        values: list[Any] = []
        for n in nodes:
            if isinstance(n, ast.Starred):
                values.extend(self.eval(n.value))
            else:
                values.append(self.eval(n))
        return values

    def _Dict(self, node: ast.Dict) -> Any:
        values: dict[Any, Any] = {}
        for key, value in zip(node.keys, node.values):
            if key is None:
                values.update(self.eval(value))
            else:
                values[self.eval(key)] = self.eval(value)
        return values

    def _Slice(self, node: ast.Slice) -> Any:
        parts = (node.lower, node.upper, node.step)
        return slice(*(None if p is None else self.eval(p) for p in parts))

    def _Subscript(self, node: ast.Subscript) -> Any:
        return self.eval(node.value)[self.eval(node.slice)]

    def _BinOp(self, node: ast.BinOp) -> Any:
        # A long sum leans to the left: its spine is walked in a loop.
        spine: list[ast.BinOp] = []
        left: ast.expr = node
        while isinstance(left, ast.BinOp):
            spine.append(left)
            left = left.left
        value = self.eval(left)
        for part in reversed(spine):
            right = self.eval(part.right)
            try:
                value = _BINARY[type(part.op)](value, right)
            except Exception as error:
                self.source.fail(part, describe_error(error))
        return self._placed(value, node)

    def _UnaryOp(self, node: ast.UnaryOp) -> Any:
        value = self.eval(node.operand)
        if isinstance(node.op, ast.Not):
            value = plain(value)
            return ~value if is_prim_expr(value) else not value
        if isinstance(node.op, ast.USub):
            return self._placed(-value, node)
        return ~value if isinstance(node.op, ast.Invert) else +value

    def _BoolOp(self, node: ast.BoolOp) -> Any:
        combine = scalar.all if isinstance(node.op, ast.And) else scalar.any
        value = plain(self.eval(node.values[0]))
        for part in node.values[1:]:
            if not is_prim_expr(value):
                if bool(value) != isinstance(node.op, ast.And):
                    return value
                value = plain(self.eval(part))
                continue
            value = combine(value, plain(self.eval(part)))
        return value

    def _Compare(self, node: ast.Compare) -> Any:
        if len(node.ops) > 1:
            self.source.fail(node, "comparisons cannot be chained; write `a < b and b < c`")
        left, right = self.eval(node.left), self.eval(node.comparators[0])
        return plain(_COMPARE[type(node.ops[0])](left, right))

    def _IfExp(self, node: ast.IfExp) -> Any:
        test = plain(self.eval(node.test))
        if is_prim_expr(test):
            return scalar.if_then_else(test, self.eval(node.body), self.eval(node.orelse))  # type: ignore[attr-defined]
        return self.eval(node.body if test else node.orelse)

    def _Call(self, node: ast.Call) -> Any:
        func = self.eval(node.func)
        args = self._elements(node.args)
        kwargs: dict[str, Any] = {}
        for item in node.keywords:
            if item.arg is None:
                kwargs.update(self.eval(item.value))
            else:
                kwargs[item.arg] = self.eval(item.value)
        if self.call_macro is not None and hasattr(func, "macro_node"):
            return self.call_macro(func, node, args, kwargs)
        if isinstance(func, (GlobalVar, ExternFunc)):
            return self._placed(self._call(func, args, kwargs), node)
        return self._placed(func(*args, **kwargs), node)

    @staticmethod
    def _call(func: Any, args: list[Any], kwargs: dict[str, Any]) -> Call:
        call = Call(func, args, **kwargs)
        if isinstance(func.ty, FuncType) and isinstance(func.ty.ret, PrimType):
            call._update_type(func.ty.ret)  # a scalar: it is used in scalar expressions at once
        return call

    def _placed(self, value: Any, node: ast.AST) -> Any:
        if isinstance(value, Expr) and isinstance(value, tvm_ffi.Object) and value.span is None:
            _set_span(value, self.span(node))
        return value
