# SPDX-License-Identifier: Apache-2.0
"""Makes a Python function of each row of the compiler's table of operators."""

from __future__ import annotations

import importlib.machinery
import inspect
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tvm_ffi

from ... import _compiler
from ...ir.base import current_span, plain
from ...ir.expr import Call, Expr

_make_call = _compiler.func("ops.MakeCall")
_TENSOR, _TENSORS = 0, 1  # of ops::ArgKind
_EMPTY = inspect.Parameter.empty
_ANNOTATIONS = {
    "int": "int",
    "float": "float",
    "bool": "bool",
    "str": "str",
    "dtype": "str",
    "ints": "int | Sequence[int]",
    "floats": "Sequence[float]",
    "any": "Any",
}
_DTYPE_TYPES = ("dtype", "dtype?")
# Attributes that Python takes in another order than scripts print them.
_ATTR_ORDER = {
    "dequantize": ("axis", "out_dtype"),
    "nn.pad": ("pad_width", "pad_mode", "pad_value"),
    "quantize": ("axis", "out_dtype"),
}


class Row:
    """One operator: what the table says about it."""

    def __init__(self, row: Sequence[Any]) -> None:
        name, doc, args, attrs, variadic = row
        self.name, self.doc, self.variadic = str(name), str(doc), bool(variadic)
        self.args = [(str(a[0]), str(a[1]), int(a[2]), bool(a[3]), a[4]) for a in args]
        self.attrs = [(str(f[0]), str(f[1]), str(f[2]), f[3], bool(f[4])) for f in attrs]
        self.dtypes = {f[0] for f in self.attrs if f[1] in _DTYPE_TYPES}
        self.kinds = [a[2] for a in self.args]

    def kind(self, index: int) -> int:
        if index < len(self.kinds):
            return self.kinds[index]
        return -1


def _load_rows() -> dict[str, Row]:
    rows = [Row(r) for r in _compiler.func("ops.List")()]
    return {r.name: r for r in rows}


ROWS = _load_rows()


def _constant(value: Any, args: Sequence[Any]) -> Any:
    """A number or array as a constant; a plain number takes the dtype of the first tensor argument."""
    from ..expr import Constant, const
    from ..type import TensorType

    if isinstance(value, (bool, int, float, np.number)):
        for other in args:
            ty = other.ty if isinstance(other, Expr) else None
            if isinstance(ty, TensorType) and ty.dtype is not None:
                return const(value, ty.dtype)
        return const(value)
    return Constant(value)


def _argument(value: Any, kind: int, args: Sequence[Any]) -> Any:
    if isinstance(value, Expr):
        return value
    value = plain(value)
    if kind == _TENSOR and isinstance(value, (bool, int, float, np.number)):
        return _constant(value, args)
    if isinstance(value, tvm_ffi.Tensor) or (
        hasattr(value, "__array__") and not isinstance(value, Expr)
    ):
        return _constant(value, args)
    if isinstance(value, (tuple, list)):
        return [_argument(v, kind if kind == _TENSOR else -1, args) for v in value]
    return value


def _attribute(value: Any) -> Any:
    value = plain(value)
    if isinstance(value, (tuple, list)):
        return [_attribute(v) for v in value]
    if isinstance(value, np.generic):
        return value.item()
    return value


def call_operator(
    name: str,
    args: Sequence[Any],
    attrs: Mapping[str, Any] | None = None,
    ty_args: Sequence[Any] = (),
) -> Call:
    """A call of the operator `name`, arguments and attributes checked and completed."""
    row = ROWS.get(name)
    if row is None:
        return _make_call(
            name, list(args), dict(attrs or {}), [plain(t) for t in ty_args], current_span()
        )
    values = [_argument(a, row.kind(i), args) for i, a in enumerate(args)]
    given: dict[str, Any] = {}
    for key, value in (attrs or {}).items():
        if key in row.dtypes and value is not None and not isinstance(value, tvm_ffi.dtype):
            from ..type import dtype_of

            value = dtype_of(value)
        given[key] = _attribute(value)
    return _make_call(name, values, given, [plain(t) for t in ty_args], current_span())


def _signature(row: Row) -> inspect.Signature:
    kind: Any = inspect.Parameter.POSITIONAL_OR_KEYWORD
    params = []
    optional_seen = False
    for name, _, _, optional, value in row.args:
        optional_seen = optional_seen or optional
        default = value if optional_seen else _EMPTY
        params.append(inspect.Parameter(name, kind, default=default, annotation="Expr"))
    if row.variadic and params:
        last = params.pop()
        params.append(last.replace(kind=inspect.Parameter.VAR_POSITIONAL, default=_EMPTY))
        kind = inspect.Parameter.KEYWORD_ONLY
    attrs = (
        sorted(row.attrs, key=lambda f: _ATTR_ORDER.get(row.name, ()).index(f[0]))
        if (row.name in _ATTR_ORDER)
        else row.attrs
    )
    for name, type_name, _, default, required in attrs:
        base = _ANNOTATIONS[type_name.rstrip("?")] + (" | None" if type_name.endswith("?") else "")
        missing = _EMPTY if required and not optional_seen else default
        params.append(inspect.Parameter(name, kind, default=missing, annotation=base))
    return inspect.Signature(params, return_annotation="Call")


def usage(signature: inspect.Signature) -> str:
    """Parameters as a caller writes them."""
    parts = []
    for p in signature.parameters.values():
        star = "*" if p.kind is inspect.Parameter.VAR_POSITIONAL else ""
        default = "" if p.default is _EMPTY else f"={p.default!r}"
        parts.append(star + p.name + default)
    return ", ".join(parts)


def _nothing() -> Any:
    from ..expr import Tuple

    return Tuple([])


def _doc(row: Row) -> str:
    lines = [row.doc, "", "Parameters", "----------"]
    lines += [f"{name}\n    {doc}" for name, doc, *_ in row.args]
    lines += [f"{name} : {type_name}\n    {doc}" for name, type_name, doc, _, _ in row.attrs]
    return "\n".join(lines)


def make_function(row: Row) -> Callable[..., Call]:
    """The Python function of an operator."""
    signature = _signature(row)
    num_args = len(row.args)
    arg_names = [a[0] for a in row.args]
    attr_names = [f[0] for f in row.attrs]
    plain_call = not row.variadic and not attr_names and not any(a[3] for a in row.args)

    def function(*args: Any, **kwargs: Any) -> Call:
        if plain_call and not kwargs and len(args) == num_args:
            return call_operator(row.name, args)
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{row.name}: {error}; it takes ({usage(signature)})") from None
        given = bound.arguments
        values: list[Any] = []
        num_left_out = 0
        for name, _, _, optional, default in row.args:
            if row.variadic and name == arg_names[-1]:
                values.extend(given.get(name, ()))
                continue
            value = given.get(name, default)
            if value is None and optional:
                num_left_out += 1
                continue
            # What is left out before an argument that is given keeps its place: the empty tuple.
            values.extend(_nothing() for _ in range(num_left_out))
            num_left_out = 0
            values.append(value)
        attrs = {name: given[name] for name in attr_names if name in given}
        return call_operator(row.name, values, attrs)

    function.__name__ = row.name.rpartition(".")[2]
    function.__qualname__ = row.name
    function.__doc__ = _doc(row)
    function.__signature__ = signature  # type: ignore[attr-defined]
    return function


def install(package: str) -> None:
    """Puts the functions of all operators into `package` and its sub-packages."""
    from . import calls

    for row in ROWS.values():
        *folders, name = row.name.split(".")
        module = _module(package, folders)
        special = calls.SPECIAL.get(row.name)
        function = special or make_function(row)
        function.__module__ = module.__name__
        setattr(module, name, function)
    root = sys.modules[package]
    for name, (where, function) in calls.EXTRA.items():
        setattr(_module(package, where), name, function)
    root.__dict__.setdefault("__path__", [])


def _module(package: str, folders: Sequence[str]) -> types.ModuleType:
    module = sys.modules[package]
    for folder in folders:
        name = f"{module.__name__}.{folder}"
        if name not in sys.modules:
            made = types.ModuleType(
                name, f"Operators relax.{folder}.*, made from the table of operators."
            )
            made.__path__ = []  # type: ignore[attr-defined]
            made.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
            sys.modules[name] = made
            setattr(module, folder, made)
        module = sys.modules[name]
    return module
