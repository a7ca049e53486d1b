# SPDX-License-Identifier: Apache-2.0
"""Algebraic data types: definitions, constructors, match."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm_ffi
from tvm_ffi import Object

from .. import _compiler
from ..ir.base import plain
from ..ir.expr import Call, Expr, Var
from ..ir.global_info import GlobalInfo
from .expr import to_expr
from .type import AdtType, AnyType

_constructor_def = _compiler.func("ir.ConstructorDef")
_adt_def = _compiler.func("ir.AdtDef")
_constructor = _compiler.func("ir.Constructor")
_match_case = _compiler.func("ir.MatchCase")
_match = _compiler.func("ir.Match")


@tvm_ffi.register_object("relaxvm.relax.ConstructorDef")
class ConstructorDef(Object):
    """A constructor's name, and the names and types of its fields."""

    def __init__(self, name: str, fields: Sequence[tuple[str, Any]] = (), span: Any = None) -> None:
        names = [field for field, _ in fields]
        types = [plain(ty) for _, ty in fields]
        self.__init_handle_by_constructor__(_constructor_def, name, names, types, span)


@tvm_ffi.register_object("relaxvm.relax.AdtDef")
class AdtDef(GlobalInfo):
    """A data type.  `List.Cons` is a constructor, `List[R.Tensor((4,))]` a type."""

    def __init__(
        self,
        name: str,
        params: Sequence[str] = (),
        constructors: Sequence[ConstructorDef] = (),
        span: Any = None,
    ) -> None:
        self.__init_handle_by_constructor__(_adt_def, name, list(params), list(constructors), span)

    def constructor(self, name: str) -> Constructor:
        """The constructor of that name."""
        for tag, found in enumerate(self.constructors):
            if found.name == name:
                return Constructor(self, tag)
        names = ", ".join(str(c.name) for c in self.constructors)
        raise AttributeError(f"data type {self.name} has no constructor {name}; it has: {names}")

    def constructor_of(self, value: Any) -> Constructor:
        """The constructor that made a value."""
        return Constructor(self, value.tag)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self.constructor(name)

    def __getitem__(self, args: Any) -> Any:
        """The type with these types for its parameters."""
        from ..script.types import adt_annotation

        args = args if isinstance(args, tuple) else (args,)
        if len(args) != len(self.params):
            takes = f"takes {len(self.params)}" if len(self.params) else "takes no"
            raise TypeError(f"data type {self.name} {takes} type parameters, got {len(args)}")
        return adt_annotation(str(self.name), args)

    def bare_type(self) -> AdtType:
        """The type when its parameters may be anything."""
        return AdtType(str(self.name), [AnyType() for _ in self.params])


@tvm_ffi.register_object("relaxvm.relax.Constructor")
class Constructor(Expr):
    """What makes values of a data type.  Calling it gives an expression, `value` an object of the VM."""

    def __init__(self, adt: AdtDef, tag: int, span: Any = None) -> None:
        self.__init_handle_by_constructor__(_constructor, adt, tag, span)

    @property
    def definition(self) -> ConstructorDef:
        return self.adt.constructors[self.tag]

    @property
    def name(self) -> str:
        return str(self.definition.name)

    def fields_in_order(self, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
        """Values given by position and by name, in the order of the fields."""
        names = [str(n) for n in self.definition.field_names]
        full = f"{self.adt.name}.{self.name}"
        for key in kwargs:
            if key not in names:
                listed = ", ".join(names) or "none"
                raise TypeError(f"{full} has no field {key}; its fields are: {listed}")
            if names.index(key) < len(args):
                raise TypeError(f"field {key} of {full} is given twice")
        count = len(args) + len(kwargs)
        if count != len(names):
            fields = "1 field" if len(names) == 1 else f"{len(names)} fields"
            raise TypeError(
                f"{full} has {fields}, but {count} {'is' if count == 1 else 'are'} given"
            )
        return [*args, *(kwargs[n] for n in names[len(args) :])]

    def __call__(self, *args: Any, **kwargs: Any) -> Call:
        return Call(self, [to_expr(a) for a in self.fields_in_order(args, kwargs)])

    def value(self, *args: Any, **kwargs: Any) -> Any:
        """A value for functions of the VM; NumPy arrays become tensors."""
        from ..runtime.adt import ADT

        return ADT(self.tag, self.fields_in_order(args, kwargs))


@tvm_ffi.register_object("relaxvm.relax.MatchCase")
class MatchCase(Object):
    """`case List.Cons(head, tail): body`; without a constructor `case _: body`."""

    def __init__(
        self, constructor: Constructor | None, vars: Sequence[Var], body: Any, span: Any = None
    ) -> None:
        self.__init_handle_by_constructor__(
            _match_case, constructor, list(vars), to_expr(body), span
        )


@tvm_ffi.register_object("relaxvm.relax.Match")
class Match(Expr):
    """The body of the case that made `value`."""

    def __init__(self, value: Any, cases: Sequence[MatchCase], span: Any = None) -> None:
        self.__init_handle_by_constructor__(_match, to_expr(value), list(cases), span)


__all__ = ["AdtDef", "Constructor", "ConstructorDef", "Match", "MatchCase"]
