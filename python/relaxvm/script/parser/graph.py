# SPDX-License-Identifier: Apache-2.0
"""Functions of the graph language: statements become bindings, in normal form."""

from __future__ import annotations

import ast
import typing
from typing import Any

from ... import _compiler
from ...ir.base import plain
from ...ir.expr import Expr, GlobalVar, Var, is_prim_expr
from ...ir.type import FuncType, PrimType, TupleType, Type
from ...relax.block_builder import BlockBuilder
from ...relax.expr import (
    BindingBlock,
    Constant,
    DataflowVar,
    Function,
    If,
    SeqExpr,
    ShapeExpr,
    Tuple,
    to_expr,
)
from ...relax.type import AnyType
from ..relax import MatchCastValue, _Mark
from ..tirx import DTypeName
from ..types import resolve_type
from .evaluate import Evaluator, Scope
from .match import parse_match
from .source import Source

_begin = _compiler.func("relax.Builder_Begin")
_end = _compiler.func("relax.Builder_End")
_bind = _compiler.func("relax.Builder_Bind")
_bind_match_cast = _compiler.func("relax.Builder_BindMatchCast")
_normalize_argument = _compiler.func("relax.Builder_NormalizeWritten")
_finish = _compiler.func("relax.Builder_FinishFunction")
_fit = _compiler.func("analysis.type_fit")
_NEVER = 0


class _Header:
    """Symbolic variables of a signature: a dimension that is a name defines it; elsewhere names refer to it."""

    def __init__(self, parser: GraphParser) -> None:
        self.parser = parser
        self.used_first: dict[str, ast.AST] = {}
        self.node: ast.AST = ast.Pass()

    def dim(self, text: str) -> Expr:
        parser = self.parser
        if text.isidentifier():
            var = parser.scope.local(text)
            if isinstance(var, Expr) and is_prim_expr(var):
                self.used_first.pop(text, None)
                return var
            return self._define(text)
        try:
            node = ast.parse(text.strip(), mode="eval").body
        except SyntaxError:
            parser.source.fail(self.node, f'the dimension "{text}" is no expression')
        for name in ast.walk(node):
            if not isinstance(name, ast.Name) or parser.scope.local(name.id) is not None:
                continue
            outer = parser.scope.outside.get(name.id)
            if outer is None or isinstance(outer, typing.TypeVar):
                self._define(name.id)
                self.used_first[name.id] = self.node
        for part in ast.walk(node):
            if isinstance(part, ast.expr):
                ast.copy_location(part, self.node)  # errors point at the string
        value = plain(parser.evaluator.eval(node))
        return value

    def _define(self, name: str) -> Var:
        var = Var(name, "int64")
        self.parser.scope.define(name, var)
        self.parser.symbols[name] = var
        return var

    def check(self) -> None:
        for name, node in self.used_first.items():
            self.parser.source.fail(
                node,
                f"the symbolic variable '{name}' is not defined: no parameter has a dimension that is just \"{name}\"",
            )


def _is_leaf(value: Any) -> bool:
    return isinstance(value, (Var, Constant, GlobalVar, ShapeExpr)) or is_prim_expr(value)


class GraphParser:
    """Parses one function and the functions in it."""

    def __init__(
        self, source: Source, outside: dict[str, Any], builder: BlockBuilder | None = None
    ) -> None:
        self.source = source
        self.scope = Scope(outside)
        self.evaluator = Evaluator(source, self.scope)
        self.evaluator.call_macro = self._call_macro
        self.in_module = builder is not None
        self.builder = builder or BlockBuilder()
        self.blocks: list[BindingBlock] = []
        self.symbols: dict[str, Var] = {}  # symbolic variables of the signature
        self.attrs: dict[str, Any] = {}
        self.name: str | None = None
        self.in_dataflow = False
        self.outputs: dict[str, int] | None = None  # name -> statement that assigns it last
        self.statement_index = 0

    # ---- functions

    def signature(self, node: ast.FunctionDef, pure: bool) -> FuncType:
        """The type of a function by its header; a result without annotation may be anything."""
        self.scope.push()
        params, ret = self._header(node)
        self.scope.pop()
        return FuncType([p.ty for p in params], AnyType() if ret is None else ret, pure)

    def parse(self, node: ast.FunctionDef, pure: bool, private: bool) -> Function:
        """A function of a module, or one that stands alone."""
        self.scope.push()
        params, ret = self._header(node)
        _begin(self.builder, False)
        body = self._body(node, node.body)
        self._end_block()
        if private and "global_symbol" in self.attrs:
            self.source.fail(
                node,
                "a private function has no global symbol; remove private=True or the attribute",
            )
        attrs = self.attrs
        if not private:
            attrs.setdefault("global_symbol", self.name or node.name)
        func = self._make(node, params, body, ret, pure, attrs)
        self.scope.pop()
        return func

    def _make(
        self,
        node: ast.FunctionDef,
        params: list[Var],
        body: Expr,
        ret: Type | None,
        pure: bool,
        attrs: dict[str, Any],
    ) -> Function:
        seq = SeqExpr(self.blocks, body)
        func = Function(params, seq, ret, pure, attrs, self.evaluator.span(node))
        func = _finish(self.builder, func, ret)
        return func

    def _header(self, node: ast.FunctionDef) -> tuple[list[Var], Type | None]:
        args = node.args
        if args.vararg or args.kwarg or args.kwonlyargs or args.defaults or args.posonlyargs:
            self.source.fail(
                node,
                "parameters are plain names with a type; there are no defaults, *args or **kwargs",
            )
        header = _Header(self)
        for variable in getattr(node, "type_params", []):
            header._define(variable.name)
        params: list[Var] = []
        for arg in args.args:
            if arg.annotation is None:
                self.source.fail(arg, f"parameter {arg.arg} needs a type: {arg.arg}: R.Tensor(...)")
            ty = self._type(arg.annotation, header)
            if arg.arg in self.symbols:
                self.source.fail(
                    arg,
                    f"{arg.arg} names a dimension of an earlier parameter; put the scalar parameter before it",
                )
            var = Var(arg.arg, ty, self.evaluator.span(arg))
            self.scope.define(arg.arg, var)
            params.append(var)
        header.check()
        ret = None if node.returns is None else self._type(node.returns, header)
        return params, ret

    def _type(self, node: ast.expr, header: _Header | None = None) -> Type:
        header = header or _Header(self)
        header.node = node
        value = self._header_value(node)
        try:
            return resolve_type(value, header.dim)
        except (TypeError, ValueError) as error:
            self.source.fail(node, str(error))

    def _header_value(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node = ast.copy_location(ast.parse(node.value, mode="eval").body, node)
        return self.evaluator.eval(node)

    # ---- statements

    def _body(self, owner: ast.AST, statements: list[ast.stmt]) -> Expr:
        """The statements of a function; gives its result."""
        for i, stmt in enumerate(statements):
            if isinstance(stmt, ast.Return):
                if i + 1 != len(statements):
                    self.source.fail(
                        statements[i + 1], "nothing after `return` is reached; remove it"
                    )
                return self._return(stmt)
            if isinstance(stmt, ast.With) and isinstance(stmt.body[-1], ast.Return):
                result = self._dataflow(stmt)
                if i + 1 != len(statements):
                    self.source.fail(
                        statements[i + 1], "nothing after `return` is reached; remove it"
                    )
                assert result is not None
                return result
            self._statement(stmt)
        return Tuple([])

    def _return(self, stmt: ast.Return) -> Expr:
        if stmt.value is None:
            return Tuple([])
        return self._argument(stmt, self._value(stmt.value))

    def _argument(self, node: ast.AST, value: Expr) -> Expr:
        try:
            return _normalize_argument(self.builder, value)
        except Exception as error:
            self.source.fail(node, str(error))

    def _statement(self, stmt: ast.stmt) -> None:
        handler = getattr(self, "_stmt_" + type(stmt).__name__, None)
        if handler is None:
            self.source.fail(
                stmt,
                f"`{type(stmt).__name__.lower()}` has no meaning in a function of the graph language",
            )
        handler(stmt)

    def _stmt_Pass(self, stmt: ast.Pass) -> None:
        """Nothing."""

    def _stmt_Expr(self, stmt: ast.Expr) -> None:
        value = self.evaluator.eval(stmt.value)
        if isinstance(value, _Mark):
            self._mark(stmt, value)
        elif isinstance(value, Expr) or isinstance(value, MatchCastValue):
            var = self._bind_value(stmt, "_", value, None)
            if not (isinstance(var.ty, TupleType) and len(var.ty.fields) == 0):
                self.source.fail(
                    stmt,
                    "this value is not used; assign it to a name (only void calls stand alone)",
                )
        elif value is not None and not isinstance(value, str):
            self.source.fail(
                stmt, "this expression has no meaning on its own; remove it or assign it"
            )

    def _mark(self, stmt: ast.stmt, mark: _Mark) -> None:
        if mark.mark == "func_attr":
            self.attrs.update({k: plain(v) for k, v in mark.values[0].items()})
        elif mark.mark == "func_name":
            self.name = mark.values[0]
        elif mark.mark == "output":
            self.source.fail(stmt, "R.output is the last statement of `with R.dataflow():`")
        else:
            self.source.fail(stmt, f"R.{mark.mark} has no meaning here")

    def _stmt_Return(self, stmt: ast.Return) -> None:
        self.source.fail(
            stmt,
            "`return` is the last statement of a function; a branch gives its value by assigning it",
        )

    def _stmt_Assign(self, stmt: ast.Assign) -> None:
        if len(stmt.targets) != 1:
            self.source.fail(stmt, "a = b = value is not allowed; write two assignments")
        self._assign(stmt, stmt.targets[0], stmt.value, None)

    def _stmt_AnnAssign(self, stmt: ast.AnnAssign) -> None:
        if stmt.value is None:
            self.source.fail(stmt, "a declaration needs a value: n = T.int64()")
        ty = self._type(stmt.annotation)
        self._assign(stmt, stmt.target, stmt.value, ty)

    def _stmt_AugAssign(self, stmt: ast.AugAssign) -> None:
        if not isinstance(stmt.target, ast.Name):
            self.source.fail(stmt, "only names are assigned in the graph language")
        load = ast.copy_location(ast.Name(stmt.target.id, ast.Load()), stmt.target)
        value = ast.copy_location(ast.BinOp(load, stmt.op, stmt.value), stmt)
        self._assign(stmt, stmt.target, value, None)

    def _assign(self, stmt: ast.stmt, target: ast.expr, node: ast.expr, ty: Type | None) -> None:
        if isinstance(target, ast.Tuple) and isinstance(node, ast.Tuple):
            if len(target.elts) != len(node.elts):
                self.source.fail(stmt, f"{len(target.elts)} names for {len(node.elts)} values")
            for t, v in zip(target.elts, node.elts):
                self._assign(stmt, t, v, None)
            return
        if self._declares(node) and isinstance(target, ast.Name):
            self._declare(stmt, target.id, node, ty)
            return
        value = self.evaluator.eval(node)
        if isinstance(target, ast.Tuple):
            self._unpack(stmt, target, value)
            return
        if not isinstance(target, ast.Name):
            self.source.fail(target, "only names are assigned in the graph language")
        self._assign_name(stmt, target.id, value, ty)

    def _unpack(self, stmt: ast.stmt, target: ast.Tuple, value: Any) -> None:
        if isinstance(value, Expr) and not isinstance(value, (Var, Tuple)):
            value = self._bind_value(stmt, "gv", value, None)
        try:
            parts = list(value)
        except TypeError as error:
            self.source.fail(stmt, str(error))
        if len(parts) != len(target.elts):
            self.source.fail(stmt, f"{len(target.elts)} names for {len(parts)} values")
        for t, part in zip(target.elts, parts):
            if not isinstance(t, ast.Name):
                self.source.fail(t, "only names are assigned in the graph language")
            self._assign_name(stmt, t.id, part, None)

    def _assign_name(self, stmt: ast.stmt, name: str, value: Any, ty: Type | None) -> None:
        """Binds a value of the program; anything else is a name for the parser only."""
        if hasattr(value, "meta_value"):
            self.scope.define(name, value.meta_value)
            return
        if isinstance(value, _Mark) and value.mark == "emit_te":
            if not self.in_module:
                self.source.fail(stmt, "R.emit_te adds a function; it needs a module around it")
            value = self.builder.call_te(value.values[0], *value.values[1], **value.values[2])
        is_value = isinstance(value, (Expr, MatchCastValue, tuple, list, bool, int, float, str))
        if not is_value and hasattr(value, "as_object") and not isinstance(value, DTypeName):
            value = plain(value)
            is_value = isinstance(value, Expr)
        if not is_value:
            self.scope.define(name, value)
            return
        self.scope.define(name, self._bind_value(stmt, name, value, ty))

    @staticmethod
    def _declares(node: ast.expr) -> bool:
        return isinstance(node, ast.Call) and not node.args and not node.keywords

    def _declare(self, stmt: ast.stmt, name: str, node: ast.expr, ty: Type | None) -> None:
        """n = T.int64(): the variable of the signature, or a new one for match_cast to bind."""
        assert isinstance(node, ast.Call)
        dtype = self.evaluator.eval(node.func)
        if not isinstance(dtype, DTypeName):
            self._assign_name(stmt, name, self.evaluator.eval(node), ty)
            return
        if ty is not None and ty != dtype.as_object():
            self.source.fail(stmt, f"{name} is annotated as {ty}, but declared as {dtype}")
        known = self.symbols.get(name)
        if known is not None:
            if known.ty.dtype != dtype.dtype:
                self.source.fail(
                    stmt, f"{name} is a dimension of the signature, an int64; it cannot be {dtype}"
                )
            self.scope.define(name, known)
        else:
            self.scope.define(name, Var(name, PrimType(dtype.dtype)))

    def _value(self, node: ast.expr) -> Expr:
        value = self.evaluator.eval(node)
        try:
            return to_expr(getattr(value, "meta_value", value))
        except TypeError as error:
            self.source.fail(node, str(error))

    def _bind_value(self, stmt: ast.stmt, name: str, value: Any, ty: Type | None) -> Var:
        dataflow = self.in_dataflow and not self._is_output(name)
        span = self.evaluator.span(stmt)
        try:
            if isinstance(value, MatchCastValue):
                target = resolve_type(value.ty, _Header(self).dim)
                return _bind_match_cast(
                    self.builder, to_expr(value.value), target, name, dataflow, span
                )
            if isinstance(ty, PrimType) and isinstance(value, (bool, int, float)):
                from ...tirx import const

                value = const(value, ty.dtype)
            return _bind(self.builder, to_expr(value), name, dataflow, ty, span)
        except (
            TypeError,
            ValueError,
            RuntimeError,
            IndexError,
            KeyError,
            NotImplementedError,
        ) as error:
            self.source.fail(stmt, self._without_place(str(error)))

    def _without_place(self, text: str) -> str:
        """C++ errors may carry the place already."""
        prefix = self.source.name + ":"
        if text.startswith(prefix):
            return text[len(prefix) :].split(": ", 1)[-1]
        return text

    def _is_output(self, name: str) -> bool:
        return self.outputs is not None and self.outputs.get(name) == self.statement_index

    # ---- blocks

    def _end_block(self) -> None:
        block = _end(self.builder)
        if len(block.bindings):
            self.blocks.append(block)

    def _stmt_With(self, stmt: ast.With) -> None:
        self._dataflow(stmt)

    def _dataflow(self, stmt: ast.With) -> Expr | None:
        """with R.dataflow(): ..., R.output(...); gives the result when the block returns it."""
        if len(stmt.items) != 1:
            self.source.fail(stmt, "`with` takes one item here: with R.dataflow():")
        mark = self.evaluator.eval(stmt.items[0].context_expr)
        if not isinstance(mark, _Mark) or mark.mark != "dataflow":
            self.source.fail(
                stmt, "only `with R.dataflow():` has a meaning in a function of the graph language"
            )
        if self.in_dataflow:
            self.source.fail(stmt, "dataflow blocks do not nest; remove the inner one")
        *body, last = stmt.body
        names, returns = self._output_names(last, body)
        if names is None:
            body, names = list(stmt.body), []
        self._end_block()
        _begin(self.builder, True)
        self.in_dataflow, self.outputs = True, _last_assignments(self, body, names)
        self.scope.push()
        for index, part in enumerate(body):
            self.statement_index = index
            self._statement(part)
        self._check_outputs(last, names)
        result = None
        if returns is not None:
            self.statement_index = -1
            result = self._dataflow_result(returns)
        self._end_block()
        _begin(self.builder, False)
        self.in_dataflow, self.outputs = False, None
        # What is no output ends with the block.
        for name, value in self.scope.pop().items():
            if not isinstance(value, DataflowVar):
                self.scope.define(name, value)
        if returns is not None and result is None:
            result = self._return(returns)
        return result

    def _dataflow_result(self, stmt: ast.Return) -> Expr | None:
        """A returned expression is computed in the block and is its output."""
        if stmt.value is None or isinstance(stmt.value, (ast.Name, ast.Tuple)):
            return None
        value = self._value(stmt.value)
        return _bind(self.builder, value, "gv", False, None, self.evaluator.span(stmt))

    def _output_names(
        self, last: ast.stmt, body: list[ast.stmt]
    ) -> tuple[list[str] | None, ast.Return | None]:
        if isinstance(last, ast.Return):
            found = (
                []
                if last.value is None
                else [n.id for n in ast.walk(last.value) if isinstance(n, ast.Name)]
            )
            assigned = {n for s in body for n in _assigned_names(s)}
            if not isinstance(last.value, (ast.Name, ast.Tuple)):
                found = []
            return [n for n in found if n in assigned], last
        if isinstance(last, ast.Expr) and isinstance(last.value, ast.Call):
            func = self.evaluator.eval(last.value.func)
            if getattr(func, "__name__", "") == "output" and func.__module__ == __package__.replace(
                ".parser", ".relax"
            ):
                names = []
                for arg in last.value.args:
                    if not isinstance(arg, ast.Name):
                        self.source.fail(arg, "R.output takes names that the block assigns")
                    names.append(arg.id)
                return names, None
        return None, None

    def _check_outputs(self, node: ast.stmt, names: list[str]) -> None:
        assert self.outputs is not None
        for name in names:
            if name not in self.outputs:
                self.source.fail(
                    node, f"the block does not assign {name}, so it cannot be its output"
                )

    def _stmt_If(self, stmt: ast.If) -> None:
        self._conditional(stmt)

    def _conditional(self, stmt: ast.If) -> str:
        if self.in_dataflow:
            self.source.fail(stmt, "a dataflow block has no control flow; move `if` out of it")
        cond = self._argument(stmt.test, self._value(stmt.test))
        name, then = self._branch(stmt.body)
        if not stmt.orelse:
            self.source.fail(stmt, "`if` needs an `else` that assigns the same name")
        other, otherwise = self._branch(stmt.orelse)
        if name != other:
            self.source.fail(
                stmt,
                f"the branches end by assigning different names, {name} and {other}; give both the same name",
            )
        value = If(cond, then, otherwise, self.evaluator.span(stmt))
        self.scope.define(name, self._bind_value(stmt, name, value, None))
        return name

    def _stmt_Match(self, stmt: ast.Match) -> None:
        parse_match(self, stmt)

    def _branch(
        self, statements: list[ast.stmt], names: dict[str, Any] | None = None
    ) -> tuple[str, SeqExpr]:
        """The last statement gives the branch its name and value; `names` are what it sees besides."""
        outer, self.blocks = self.blocks, []
        self.scope.push()
        for name, value in (names or {}).items():
            self.scope.define(name, value)
        _begin(self.builder, False)
        *body, last = statements
        for stmt in body:
            self._statement(stmt)
        name, value = self._branch_result(last)
        self._end_block()
        self.scope.pop()
        blocks, self.blocks = self.blocks, outer
        return name, SeqExpr(blocks, value)

    def _branch_result(self, last: ast.stmt) -> tuple[str, Expr]:
        if isinstance(last, ast.If):
            name = self._conditional(last)
            return name, self.scope.find(name)
        if isinstance(last, ast.Match):
            name = parse_match(self, last)
            return name, self.scope.find(name)
        if isinstance(last, (ast.Assign, ast.AnnAssign)):
            target = last.targets[0] if isinstance(last, ast.Assign) else last.target
            if isinstance(target, ast.Name) and last.value is not None:
                return target.id, self._branch_value(last, target.id, last.value)
        if isinstance(last, ast.Expr):
            self._statement(last)
            return "_", self._last_var(last)
        if isinstance(last, ast.With):
            self._statement(last)
            outputs = [v for v in self.scope.frames[-1].items() if isinstance(v[1], Var)]
            if outputs:
                return outputs[-1]
        self.source.fail(last, "a branch ends by assigning its value to a name")

    def _branch_value(self, last: ast.Assign | ast.AnnAssign, name: str, node: ast.expr) -> Expr:
        value = self.evaluator.eval(node)
        annotated = isinstance(last, ast.AnnAssign)
        ty = self._type(last.annotation) if isinstance(last, ast.AnnAssign) else None
        if isinstance(ty, PrimType) and isinstance(value, (bool, int, float)):
            from ...tirx import const

            return const(value, ty.dtype)
        # A value that needs no binding is the branch's result as it is.
        if _is_leaf(value) and not (annotated and _fit(ty, value.ty) != 2):
            return value
        self._assign_name(last, name, value, ty)
        return to_expr(self.scope.find(name))

    def _last_var(self, node: ast.stmt) -> Expr:
        self._end_block()
        _begin(self.builder, False)
        if not self.blocks:
            self.source.fail(node, "a branch ends by assigning its value to a name")
        return self.blocks[-1].bindings[-1].var

    # ---- functions in functions

    def _stmt_FunctionDef(self, stmt: ast.FunctionDef) -> None:
        from .module import function_kind

        kind, options = function_kind(self.evaluator, stmt)
        if kind != "function":
            self.source.fail(stmt, "only functions under @R.function stand inside of functions")
        pure = bool(options.get("pure", True))
        inner = GraphParser(self.source, self.scope.outside, self.builder)
        inner.in_module = self.in_module
        inner.scope.frames = [*self.scope.frames]
        inner.symbols = dict(self.symbols)
        ty = inner.signature(stmt, pure)
        var = Var(stmt.name, ty, self.evaluator.span(stmt))
        self.scope.define(stmt.name, var)
        inner.symbols = {}
        inner.scope.push()
        params, ret = inner._header(stmt)
        _begin(self.builder, False)
        body = inner._body(stmt, stmt.body)
        inner._end_block()
        func = inner._make(stmt, params, body, ret, pure, inner.attrs)
        recursive = any(
            isinstance(n, ast.Name) and n.id == stmt.name for s in stmt.body for n in ast.walk(s)
        )
        if not recursive:
            self.scope.define(stmt.name, self._bind_value(stmt, stmt.name, func, None))
            return
        if ret is None:
            self.source.fail(stmt, f"{stmt.name} calls itself; annotate the type of its result")
        from ...relax.expr import VarBinding

        var._update_type(func.ty)
        self.builder.emit_normalized(VarBinding(var, func))

    # ---- macros

    def _call_macro(
        self, macro: Any, node: ast.Call, args: list[Any], kwargs: dict[str, Any]
    ) -> Any:
        """The macro's statements in place of its call; its names stay its own."""
        definition = macro.macro_node
        names = [a.arg for a in definition.args.args]
        values = dict(zip(names, args), **kwargs)
        missing = [n for n in names if n not in values]
        if missing or len(args) > len(names):
            self.source.fail(node, f"macro {definition.name} takes ({', '.join(names)})")
        outer = self.source, self.scope, self.evaluator
        scope = Scope(macro.outside if macro.hygienic else self.scope.all())
        self.source, self.scope = macro.source, scope
        self.evaluator = Evaluator(macro.source, scope)
        self.evaluator.call_macro = self._call_macro
        scope.frames.append(values)
        result: Any = None
        try:
            for stmt in definition.body:
                if isinstance(stmt, ast.Return):
                    result = None if stmt.value is None else self._value(stmt.value)
                    break
                self._statement(stmt)
        finally:
            self.source, self.scope, self.evaluator = outer
        return result


def _assigned_names(stmt: ast.stmt) -> list[str]:
    targets: list[ast.expr] = []
    if isinstance(stmt, ast.Assign):
        targets = stmt.targets
    elif isinstance(stmt, (ast.AnnAssign, ast.AugAssign)):
        targets = [stmt.target]
    elif isinstance(stmt, ast.FunctionDef):
        return [stmt.name]
    return [n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)]


def _last_assignments(
    parser: GraphParser, statements: list[ast.stmt], names: list[str]
) -> dict[str, int]:
    """For each output the statement that assigns it last."""
    found: dict[str, int] = {}
    wanted = set(names)
    for index, stmt in enumerate(statements):
        for name in _assigned_names(stmt):
            if name in wanted:
                found[name] = index
    return found
