# SPDX-License-Identifier: Apache-2.0
"""Tensor programs: statements of the script become statements of the loop language."""

from __future__ import annotations

import ast
from typing import Any

from ... import _compiler
from ...ir.base import plain
from ...ir.expr import Expr, Var, is_prim_expr
from ...ir.type import PointerType, PrimType, Type
from ...tirx.buffer import BufferRegion, as_indices, is_buffer
from ...tirx.function import PrimFunc
from ...tirx.op import ret as _ret
from ...tirx.stmt import (
    AllocBuffer,
    AssertStmt,
    Bind,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    IterVar,
    SBlock,
    SBlockRealize,
    Stmt,
    While,
    stmt_seq,
)
from ..tirx import DTypeName, HandleName, Mark, _LetName
from ..tirx import serial as _serial
from ..types import Annotation
from .evaluate import Evaluator, Scope, describe_error
from .source import Source

_access = _compiler.func("script.BlockAccess")
_const = _compiler.func("prim.Const")
_to_scalar = _compiler.func("prim.ToScalar")
_Range = tuple[Any, Any]


class _Handle:
    """A parameter until T.match_buffer says what it is."""

    def __init__(self, name: str, index: int) -> None:
        self.name, self.index = name, index


class _BlockFrame:
    """What the statements of a block have said about it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.iter_vars: list[IterVar] = []
        self.iter_values: list[Any] = []
        self.reads: list[BufferRegion] | None = None
        self.writes: list[BufferRegion] | None = None
        self.predicate: Any = True
        self.annotations: dict[str, Any] = {}
        self.allocs: list[Var] = []
        self.init: Stmt | None = None


class ProgramParser:
    """Parses one tensor program."""

    def __init__(self, source: Source, outside: dict[str, Any]) -> None:
        self.source = source
        self.scope = Scope({**outside, "range": _serial})
        self.evaluator = Evaluator(source, self.scope)
        self.blocks: list[_BlockFrame] = []
        self.loops: dict[Var, _Range] = {}
        self.attrs: dict[str, Any] = {}
        self.params: list[Any] = []
        self.ret: Type | None = None

    def parse(self, node: ast.FunctionDef, private: bool) -> PrimFunc:
        self.scope.push()
        self._header(node)
        if node.returns is not None:
            value = self.evaluator.eval(node.returns)
            self.ret = None if value is None else plain(value)
        body = self._body(node.body)
        for p in self.params:
            if isinstance(p, _Handle):
                self.params[p.index] = Var(p.name, PointerType(PrimType("void")))
        if not private:
            self.attrs.setdefault("global_symbol", node.name)
        elif "global_symbol" in self.attrs:
            self.source.fail(
                node, "a private program has no global symbol; remove private=True or the attribute"
            )
        self.scope.pop()
        return PrimFunc(self.params, body, self.ret, self.attrs, self.evaluator.span(node))

    def _header(self, node: ast.FunctionDef) -> None:
        args = node.args
        if args.vararg or args.kwarg or args.kwonlyargs or args.defaults:
            self.source.fail(
                node,
                "parameters are plain names with a type; there are no defaults, *args or **kwargs",
            )
        for index, arg in enumerate(args.args):
            if arg.annotation is None:
                self.source.fail(arg, f"parameter {arg.arg} needs a type: {arg.arg}: T.Buffer(...)")
            value = self.evaluator.eval(arg.annotation)
            if isinstance(value, str):
                value = self.evaluator.eval(
                    ast.copy_location(ast.parse(value, mode="eval").body, arg)
                )
            param: Any
            if isinstance(value, Mark) and value.mark == "buffer":
                param = Var(arg.arg, value.type, self.evaluator.span(arg))  # type: ignore[attr-defined]
            elif isinstance(value, HandleName):
                param = _Handle(arg.arg, index)
            else:
                ty = plain(value)
                if not isinstance(ty, Type):
                    self.source.fail(
                        arg, f"{arg.arg} is a T.Buffer, T.handle or scalar such as T.int64"
                    )
                param = Var(arg.arg, ty, self.evaluator.span(arg))
            self.scope.define(arg.arg, param)
            self.params.append(param)

    # ---- statements

    def _body(self, statements: list[ast.stmt]) -> Stmt:
        """The statements one after another, in a scope of their own."""
        parts: list[Stmt] = []
        for stmt in statements:
            parts.extend(self._statement(stmt))
        if not parts:
            return Evaluate(0)
        return parts[0] if len(parts) == 1 else stmt_seq(*parts)

    def _scoped(self, statements: list[ast.stmt]) -> Stmt:
        self.scope.push()
        body = self._body(statements)
        self.scope.pop()
        return body

    def _statement(self, stmt: ast.stmt) -> list[Stmt]:
        handler = getattr(self, "_stmt_" + type(stmt).__name__, None)
        if handler is None:
            self.source.fail(
                stmt, f"`{type(stmt).__name__.lower()}` has no meaning in a tensor program"
            )
        from ...error import DiagnosticError

        try:
            return handler(stmt) or []
        except DiagnosticError:
            raise
        except Exception as error:
            self.source.fail(stmt, describe_error(error))

    def _stmt_Pass(self, stmt: ast.Pass) -> None:
        """Nothing."""

    def _stmt_Return(self, stmt: ast.Return) -> list[Stmt]:
        """`return scalar`; results that are tensors are written to buffers."""
        if stmt.value is None or (
            isinstance(stmt.value, ast.Constant) and stmt.value.value is None
        ):
            return []
        value = plain(self.evaluator.eval(stmt.value))
        if isinstance(value, (bool, int, float)) and isinstance(self.ret, PrimType):
            value = _const(self.ret.dtype, value)
        if not isinstance(value, Expr) or not isinstance(value.ty, PrimType):
            self.source.fail(
                stmt, "a tensor program returns a scalar or nothing; write tensors to buffers"
            )
        if self.ret is None:
            self.ret = value.ty
        if value.ty != self.ret:
            self.source.fail(
                stmt,
                f"the program returns {getattr(self.ret, 'dtype', self.ret)}, "
                f"but this value is of {value.ty.dtype}; cast it",
            )
        return [Evaluate(_ret(value), self.evaluator.span(stmt))]

    def _stmt_Expr(self, stmt: ast.Expr) -> list[Stmt]:
        value = self.evaluator.eval(stmt.value)
        if isinstance(value, Stmt):
            return [value]
        if isinstance(value, Mark):
            return self._mark(stmt, value)
        if isinstance(value, Expr):
            return [Evaluate(value, self.evaluator.span(stmt))]
        if value is None or isinstance(value, str):
            return []
        self.source.fail(stmt, "this expression has no meaning on its own; remove it or assign it")

    def _mark(self, stmt: ast.stmt, mark: Any) -> list[Stmt]:
        span = self.evaluator.span(stmt)
        if mark.mark == "func_attr":
            self.attrs.update({k: plain(v) for k, v in mark.values.items()})
            return []
        if mark.mark == "evaluate":
            return [Evaluate(mark.value, span)]
        if mark.mark == "assert":
            return [AssertStmt(mark.condition, mark.error_kind, mark.message, span)]
        if mark.mark not in ("where", "reads", "writes", "sblock_attr"):
            self.source.fail(
                stmt, f"T.{mark.mark}(...) must be assigned to a name or used as a header"
            )
        if not self.blocks:
            self.source.fail(stmt, f"T.{mark.mark} belongs into a block: with T.sblock(...):")
        frame = self.blocks[-1]
        if mark.mark == "where":
            frame.predicate = mark.predicate
        elif mark.mark == "reads":
            frame.reads = mark.regions
        elif mark.mark == "writes":
            frame.writes = mark.regions
        else:
            frame.annotations.update({k: plain(v) for k, v in mark.values.items()})
        return []

    # ---- assignments

    def _stmt_Assign(self, stmt: ast.Assign) -> list[Stmt]:
        if len(stmt.targets) != 1:
            self.source.fail(stmt, "a = b = value is not allowed; write two assignments")
        return self._assign(stmt, stmt.targets[0], self.evaluator.eval(stmt.value))

    def _stmt_AugAssign(self, stmt: ast.AugAssign) -> list[Stmt]:
        load = ast.parse(ast.unparse(stmt.target), mode="eval").body
        for part in ast.walk(load):
            if isinstance(part, ast.expr):
                ast.copy_location(part, stmt.target)
        value = self.evaluator.eval(ast.copy_location(ast.BinOp(load, stmt.op, stmt.value), stmt))
        return self._assign(stmt, stmt.target, value)

    def _stmt_AnnAssign(self, stmt: ast.AnnAssign) -> list[Stmt]:
        if not isinstance(stmt.target, ast.Name):
            self.source.fail(stmt, "only names have an annotation")
        annotation = self.evaluator.eval(stmt.annotation)
        if stmt.value is None:
            value: Any = annotation() if isinstance(annotation, DTypeName) else annotation
            return self._assign_name(stmt, stmt.target.id, value)
        value = plain(self.evaluator.eval(stmt.value))
        if isinstance(annotation, _LetName):
            value = _to_scalar(value, Var("v", "int32").ty.dtype)
            ty: Any = value.ty
        else:
            ty = plain(annotation)
        if not isinstance(ty, Type):
            self.source.fail(stmt.annotation, "expected a type such as T.int32")
        if isinstance(value, (bool, int, float)) and isinstance(ty, PrimType):
            value = _const(ty.dtype, value)
        if not isinstance(value, Expr):
            self.source.fail(stmt, "the value must be a scalar expression")
        if value.ty is not None and value.ty != ty:
            self.source.fail(
                stmt, f"{stmt.target.id} is annotated as {ty}, but the value has type {value.ty}"
            )
        var = Var(stmt.target.id, ty)
        self.scope.define(stmt.target.id, var)
        return [Bind(var, value, self.evaluator.span(stmt))]

    def _assign(self, stmt: ast.stmt, target: ast.expr, value: Any) -> list[Stmt]:
        if isinstance(target, ast.Subscript):
            return [self._store(stmt, target, value)]
        if isinstance(target, ast.Name):
            if isinstance(value, list) and len(value) == 1 and isinstance(value[0], Mark):
                value = value[0]
            return self._assign_name(stmt, target.id, value)
        if isinstance(target, (ast.Tuple, ast.List)):
            values = list(value)
            if len(values) != len(target.elts):
                self.source.fail(stmt, f"{len(target.elts)} names for {len(values)} values")
            return [s for t, v in zip(target.elts, values) for s in self._assign(stmt, t, v)]
        self.source.fail(target, "this cannot be assigned to")

    def _store(self, stmt: ast.stmt, target: ast.Subscript, value: Any) -> Stmt:
        buffer = self.evaluator.eval(target.value)
        if not is_buffer(buffer):
            self.source.fail(target, "only buffers are assigned by index")
        indices = as_indices(self.evaluator.eval(target.slice))
        if len(indices) != len(buffer.ty.shape):
            self.source.fail(
                target,
                f"buffer {buffer.name} has {len(buffer.ty.shape)} dimensions and is indexed with {len(indices)}",
            )
        value = plain(value)
        if isinstance(value, (bool, int, float)):
            value = _const(buffer.ty.dtype, value)
        return BufferStore(buffer, value, indices, None, self.evaluator.span(stmt))

    def _assign_name(self, stmt: ast.stmt, name: str, value: Any) -> list[Stmt]:
        if hasattr(value, "meta_value"):
            self.scope.define(name, value.meta_value)
            return []
        if isinstance(value, Mark):
            return self._assign_mark(stmt, name, value)
        value = plain(value) if not isinstance(value, (DTypeName, Annotation)) else value
        if isinstance(value, Var) and not self._is_known(value):
            value = Var(name, value.ty)  # n = T.int64()
        if isinstance(value, Var) or not is_prim_expr(value):
            self.scope.define(name, value)
            return []
        var = Var(name, value.ty)
        self.scope.define(name, var)
        return [Bind(var, value, self.evaluator.span(stmt))]

    def _is_known(self, var: Var) -> bool:
        return any(
            var.same_as(v) for f in self.scope.frames for v in f.values() if isinstance(v, Var)
        ) or any(var.same_as(v) for v in self.scope.outside.values() if isinstance(v, Var))

    def _assign_mark(self, stmt: ast.stmt, name: str, mark: Any) -> list[Stmt]:
        span = self.evaluator.span(stmt)
        if mark.mark == "axis":
            self._axis(stmt, name, mark)
            return []
        if mark.mark not in ("alloc", "match_buffer", "buffer"):
            self.source.fail(stmt, f"T.{mark.mark}(...) cannot be assigned to a name")
        buffer = Var(name, mark.type, span)
        self.scope.define(name, buffer)
        if mark.mark == "match_buffer":
            if not isinstance(mark.param, _Handle):
                self.source.fail(stmt, "T.match_buffer takes a parameter annotated with T.handle")
            if self.params[mark.param.index] is not mark.param:
                self.source.fail(stmt, f"{mark.param.name} has been matched already")
            self.params[mark.param.index] = buffer
        elif mark.mark == "alloc":
            if mark.in_block and self.blocks:
                self.blocks[-1].allocs.append(buffer)
            else:
                return [AllocBuffer(buffer, span)]
        return []

    def _axis(self, stmt: ast.stmt, name: str, mark: Any) -> None:
        if not self.blocks:
            self.source.fail(stmt, "axes belong into a block: with T.sblock(...):")
        value = plain(mark.value)
        if mark.domain is None:
            if not isinstance(value, Var) or value not in self.loops:
                self.source.fail(
                    stmt,
                    "T.axis.remap takes variables of enclosing loops; use T.axis.spatial(extent, value)",
                )
            low, extent = self.loops[value]
            dtype = value.ty.dtype
        else:
            low, extent = plain(mark.domain.min), plain(mark.domain.extent)
            dtype = mark.dtype or _index_dtype(extent, low, value)
        var = Var(name, PrimType(str(dtype)))
        self.scope.define(name, var)
        frame = self.blocks[-1]
        frame.iter_vars.append(_iter_var(var, low, extent, mark.kind))
        frame.iter_values.append(value)

    # ---- control

    def _stmt_For(self, stmt: ast.For) -> list[Stmt]:
        if stmt.orelse:
            self.source.fail(stmt, "`else` of a loop has no meaning here")
        mark: Any = self.evaluator.eval(stmt.iter)
        if not isinstance(mark, Mark) or mark.mark != "loop":
            self.source.fail(
                stmt.iter,
                "loops run over range, T.grid, T.serial, T.parallel, T.vectorized, T.unroll or T.thread_binding",
            )
        many = isinstance(stmt.target, (ast.Tuple, ast.List))
        targets = list(stmt.target.elts) if many else [stmt.target]  # type: ignore[attr-defined]
        whole = not many and len(mark.ranges) > 1
        if not whole and len(targets) != len(mark.ranges):
            self.source.fail(stmt.target, f"{len(targets)} variables for {len(mark.ranges)} loops")
        self.scope.push()
        loops: list[tuple[Var, Any, Any]] = []
        for i, (low, extent) in enumerate(mark.ranges):
            target = targets[0] if whole else targets[i]
            if not isinstance(target, ast.Name):
                self.source.fail(target, "a loop variable is a name")
            dtype = mark.dtype or _index_dtype(extent, low)
            var = Var(f"{target.id}_{i}" if whole else target.id, PrimType(str(plain(dtype))))
            loops.append((var, plain(low), plain(extent)))
            if not whole:
                self.scope.define(target.id, var)
        if whole:
            self.scope.define(targets[0].id, [v for v, _, _ in loops])  # type: ignore[attr-defined]
        for var, low, extent in loops:
            self.loops[var] = (low, extent)
        body = self._body(stmt.body)
        self.scope.pop()
        span = self.evaluator.span(stmt)
        for var, low, extent in reversed(loops):
            body = For(var, low, extent, mark.kind, body, mark.thread, mark.annotations, span)
        return [body]

    def _stmt_While(self, stmt: ast.While) -> list[Stmt]:
        condition = plain(self.evaluator.eval(stmt.test))
        return [While(condition, self._scoped(stmt.body), self.evaluator.span(stmt))]

    def _stmt_If(self, stmt: ast.If) -> list[Stmt]:
        condition = plain(self.evaluator.eval(stmt.test))
        if isinstance(condition, (bool, int)):
            chosen = stmt.body if condition else stmt.orelse
            return [self._scoped(chosen)] if chosen else []
        then = self._scoped(stmt.body)
        otherwise = self._scoped(stmt.orelse) if stmt.orelse else None
        return [IfThenElse(condition, then, otherwise, self.evaluator.span(stmt))]

    def _stmt_Assert(self, stmt: ast.Assert) -> list[Stmt]:
        condition = plain(self.evaluator.eval(stmt.test))
        message = "" if stmt.msg is None else self.evaluator.eval(stmt.msg)
        kind = "RuntimeError"
        if isinstance(message, tuple):
            kind, message = message
        return [AssertStmt(condition, kind, message, self.evaluator.span(stmt))]

    def _stmt_With(self, stmt: ast.With) -> list[Stmt]:
        marks = [self.evaluator.eval(item.context_expr) for item in stmt.items]
        if (
            len(marks) != 1
            or not isinstance(marks[0], Mark)
            or marks[0].mark not in ("sblock", "init")
        ):
            self.source.fail(stmt, "`with` takes T.sblock(...) or T.init() in a tensor program")
        if marks[0].mark == "init":
            if not self.blocks:
                self.source.fail(stmt, "T.init() belongs into a block: with T.sblock(...):")
            self.blocks[-1].init = self._scoped(stmt.body)
            return []
        return [self._block(stmt, marks[0].name)]  # type: ignore[attr-defined]

    def _block(self, stmt: ast.With, name: str) -> Stmt:
        frame = _BlockFrame(name)
        self.blocks.append(frame)
        body = self._scoped(stmt.body)
        self.blocks.pop()
        reads, writes = frame.reads, frame.writes
        if reads is None or writes is None:
            found = _access(frame.init, body, frame.allocs)
            reads = list(found[0]) if reads is None else reads
            writes = list(found[1]) if writes is None else writes
        span = self.evaluator.span(stmt)
        block = SBlock(
            frame.iter_vars,
            reads,
            writes,
            name,
            body,
            frame.init,
            frame.allocs,
            frame.annotations,
            span,
        )
        return SBlockRealize(frame.iter_values, frame.predicate, block, span)


_iter_var_maker = _compiler.func("tirx.IterVar")


def _iter_var(var: Var, low: Any, extent: Any, kind: int) -> IterVar:
    return _iter_var_maker(var, low, extent, kind)


def _index_dtype(*values: Any) -> Any:
    """The dtype of an index: that of the first expression among `values`, else int32."""
    for v in values:
        v = plain(v)
        if isinstance(v, Expr) and isinstance(v.ty, PrimType):
            return v.ty.dtype
    return "int32"
