# SPDX-License-Identifier: Apache-2.0
"""Statements of the loop language."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any

import tvm_ffi
from tvm_ffi import Object

from .. import _compiler
from ..ir.base import Scriptable, plain
from ..ir.expr import Range, Var

_f = {
    name: _compiler.func(f"tirx.{name}")
    for name in (
        "BufferStore Bind AllocBuffer AssertStmt SeqStmt FlattenSeq Evaluate IfThenElse For While IterVar "
        "SBlock SBlockRealize"
    ).split()
}


class ForKind(IntEnum):
    SERIAL = 0
    PARALLEL = 1
    VECTORIZED = 2
    UNROLLED = 3
    THREAD_BINDING = 4


@tvm_ffi.register_object("relaxvm.tirx.Stmt")
class Stmt(Scriptable, Object):
    """Base of statements."""


@tvm_ffi.register_object("relaxvm.tirx.BufferStore")
class BufferStore(Stmt):
    def __init__(
        self,
        buffer: Var,
        value: Any,
        indices: Sequence[Any],
        predicate: Any = None,
        span: Any = None,
    ) -> None:
        self.__init_handle_by_constructor__(
            _f["BufferStore"],
            buffer,
            plain(value),
            [plain(i) for i in indices],
            plain(predicate),
            span,
        )


@tvm_ffi.register_object("relaxvm.tirx.Bind")
class Bind(Stmt):
    """var = value, for the statements after it."""

    def __init__(self, var: Var, value: Any, span: Any = None) -> None:
        self.__init_handle_by_constructor__(_f["Bind"], var, plain(value), span)


@tvm_ffi.register_object("relaxvm.tirx.AllocBuffer")
class AllocBuffer(Stmt):
    def __init__(self, buffer: Var, span: Any = None) -> None:
        self.__init_handle_by_constructor__(_f["AllocBuffer"], buffer, span)


@tvm_ffi.register_object("relaxvm.tirx.AssertStmt")
class AssertStmt(Stmt):
    def __init__(self, condition: Any, error_kind: str, message: str, span: Any = None) -> None:
        self.__init_handle_by_constructor__(
            _f["AssertStmt"], plain(condition), error_kind, message, span
        )


@tvm_ffi.register_object("relaxvm.tirx.SeqStmt")
class SeqStmt(Stmt):
    def __init__(self, seq: Sequence[Stmt], span: Any = None) -> None:
        self.__init_handle_by_constructor__(_f["SeqStmt"], list(seq))

    def __getitem__(self, i: int) -> Stmt:
        return self.seq[i]

    def __len__(self) -> int:
        return len(self.seq)


@tvm_ffi.register_object("relaxvm.tirx.Evaluate")
class Evaluate(Stmt):
    def __init__(self, value: Any, span: Any = None) -> None:
        self.__init_handle_by_constructor__(_f["Evaluate"], plain(value), span)


@tvm_ffi.register_object("relaxvm.tirx.IfThenElse")
class IfThenElse(Stmt):
    def __init__(
        self, condition: Any, then_case: Stmt, else_case: Stmt | None = None, span: Any = None
    ) -> None:
        self.__init_handle_by_constructor__(
            _f["IfThenElse"], plain(condition), then_case, else_case, span
        )


@tvm_ffi.register_object("relaxvm.tirx.For")
class For(Stmt):
    def __init__(
        self,
        loop_var: Var,
        min: Any,
        extent: Any,
        kind: ForKind,
        body: Stmt,
        thread_tag: str = "",
        annotations: Mapping[str, Any] | None = None,
        span: Any = None,
    ) -> None:
        self.__init_handle_by_constructor__(
            _f["For"],
            loop_var,
            plain(min),
            plain(extent),
            int(kind),
            body,
            thread_tag,
            dict(annotations or {}),
            span,
        )


@tvm_ffi.register_object("relaxvm.tirx.While")
class While(Stmt):
    def __init__(self, condition: Any, body: Stmt, span: Any = None) -> None:
        self.__init_handle_by_constructor__(_f["While"], plain(condition), body, span)


@tvm_ffi.register_object("relaxvm.tirx.IterVar")
class IterVar(Scriptable, Object):
    """An axis of a block; `kind` 0 spatial, 1 reduce, 2 opaque."""

    def __init__(self, dom: Any, var: Any, kind: int = 0) -> None:
        dom = dom if isinstance(dom, Range) else Range(*dom)
        var = Var(var, "int32") if isinstance(var, str) else var
        self.__init_handle_by_constructor__(
            _f["IterVar"], var, plain(dom.min), plain(dom.extent), int(kind)
        )

    @property
    def dom(self) -> Range:
        return Range(self.min, extent=self.extent)


@tvm_ffi.register_object("relaxvm.tirx.SBlock")
class SBlock(Stmt):
    def __init__(
        self,
        iter_vars: Sequence[IterVar],
        reads: Sequence[Any],
        writes: Sequence[Any],
        name_hint: str,
        body: Stmt,
        init: Stmt | None = None,
        alloc_buffers: Sequence[Var] = (),
        annotations: Mapping[str, Any] | None = None,
        span: Any = None,
    ) -> None:
        self.__init_handle_by_constructor__(
            _f["SBlock"],
            list(iter_vars),
            list(reads),
            list(writes),
            name_hint,
            body,
            init,
            list(alloc_buffers),
            dict(annotations or {}),
            span,
        )


@tvm_ffi.register_object("relaxvm.tirx.SBlockRealize")
class SBlockRealize(Stmt):
    def __init__(
        self, iter_values: Sequence[Any], predicate: Any, block: SBlock, span: Any = None
    ) -> None:
        self.__init_handle_by_constructor__(
            _f["SBlockRealize"], [plain(v) for v in iter_values], plain(predicate), block, span
        )


def stmt_seq(*args: Any) -> Stmt:
    """The statements one after another; nested sequences are flattened."""
    return _f["FlattenSeq"](list(args))
