# SPDX-License-Identifier: Apache-2.0
"""Writes tensor programs statement by statement, so that programs share their parts as Python functions."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from relaxvm import tirx
from relaxvm.tirx import ForKind, PrimType, Stmt, Var

SERIAL, PARALLEL = ForKind.SERIAL, ForKind.PARALLEL
VECTORIZED, UNROLLED = ForKind.VECTORIZED, ForKind.UNROLLED


def cast(dtype: str, value: Any) -> Any:
    """The value as another dtype; itself when it has it."""
    if isinstance(value, (int, float)):
        return tirx.const(value, dtype)
    return value if str(value.ty.dtype) == dtype else tirx.Cast(dtype, value)


def index(value: Any) -> Any:
    """The value as an index: 64 bits, since a cache may have more than 2^31 elements."""
    return cast("int64", value)


class Memory:
    """A buffer that is read and written by index."""

    def __init__(self, program: Program, var: Var) -> None:
        self.program, self.var = program, var
        self.dtype = str(var.ty.dtype)

    def __getitem__(self, at: Any) -> Any:
        return self.var[at]

    def __setitem__(self, at: Any, value: Any) -> None:
        indices = list(at) if isinstance(at, tuple) else [at]
        self.program.add(tirx.BufferStore(self.var, cast(self.dtype, value), indices))


class Program:
    """Parameters, then statements in the order of the calls."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.params: list[Var] = []
        self._blocks: list[list[Stmt]] = [[]]

    # ---- parameters

    def size(self, name: str) -> Var:
        """A dimension that is known when the program runs."""
        return Var(name, PrimType("int64"))

    def buffer(self, name: str, shape: Sequence[Any], dtype: str) -> Memory:
        var = tirx.decl_buffer(shape, dtype, name)
        self.params.append(var)
        return Memory(self, var)

    def scalar(self, name: str, dtype: str) -> Var:
        var = Var(name, PrimType(dtype))
        self.params.append(var)
        return var

    # ---- statements

    def add(self, stmt: Stmt) -> None:
        self._blocks[-1].append(stmt)

    def let(self, name: str, value: Any) -> Var:
        """A name for a value that is computed here, once."""
        var = Var(name, value.ty)
        self.add(tirx.Bind(var, value))
        return var

    def local(self, name: str, shape: Sequence[int], dtype: str = "float32") -> Memory:
        """Memory for the statements after it in this block."""
        var = tirx.decl_buffer(shape, dtype, name)
        self.add(tirx.AllocBuffer(var))
        return Memory(self, var)

    @contextlib.contextmanager
    def loop(self, name: str, extent: Any, kind: ForKind = SERIAL) -> Iterator[Var]:
        var = Var(name, PrimType("int64"))
        self._blocks.append([])
        yield var
        body = self._take()
        self.add(tirx.For(var, tirx.const(0, "int64"), index(extent), kind, body))

    @contextlib.contextmanager
    def when(self, condition: Any) -> Iterator[None]:
        self._blocks.append([])
        yield
        self.add(tirx.IfThenElse(condition, self._take()))

    @contextlib.contextmanager
    def either(self, condition: Any) -> Iterator[Any]:
        """`with p.either(c) as otherwise: ...; otherwise(); ...` runs the part before or the one after."""
        self._blocks.append([])
        parts: list[Stmt] = []

        def otherwise() -> None:
            parts.append(self._take())
            self._blocks.append([])

        yield otherwise
        last = self._take()
        self.add(tirx.IfThenElse(condition, parts[0], last))

    def _take(self) -> Stmt:
        block = self._blocks.pop()
        return tirx.stmt_seq(*block) if block else tirx.Evaluate(0)

    def build(self) -> tirx.PrimFunc:
        assert len(self._blocks) == 1
        body = tirx.stmt_seq(*self._blocks[0])
        return tirx.PrimFunc(self.params, body, None, {"global_symbol": self.name})


def ceildiv(a: Any, b: int) -> Any:
    return (a + (b - 1)) // b


def lanes(size: int, most: int = 32) -> int:
    """Elements that are worked on at once: the largest power of two that divides a size."""
    width = most
    while size % width:
        width //= 2
    return width
