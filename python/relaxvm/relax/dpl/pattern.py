# SPDX-License-Identifier: Apache-2.0
"""Nodes of patterns.  A node that stands in several places must match the same value in all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import tvm_ffi
from tvm_ffi import Object

from ... import _compiler
from ...ir.base import plain
from ...ir.expr import Op
from ..expr import prim_value

if TYPE_CHECKING:
    from .context import PatternContext

_pattern = _compiler.func("relax.dpl.Pattern")
_extract = _compiler.func("relax.dpl.Extract")

# The order of analysis::PatternKind.
_KINDS = (
    "Wildcard Expr Var DataflowVar GlobalVar Constant ExternFunc Call PrimArr Function Tuple UnorderedTuple "
    "TupleGetItem And Or Not Type Shape DataType Attr"
).split()


@tvm_ffi.register_object("relaxvm.relax.dpl.DFPattern")
class DFPattern(Object):
    """Base of pattern nodes; their operators build larger patterns."""

    __slots__ = ("__dict__",)

    def _build(
        self,
        kind: str,
        parts: Sequence[DFPattern] = (),
        value: Any = None,
        name: str = "",
        number: int = -1,
    ) -> None:
        parts = list(parts)
        for part in parts:
            if not isinstance(part, DFPattern):
                raise TypeError(f"a pattern is made of patterns, got {part!r}; use wildcard()")
        self.__init_handle_by_constructor__(
            _pattern, _KINDS.index(kind), parts, value, name, number
        )

    def __call__(
        self, *args: DFPattern, varg_default_wildcard: bool = False, add_constraint: bool = True
    ) -> CallPattern:
        """A call of what this matches; more arguments may follow when `varg_default_wildcard`.  Inside of a
        PatternContext the call is a node of its graph, unless `add_constraint` is False."""
        return CallPattern(self, list(args), varg_default_wildcard, add_constraint)

    def __or__(self, other: DFPattern) -> OrPattern:
        return OrPattern(self, other)

    def __and__(self, other: DFPattern) -> AndPattern:
        return AndPattern(self, other)

    def __invert__(self) -> NotPattern:
        return NotPattern(self)

    def has_attr(self, attrs: Mapping[str, Any]) -> AttrPattern:
        """The same, with these attributes of a call or function."""
        return AttrPattern(self, attrs)

    def has_ty(self, ty: Any) -> TypePattern:
        """The same, of a type that fits `ty`."""
        return TypePattern(self, ty)

    def has_dtype(self, dtype: Any) -> DataTypePattern:
        """The same, with this element type."""
        return DataTypePattern(self, dtype)

    def has_shape(self, shape: Sequence[Any]) -> ShapePattern:
        """The same, with these dimensions."""
        return ShapePattern(self, shape)

    def optional(self, option: Any) -> OrPattern:
        """This, or what `option` makes of it."""
        return self | option(self)

    def match(self, expr: Any, var2val: Mapping[Any, Any] | None = None) -> bool:
        """Does it fit `expr`?  `var2val` says what variables are bound to."""
        return self.extract_matched_expr(expr, var2val) is not None

    def extract_matched_expr(
        self, expr: Any, var2val: Mapping[Any, Any] | None = None
    ) -> dict[DFPattern, Any] | None:
        """What each node matched; None when the pattern does not fit."""
        found = _extract(self, plain(expr), None if var2val is None else dict(var2val))
        return None if found is None else dict(found.items())

    def has_same_shape_as(self, *others: DFPattern) -> DFPattern:
        """In the current context: all of them have one shape."""
        from .context import PatternContext

        PatternContext.require().add_same_shape([self, *others])
        return self

    same_shape_as = has_same_shape_as

    def dup(self) -> DFPattern:
        """A node of its own with the same meaning."""
        copy = DFPattern.__new__(type(self))
        copy.__init_handle_by_constructor__(
            _pattern, self._kind, list(self._parts), self._value, self._name, self._number
        )
        return copy

    def used_by(self, other: DFPattern | PatternSeq, index: int = -1) -> PatternSeq:
        """In the current context: what this matches is used by what `other` matches, as argument `index`."""
        return PatternSeq([self]).used_by(other, index)

    def only_used_by(self, other: DFPattern | PatternSeq, index: int = -1) -> PatternSeq:
        """The same, and by nothing else of the block."""
        return PatternSeq([self]).only_used_by(other, index)

    def fork_to(self, *items: DFPattern | PatternSeq) -> None:
        """What this matches is used by each of them."""
        for item in items:
            self.used_by(item)

    def __xor__(self, other: DFPattern | PatternSeq) -> PatternSeq:
        return self.used_by(other)

    def __rshift__(self, other: DFPattern | PatternSeq) -> PatternSeq:
        return self.only_used_by(other)


class WildcardPattern(DFPattern):
    """Anything."""

    def __init__(self) -> None:
        self._build("Wildcard")

    def redirect_to(self, pattern: DFPattern) -> DFPattern:
        """`pattern`, to be used from now on."""
        return pattern


class ExprPattern(DFPattern):
    """One expression."""

    def __init__(self, expr: Any) -> None:
        self._build("Expr", value=plain(expr))

    @property
    def expr(self) -> Any:
        return self._value


class _NamedPattern(DFPattern):
    """A node that a name may narrow."""

    _KIND = ""

    def __init__(self, name_hint: str = "") -> None:
        self._build(self._KIND, name=name_hint)

    @property
    def name(self) -> str:
        return str(self._name)


class VarPattern(_NamedPattern):
    """A variable."""

    _KIND = "Var"


class DataflowVarPattern(_NamedPattern):
    """A variable that only its block sees."""

    _KIND = "DataflowVar"


class GlobalVarPattern(_NamedPattern):
    """A function of the module."""

    _KIND = "GlobalVar"


class ExternFuncPattern(_NamedPattern):
    """A packed function."""

    _KIND = "ExternFunc"

    def __init__(self, global_symbol: str = "") -> None:
        super().__init__(global_symbol)

    @property
    def global_symbol(self) -> str:
        return str(self._name)


class ConstantPattern(DFPattern):
    """A tensor known at compile time."""

    def __init__(self) -> None:
        self._build("Constant")


class CallPattern(DFPattern):
    """A call."""

    def __init__(
        self,
        op: DFPattern,
        args: Sequence[DFPattern],
        varg_default_wildcard: bool = False,
        add_constraint: bool = True,
    ) -> None:
        self._build("Call", [op, *args], number=1 if varg_default_wildcard else 0)
        self._op, self._args = op, list(args)
        if add_constraint and self._args and (context := current_context()) is not None:
            context.add_call(self)

    @property
    def op(self) -> DFPattern:
        return self._op

    @property
    def args(self) -> list[DFPattern]:
        return self._args


class PrimArrPattern(DFPattern):
    """A shape value."""

    def __init__(self, shape: Sequence[Any]) -> None:
        self._build("PrimArr", value=_dims(shape))

    def __getitem__(self, index: int) -> Any:
        return self._value[index]

    def __len__(self) -> int:
        return len(self._value)


class FunctionPattern(DFPattern):
    """A function."""

    def __init__(self, params: Sequence[DFPattern], body: DFPattern) -> None:
        self._build("Function", [body, *params])
        self._params, self._body = list(params), body

    @property
    def params(self) -> list[DFPattern]:
        return self._params

    @property
    def body(self) -> DFPattern:
        return self._body


class TuplePattern(DFPattern):
    """A tuple."""

    _KIND = "Tuple"

    def __init__(self, fields: Sequence[DFPattern]) -> None:
        self._build(self._KIND, list(fields))
        self._fields = list(fields)

    @property
    def fields(self) -> list[DFPattern]:
        return self._fields

    def __getitem__(self, index: int | None) -> TupleGetItemPattern:
        if index is not None and not -len(self._fields) <= index < len(self._fields):
            raise IndexError(f"the tuple has {len(self._fields)} fields; there is no field {index}")
        return TupleGetItemPattern(self, index)

    def __len__(self) -> int:
        return len(self._fields)


class UnorderedTuplePattern(TuplePattern):
    """A tuple whose fields may come in any order."""

    _KIND = "UnorderedTuple"


class TupleGetItemPattern(DFPattern):
    """An item of a tuple; any one when `index` is None."""

    def __init__(self, tuple_value: DFPattern, index: int | None = None) -> None:
        self._build("TupleGetItem", [tuple_value], number=-1 if index is None else index)
        self._tuple = tuple_value

    @property
    def tuple(self) -> DFPattern:
        return self._tuple

    @property
    def index(self) -> int | None:
        return None if self._number < 0 else self._number


class _PairPattern(DFPattern):
    _KIND = ""

    def __init__(self, left: DFPattern, right: DFPattern) -> None:
        self._build(self._KIND, [left, right])
        self._sides = left, right

    @property
    def left(self) -> DFPattern:
        return self._sides[0]

    @property
    def right(self) -> DFPattern:
        return self._sides[1]


class AndPattern(_PairPattern):
    """Both."""

    _KIND = "And"


class OrPattern(_PairPattern):
    """Either; the left one when both fit."""

    _KIND = "Or"


class NotPattern(DFPattern):
    """Anything that `to_reject` does not fit."""

    def __init__(self, to_reject: DFPattern) -> None:
        self._build("Not", [to_reject])
        self._reject = to_reject

    @property
    def to_reject(self) -> DFPattern:
        return self._reject


class _NarrowedPattern(DFPattern):
    """Another pattern and a condition on the value's type or attributes."""

    def _narrow(self, kind: str, pattern: DFPattern, value: Any) -> None:
        self._build(kind, [pattern], value)
        self._pattern = pattern

    @property
    def pattern(self) -> DFPattern:
        return self._pattern


class TypePattern(_NarrowedPattern):
    """A value whose type fits `ty`; symbolic sizes of `ty` stand for any one size each."""

    def __init__(self, pattern: DFPattern, ty: Any) -> None:
        self._narrow("Type", pattern, plain(ty))

    @property
    def ty(self) -> Any:
        return self._value


class ShapePattern(_NarrowedPattern):
    """A tensor with these dimensions."""

    def __init__(self, pattern: DFPattern, shape: Sequence[Any]) -> None:
        self._narrow("Shape", pattern, _dims(shape))

    @property
    def shape(self) -> Any:
        return self._value


class DataTypePattern(_NarrowedPattern):
    """A value with this element type."""

    def __init__(self, pattern: DFPattern, dtype: Any) -> None:
        self._narrow("DataType", pattern, tvm_ffi.dtype(str(dtype)))

    @property
    def dtype(self) -> Any:
        return self._value


class AttrPattern(_NarrowedPattern):
    """A call or function with these attributes."""

    def __init__(self, pattern: DFPattern, attrs: Mapping[str, Any]) -> None:
        self._narrow("Attr", pattern, {k: plain(v) for k, v in attrs.items()})

    @property
    def attrs(self) -> Any:
        return self._value


class PatternSeq:
    """A chain of patterns, each used by the next."""

    def __init__(self, patterns: Sequence[DFPattern], only_use: Any = None) -> None:
        self.patterns = list(patterns)
        self.links: list[tuple[bool, int]] = []
        if only_use is not None:
            self._link_all(bool(only_use))

    def _link_all(self, only: bool) -> None:
        from .context import PatternContext

        context = PatternContext.require()
        for first, second in zip(self.patterns, self.patterns[1:], strict=False):
            self.links.append((only, -1))
            context.add_edge(first, second, only, -1)

    def _extend(self, other: DFPattern | PatternSeq, only: bool, index: int) -> PatternSeq:
        from .context import PatternContext

        chain = other if isinstance(other, PatternSeq) else PatternSeq([other])
        PatternContext.require().add_edge(self.patterns[-1], chain.patterns[0], only, index)
        whole = PatternSeq([*self.patterns, *chain.patterns])
        whole.links = [*self.links, (only, index), *chain.links]
        return whole

    def used_by(self, other: DFPattern | PatternSeq, index: int = -1) -> PatternSeq:
        """The chain's last value is used by the first of `other`."""
        return self._extend(other, False, index)

    def only_used_by(self, other: DFPattern | PatternSeq, index: int = -1) -> PatternSeq:
        """The same, and by nothing else of the block."""
        return self._extend(other, True, index)

    def __xor__(self, other: DFPattern | PatternSeq) -> PatternSeq:
        return self.used_by(other)

    def __rshift__(self, other: DFPattern | PatternSeq) -> PatternSeq:
        return self.only_used_by(other)

    def fork_to(self, *items: DFPattern | PatternSeq) -> None:
        for item in items:
            self.used_by(item)

    def dup(self) -> PatternSeq:
        """A chain of new nodes with the same links, in the current context."""
        from .context import PatternContext

        copy = PatternSeq([p.dup() for p in self.patterns])
        copy.links = list(self.links)
        for k, (only, index) in enumerate(self.links):
            PatternContext.require().add_edge(copy.patterns[k], copy.patterns[k + 1], only, index)
        return copy

    def __getitem__(self, index: int) -> DFPattern:
        return self.patterns[index]


def _dims(shape: Sequence[Any]) -> list[Any]:
    return [prim_value(d) for d in shape]


def is_var(name: str = "") -> VarPattern:
    """A variable, called `name` when one is given."""
    return VarPattern(name)


def is_gv(name: str = "") -> GlobalVarPattern:
    """A function of the module, called `name` when one is given."""
    return GlobalVarPattern(name)


def is_dfv(name: str = "") -> DataflowVarPattern:
    """A variable of a dataflow block, called `name` when one is given."""
    return DataflowVarPattern(name)


def is_const() -> ConstantPattern:
    """A constant tensor."""
    return ConstantPattern()


def is_expr(expr: Any) -> ExprPattern:
    """This very expression, or one written the same."""
    return ExprPattern(expr)


def is_op(op_name: str) -> ExprPattern:
    """An operator; called with patterns, a call of it."""
    return ExprPattern(Op.get(op_name))


def is_tuple(
    fields: Sequence[DFPattern], unordered: bool = False
) -> TuplePattern | UnorderedTuplePattern:
    """A tuple of these fields."""
    return UnorderedTuplePattern(fields) if unordered else TuplePattern(fields)


def is_tuple_get_item(tuple_value: DFPattern, index: int | None = None) -> TupleGetItemPattern:
    """An item of a tuple."""
    return TupleGetItemPattern(tuple_value, index)


def wildcard() -> WildcardPattern:
    """Anything."""
    return WildcardPattern()


def has_dtype(dtype: Any, pattern: DFPattern | None = None) -> DataTypePattern:
    """A value with this element type."""
    return DataTypePattern(pattern or WildcardPattern(), dtype)


def is_shape(shape: Sequence[Any]) -> PrimArrPattern:
    """A shape value with these dimensions."""
    return PrimArrPattern(shape)


def has_attr(attrs: Mapping[str, Any], pattern: DFPattern | None = None) -> AttrPattern:
    """A call or function with these attributes."""
    return AttrPattern(pattern or WildcardPattern(), attrs)


def reject(pattern: DFPattern) -> NotPattern:
    """Anything that `pattern` does not fit."""
    return NotPattern(pattern)


def _as_tuple(args: Any) -> DFPattern | None:
    if args is None or isinstance(args, DFPattern):
        return args
    return TuplePattern(list(args))


def is_call_tir(func_name: str, args: Any = None, tir_vars: DFPattern | None = None) -> CallPattern:
    """A call_tir of the tensor program called `func_name`."""
    parts = [GlobalVarPattern(func_name), _as_tuple(args) or WildcardPattern()]
    if tir_vars is not None:
        parts.append(tir_vars)
    return CallPattern(is_op("relax.call_tir"), parts, tir_vars is None, False)


def is_call_dps_packed(func_name: str, args: Any = None) -> CallPattern:
    """A call_dps_packed of the packed function called `func_name`."""
    parts = [ExternFuncPattern(func_name), _as_tuple(args) or WildcardPattern()]
    return CallPattern(is_op("relax.call_dps_packed"), parts, True, False)


def is_call_packed(func_name: str, args: Sequence[DFPattern] | None = None) -> CallPattern:
    """A call of the packed function called `func_name`."""
    func = ExternFuncPattern(func_name)
    return CallPattern(func, list(args or ()), args is None, False)


def make_fused_bias_activation_pattern(
    op_name: str,
    with_bias: bool = False,
    activation: str | None = None,
    allow_reshape: bool = False,
) -> DFPattern:
    """`op_name` of two arguments, followed by an added bias and an activation when they are asked for; the bias comes
    from a reshape when that is allowed."""
    out: DFPattern = is_op(op_name)(wildcard(), wildcard())
    if with_bias:
        bias: DFPattern = wildcard()
        if allow_reshape:
            bias = is_op("relax.reshape")(bias, wildcard())
        out = is_op("relax.add")(out, bias)
    return out if activation is None else is_op(activation)(out)


def current_context() -> PatternContext | None:
    from .context import PatternContext

    return PatternContext.current()
