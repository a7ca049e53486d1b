# SPDX-License-Identifier: Apache-2.0
"""R: the graph language.  All operators of the table are here by name, besides what is written below."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable as _Function
from collections.abc import Mapping, Sequence
from typing import Any as _Any

from ..ir.base import plain
from ..ir.expr import Expr
from ..relax import op as _op
from ..relax.expr import DataTypeImm, ShapeExpr, StringImm, to_expr
from ..relax.expr import ExternFunc as ExternFunc
from ..relax.expr import SeqExpr as SeqExpr
from ..relax.expr import Tuple as _TupleExpr
from ..relax.expr import TupleGetItem as TupleGetItem
from ..relax.expr import const as const
from ..relax.expr import prim_value as prim_value
from ..relax.op.build import ROWS as _ROWS
from .ir_builder.frames import DataflowFrame as _DataflowFrame
from .ir_builder.frames import current_function as _current_function
from .types import Annotation as _Annotation
from .types import AnyAnnotation as Any
from .types import CallableAnnotation as Callable
from .types import NothingAnnotation as Nothing
from .types import Prim as Prim
from .types import ShapeAnnotation as Shape
from .types import Tensor as Tensor
from .types import TupleAnnotation as Tuple

Object = Any
_Text = builtins.str


def function(
    f: _Any = None, pure: bool = True, private: bool = False, check_well_formed: bool = True
) -> _Any:
    """Decorates a function of the graph language.  DiagnosticError when it breaks a rule of the language, unless
    `check_well_formed` is off."""
    from .parser.entry import parse_function

    options = {"pure": pure, "private": private, "check_well_formed": check_well_formed}
    if f is not None:
        return parse_function(f, sys._getframe(1), "function", options)
    return lambda g: parse_function(g, sys._getframe(1), "function", options)


function.script_kind = "function"  # type: ignore[attr-defined]


class _DataName:
    """Stands for a data type while Python runs the class that becomes a module."""

    def __getitem__(self, args: _Any) -> _DataName:
        return self

    def __getattr__(self, name: _Text) -> _DataName:
        if name.startswith("_"):
            raise AttributeError(name)
        return self


def data(*params: _Any) -> _Any:
    """Decorates a class whose functions are the constructors of an algebraic data type; `params` name its type
    parameters."""
    from .parser.entry import parse_data_type

    if len(params) == 1 and isinstance(params[0], type):
        return parse_data_type(params[0], sys._getframe(1), _DataName())
    return lambda cls: parse_data_type(cls, sys._getframe(1), _DataName())


data.script_kind = "data"  # type: ignore[attr-defined]


class _Mark:
    """A statement of the script that is no value; the parser reads it."""

    def __init__(self, kind: _Text, *values: _Any) -> None:
        self.mark, self.values = kind, values

    def __enter__(self) -> _Any:
        raise RuntimeError(
            f"R.{self.mark}() has meaning only inside of a function under @R.function"
        )

    def __exit__(self, *error: object) -> None:
        """See __enter__."""


# Between `with ir_builder.relax.function():` and its end these words act at once; the parser reads marks.


def _built(word: _Text) -> _Any:
    """The function of an IRBuilder that R.`word` is for."""
    function = _current_function()
    if function is None:
        raise RuntimeError(
            f"R.{word}() has meaning only inside of `with ir_builder.relax.function():`"
        )
    return function


def dataflow() -> _Any:
    """A block without effects and control flow."""
    function = _current_function()
    return _Mark("dataflow") if function is None else _DataflowFrame(function)


def output(*values: Expr) -> _Any:
    """What the code after a dataflow block may use of it."""
    function = _current_function()
    return _Mark("output", *values) if function is None else function.output(values)


def func_attr(attrs: Mapping[_Text, _Any]) -> _Any:
    """Attributes of the function."""
    function = _current_function()
    return _Mark("func_attr", dict(attrs)) if function is None else function.add_attrs(attrs)


def func_name(name: _Text) -> _Any:
    """Another name for the function."""
    function = _current_function()
    return _Mark("func_name", name) if function is None else function.set_name(name)


def func_global_symbol(name: _Text) -> _Any:
    """The name that the function is exported under."""
    return func_attr({"global_symbol": name})


def arg(name: _Text, ty: _Any) -> _Any:
    """The next parameter of the function that an IRBuilder builds."""
    return _built("arg").arg(name, ty)


def func_ret_ty(ty: _Any) -> None:
    """The type that the function of an IRBuilder is said to return."""
    _built("func_ret_ty").ret_ty = plain(ty)


func_ret_type = func_ret_ty


def func_ret_value(value: _Any) -> None:
    """The result of the function that an IRBuilder builds."""
    _built("func_ret_value").result = value


def emit_match_cast(value: _Any, ty: _Any) -> _Any:
    """R.match_cast in the function that an IRBuilder builds: the variable that has the type."""
    return _built("emit_match_cast").builder.match_cast(value, ty)


class MatchCastValue:
    """The right side of `x = R.match_cast(value, ty)`."""

    def __init__(self, value: Expr, ty: _Any) -> None:
        self.value, self.ty = value, ty


def match_cast(value: _Any, ty: _Any) -> MatchCastValue:
    """Checks at run time that `value` has type `ty`, and binds the symbolic variables of `ty`."""
    return MatchCastValue(to_expr(value), ty)


def emit(value: _Any, annotate_ty: _Any = None) -> _Any:
    """The value itself: assigning it binds it.  For an IRBuilder the variable that it is bound to."""
    function = _current_function()
    return to_expr(value) if function is None else function.emit(value, annotate_ty)


def emit_var_binding(binding: _Any) -> _Any:
    """A whole binding in the function that an IRBuilder builds: its variable."""
    _built("emit_var_binding").builder.emit_normalized(binding)
    return binding.var


def device(device_type: _Any, index: int = 0) -> _Any:
    """A device by its kind, a name or DLPack's number."""
    from ..runtime import device as of_kind

    return of_kind(device_type, index)


def cpu(index: int = 0) -> _Any:
    """A CPU."""
    return device("cpu", index)


def cuda(index: int = 0) -> _Any:
    """A GPU of NVIDIA."""
    return device("cuda", index)


def emit_with_type(op: _Text, args: _Any, ty_args: _Any = None) -> _Any:
    """A call of an operator with a stated type."""
    return _op.call_operator(op, list(args), None, [plain(t) for t in ty_args or ()])


def emit_te(func: _Function[..., _Any], *args: _Any, **kwargs: _Any) -> _Any:
    """A call of the tensor program that `func` describes on tensor expressions."""
    function = _current_function()
    if function is not None:
        return function.builder.emit_te(func, *args, **kwargs)
    return _Mark("emit_te", func, args, kwargs)


def shape(value: Sequence[_Any]) -> ShapeExpr:
    """A shape value."""
    return ShapeExpr(list(value))


def str(value: _Any) -> StringImm:
    """A string value."""
    return StringImm(value)


def dtype(value: _Any) -> DataTypeImm:
    """An element type as a value."""
    return DataTypeImm(value)


def tuple(*fields: _Any) -> _TupleExpr:
    """A tuple value."""
    return _TupleExpr(list(fields))


def rewriter(cls: type) -> _Any:
    """Decorates a class with functions `pattern` and `replacement`: what the first computes becomes what the second
    computes, wherever the rewriter is applied."""
    from ..relax.dpl import PatternMatchingRewriter
    from .parser.entry import parse_class

    return PatternMatchingRewriter.from_module(parse_class(cls, sys._getframe(1)))


class Macro:
    """A function of the script that is inlined where it is called."""

    def __init__(self, func: _Any, frame: _Any, hygienic: bool) -> None:
        from .parser.source import captured, find_function

        self.source, self.macro_node = find_function(func)
        self.hygienic = hygienic
        self.outside = captured(frame, func) if hygienic else None

    def __call__(self, *args: _Any, **kwargs: _Any) -> _Any:
        raise TypeError("a macro has meaning only inside of a script")


def macro(*args: _Any, hygienic: bool = True) -> _Any:
    """Decorates a macro; a hygienic one sees the names of where it was defined, another those of its callers."""
    if args and callable(args[0]):
        return Macro(args[0], sys._getframe(1), hygienic)
    return lambda f: Macro(f, sys._getframe(1), hygienic)


class entry:
    """Classes of the parser that programs ask isinstance of."""

    TypeProxy = _Annotation


def _install() -> None:
    """Operators: relax.nn.softmax is R.nn.softmax."""
    names = globals()
    for name in _ROWS:
        first = name.split(".")[0]
        if first not in names:
            names[first] = getattr(_op, first)
    for name in ("call_op", "call_packed", "linear", "masked_fill"):
        names[name] = getattr(_op, name)


_install()
print = _op.print  # type: ignore[attr-defined]

__all__ = [n for n in dir() if not n.startswith("_")]
