# SPDX-License-Identifier: Apache-2.0
"""T: the loop language.  All scalar functions are here by name, besides what is written below."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import tvm_ffi

from .. import _compiler
from ..ir.base import plain
from ..ir.expr import Call, Expr, Range, Var
from ..ir.expr import FloatImm as FloatImm
from ..ir.expr import IntImm as IntImm
from ..ir.type import PointerType, PrimType
from ..tirx import op as _op
from ..tirx.buffer import BufferLoad, BufferRegion, BufferType
from ..tirx.calls import call_extern as call_extern
from ..tirx.calls import call_intrin as call_intrin
from ..tirx.calls import call_packed as call_packed
from ..tirx.calls import call_pure_extern as call_pure_extern
from ..tirx.expr import EQ as EQ
from ..tirx.expr import GE as GE
from ..tirx.expr import GT as GT
from ..tirx.expr import LE as LE
from ..tirx.expr import LT as LT
from ..tirx.expr import NE as NE
from ..tirx.expr import Add as Add
from ..tirx.expr import And as And
from ..tirx.expr import Broadcast as Broadcast
from ..tirx.expr import Cast as Cast
from ..tirx.expr import Div as Div
from ..tirx.expr import FloorDiv as FloorDiv
from ..tirx.expr import FloorMod as FloorMod
from ..tirx.expr import Intrin
from ..tirx.expr import Let as _LetExpr
from ..tirx.expr import Max as Max
from ..tirx.expr import Min as Min
from ..tirx.expr import Mod as Mod
from ..tirx.expr import Mul as Mul
from ..tirx.expr import Not as Not
from ..tirx.expr import Or as Or
from ..tirx.expr import Ramp as Ramp
from ..tirx.expr import Select as Select
from ..tirx.expr import Shuffle as Shuffle
from ..tirx.expr import Sub as Sub
from ..tirx.index_map import IndexMap
from ..tirx.stmt import BufferStore, ForKind
from .ir import meta_var as meta_var

_region = _compiler.func("tirx.BufferRegion")
_const = _compiler.func("prim.Const")
_binary = _compiler.func("prim.Binary")


def prim_func(
    f: Any = None, private: bool = False, check_well_formed: bool = True, s_tir: bool = False
) -> Any:
    """Decorates a tensor program."""
    from .parser.entry import parse_function

    options = {"private": private}
    if f is not None:
        return parse_function(f, sys._getframe(1), "prim_func", options)
    return lambda g: parse_function(g, sys._getframe(1), "prim_func", options)


prim_func.script_kind = "prim_func"  # type: ignore[attr-defined]


# ---- element types: T.int64 is a type; T.int64() a variable; T.int64(3) an immediate


class DTypeName:
    """T.int64 and its kin."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.dtype = tvm_ffi.dtype(name)

    def __call__(self, value: Any = None, name: str = "v", is_size_var: bool = False) -> Expr:
        """A variable without `value`; else `value` as this type."""
        if value is None:
            return Var(name, PrimType(self.dtype))
        value = plain(value)
        if isinstance(value, str):
            value = float(value)
        if isinstance(value, Expr):
            return _op.cast(self.dtype, value)
        return _const(self.dtype, value.item() if hasattr(value, "item") else value)

    def as_object(self) -> PrimType:
        return PrimType(self.dtype)

    def __repr__(self) -> str:
        return f"T.{self.name}"


def _dtype_names() -> list[str]:
    lanes = ("", "x2", "x4", "x8", "x16", "x32", "x64")
    bases = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
    bases += ["float16", "float32", "float64", "bfloat16"]
    small = [
        "float8_e4m3fn",
        "float8_e5m2",
        "float8_e4m3fnuz",
        "float8_e5m2fnuz",
        "float8_e8m0fnu",
        "float4_e2m1fn",
    ]
    return [b + n for b in [*bases, "bool"] for n in lanes] + small


for _name in _dtype_names():
    globals()[_name] = DTypeName(_name)
boolean = DTypeName("bool")


class HandleName:
    """T.handle: a parameter that T.match_buffer names, or a pointer type."""

    def __call__(self, dtype: Any = None, storage_scope: str = "global", **_other: Any) -> Any:
        if dtype is None:
            return self
        return PointerType(PrimType(str(plain(dtype))), storage_scope)

    def as_object(self) -> PrimType:
        return PrimType("handle")


handle = HandleName()
void = None


# ---- what the parser reads: marks made by calls below


class Mark:
    """A statement, loop or block header; `kind` says which."""

    def __init__(self, mark: str, /, **fields: Any) -> None:
        self.mark = mark
        self.__dict__.update(fields)

    def __enter__(self) -> Any:
        raise RuntimeError(
            f"T.{self.mark} has meaning only inside of a function under @T.prim_func"
        )

    def __exit__(self, *error: object) -> None:
        """See __enter__."""


def _dtype_text(dtype: Any) -> str:
    return (
        dtype.name if isinstance(dtype, DTypeName) else str(getattr(plain(dtype), "dtype", dtype))
    )


def _buffer_type(
    shape: Any,
    dtype: Any,
    strides: Any,
    elem_offset: Any,
    scope: str,
    align: int,
) -> BufferType:
    dims = [shape] if isinstance(shape, (int, Expr)) else list(shape)
    align = align if align and align > 0 else 64
    return BufferType(
        _dtype_text(dtype), dims, scope or "global", strides or (), elem_offset, align
    )


def Buffer(
    shape: Any,
    dtype: Any = "float32",
    data: Any = None,
    strides: Any = None,
    elem_offset: Any = None,
    scope: str = "global",
    align: int = 0,
    **_other: Any,
) -> Mark:
    """A buffer: as an annotation of a parameter, or a declaration."""
    return Mark("buffer", type=_buffer_type(shape, dtype, strides, elem_offset, scope, align))


buffer = Buffer
decl_buffer = Buffer


def match_buffer(
    param: Any,
    shape: Any = None,
    dtype: Any = "float32",
    data: Any = None,
    strides: Any = None,
    elem_offset: Any = None,
    scope: str = "global",
    align: int = 0,
    **_other: Any,
) -> Mark:
    """The buffer that a T.handle parameter stands for."""
    if isinstance(param, (BufferRegion, BufferLoad)):
        raise NotImplementedError(
            "T.match_buffer of a part of a buffer is not supported; index the buffer itself"
        )
    kind = _buffer_type(shape, dtype, strides, elem_offset, scope, align)
    return Mark("match_buffer", param=param, type=kind)


def alloc_buffer(
    shape: Any,
    dtype: Any = "float32",
    data: Any = None,
    strides: Any = None,
    elem_offset: Any = None,
    scope: str = "global",
    align: int = 0,
    **_other: Any,
) -> Mark:
    """Memory for the statements after it."""
    kind = _buffer_type(shape, dtype, strides, elem_offset, scope, align)
    return Mark("alloc", type=kind, in_block=False)


def sblock_alloc_buffer(*args: Any, **kwargs: Any) -> Mark:
    """Memory that belongs to the block it is written in."""
    mark = alloc_buffer(*args, **kwargs)
    mark.in_block = True  # type: ignore[attr-defined]
    return mark


def _loop(kind: ForKind) -> Any:
    def loop(
        start: Any,
        stop: Any = None,
        *,
        extent: Any = None,
        annotations: Mapping[str, Any] | None = None,
        thread: str = "",
        dtype: Any = None,
        step: Any = None,
    ) -> Mark:
        if step is not None and step != 1:
            raise NotImplementedError("loops step by 1; multiply the variable instead")
        between = Range(start, stop, extent=extent)
        return Mark(
            "loop",
            ranges=[(between.min, between.extent)],
            kind=kind,
            annotations=dict(annotations or {}),
            thread=thread,
            dtype=dtype,
        )

    return loop


serial, parallel = _loop(ForKind.SERIAL), _loop(ForKind.PARALLEL)
vectorized, unroll = _loop(ForKind.VECTORIZED), _loop(ForKind.UNROLLED)
thread_binding = _loop(ForKind.THREAD_BINDING)


def grid(*extents: Any) -> Mark:
    """Nested plain loops."""
    ranges = []
    for e in extents:
        ranges.append((e[0], Range(*e).extent) if isinstance(e, tuple) else (0, e))
    return Mark("loop", ranges=ranges, kind=ForKind.SERIAL, annotations={}, thread="", dtype=None)


def sblock(name: str = "", **_other: Any) -> Mark:
    """What one iteration does, with its axes."""
    return Mark("sblock", name=name)


block = sblock


def init() -> Mark:
    """What runs before the first iteration of a reduction."""
    return Mark("init")


def where(predicate: Any) -> Mark:
    """The block runs only where this holds."""
    return Mark("where", predicate=plain(predicate))


def _as_region(value: Any) -> BufferRegion:
    if isinstance(value, BufferRegion):
        return value
    if isinstance(value, BufferLoad):
        ones = [_const(i.ty.dtype, 1) for i in value.indices]
        return _region(value.buffer, list(value.indices), ones)
    if isinstance(value, Var) and isinstance(value.ty, BufferType):
        return value.full_region()
    raise TypeError(f"expected a part of a buffer, such as A[i, 0:4], got {value!r}")


def _as_regions(values: Sequence[Any]) -> list[BufferRegion]:
    if len(values) == 1 and isinstance(values[0], (list, tuple)):
        values = values[0]
    return [_as_region(v) for v in values]


def reads(*regions: Any) -> Mark:
    """Which elements the block reads."""
    return Mark("reads", regions=_as_regions(regions))


def writes(*regions: Any) -> Mark:
    """Which elements the block writes."""
    return Mark("writes", regions=_as_regions(regions))


def region(buffer: Var, mins: Sequence[Any], extents: Sequence[Any]) -> BufferRegion:
    """A part of a buffer by its starts and extents."""
    return _region(buffer, [plain(m) for m in mins], [plain(e) for e in extents])


def sblock_attr(attrs: Mapping[str, Any]) -> Mark:
    """Annotations of the block."""
    return Mark("sblock_attr", values=dict(attrs))


block_attr = sblock_attr


class axis:
    """Axes of a block."""

    @staticmethod
    def remap(kinds: str, bindings: Sequence[Any]) -> list[Mark]:
        """Axes that run over whole enclosing loops; "S" spatial, "R" reduce."""
        bindings = list(bindings) if isinstance(bindings, (list, tuple)) else [bindings]
        if len(kinds) != len(bindings):
            raise ValueError(
                f'T.axis.remap: "{kinds}" names {len(kinds)} axes, {len(bindings)} loops are given'
            )
        for k in kinds:
            if k not in "SR":
                raise ValueError(f"T.axis.remap: an axis is S (spatial) or R (reduce), not {k}")
        return [
            Mark("axis", kind="SR".index(k), domain=None, value=b, dtype=None)
            for k, b in zip(kinds, bindings)
        ]

    @staticmethod
    def _axis(kind: int, domain: Any, value: Any, dtype: Any) -> Mark:
        if isinstance(domain, (tuple, list)):
            domain = Range(*domain)
        elif not isinstance(domain, Range):
            domain = Range(domain)
        return Mark("axis", kind=kind, domain=domain, value=plain(value), dtype=dtype)

    @staticmethod
    def spatial(domain: Any, value: Any, dtype: Any = None) -> Mark:
        """An axis whose iterations are independent."""
        return axis._axis(0, domain, value, dtype)

    @staticmethod
    def reduce(domain: Any, value: Any, dtype: Any = None) -> Mark:
        """An axis along which elements accumulate."""
        return axis._axis(1, domain, value, dtype)

    @staticmethod
    def opaque(domain: Any, value: Any, dtype: Any = None) -> Mark:
        return axis._axis(2, domain, value, dtype)

    S, R = spatial, reduce


def func_attr(attrs: Mapping[str, Any]) -> Mark:
    """Attributes of the program."""
    return Mark("func_attr", values=dict(attrs))


def evaluate(value: Any) -> Mark:
    """Computes `value` for its effect."""
    return Mark("evaluate", value=plain(value))


def buffer_store(
    buffer: Var, value: Any, indices: Sequence[Any], predicate: Any = None
) -> BufferStore:
    """buffer[indices] = value"""
    return BufferStore(buffer, value, indices, predicate)


class _LetName:
    """`x: T.let = value` binds as `x: T.int32 = value` does, with the value's type."""

    def __getitem__(self, _ty: Any) -> _LetName:
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return Let(*args, **kwargs)


let = _LetName()


def Let(expr: Any, where: Mapping[Any, Any] | None = None) -> Any:
    """`expr`, in which the variables of `where` have the given values."""
    for var, value in reversed(list((where or {}).items())):
        expr = _LetExpr(var, value, expr)
    return expr


def Assert(condition: Any, message: str, error_kind: str = "RuntimeError") -> Mark:
    return Mark("assert", condition=plain(condition), message=message, error_kind=error_kind)


# ---- expressions


def _exact(op: int) -> Any:
    """The very node, not folded: as the printer writes it."""
    return lambda a, b: _binary(op, plain(a), plain(b))


bitwise_and, bitwise_or, bitwise_xor, shift_left, shift_right = map(_exact, range(17, 22))


def assume(condition: Any) -> Expr:
    """Says that a condition always holds."""
    return Intrin("likely", [plain(condition)])


def iter_var(var: Any, dom: Any, iter_type: str, thread_tag: str = "") -> Any:
    raise NotImplementedError("T.iter_var is not supported; write T.thread_binding loops")


def attr(*_args: Any) -> Any:
    raise NotImplementedError("T.attr is not supported; set attributes of the function or of loops")


launch_thread = attr
target = str


def index_map(
    mapping: Any, *, inverse_index_map: Any = None, index_dtype: str = "int64"
) -> IndexMap:
    """Where each element goes in another layout: a function of a place that gives a place."""
    return IndexMap.from_func(mapping, inverse_index_map=inverse_index_map, index_dtype=index_dtype)


def _install() -> None:
    names = globals()
    for name in _op.NAMES:
        names.setdefault(name, getattr(_op, name))


_install()

__all__ = [n for n in dir() if not n.startswith("_")]
