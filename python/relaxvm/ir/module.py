# SPDX-License-Identifier: Apache-2.0
"""Modules: functions by name, attributes, global infos."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import tvm_ffi
from tvm_ffi import Object

from .. import _compiler
from .attrs import DictAttrs
from .base import Scriptable
from .expr import BaseFunc, GlobalVar

_module = _compiler.func("ir.IRModule")
_find_var = _compiler.func("ir.Module_FindVar")
_lookup = _compiler.func("ir.Module_Lookup")
_lookup_var = _compiler.func("ir.Module_LookupVar")
_set = _compiler.func("ir.Module_Set")
_remove = _compiler.func("ir.Module_Remove")
_set_infos = _compiler.func("ir.Module_SetInfos")
_with_attrs = _compiler.func("ir.Module_WithAttrs")


@tvm_ffi.register_object("relaxvm.ir.IRModule")
class IRModule(Scriptable, Object):
    """What a compilation takes: functions of both languages, attributes, global infos."""

    __slots__ = ("__dict__",)  # for `pyfuncs`

    def __init__(
        self,
        functions: Mapping[Any, BaseFunc] | None = None,
        attrs: Mapping[str, Any] | None = None,
        global_infos: Mapping[str, Any] | None = None,
    ) -> None:
        table = {GlobalVar(k) if isinstance(k, str) else k: v for k, v in (functions or {}).items()}
        infos = {k: list(v) for k, v in (global_infos or {}).items()}
        values = attrs.as_object() if hasattr(attrs, "as_object") else (attrs or {})
        self.__init_handle_by_constructor__(_module, table, dict(values), infos)

    @property
    def data_types(self) -> dict[str, Any]:
        """The algebraic data types that the module declares, by name."""
        return {str(t.name): t for t in self.global_infos.get("data_types", [])}

    @property
    def attrs(self) -> Any:
        values = self._attrs
        return DictAttrs(values) if len(values) else None

    @property
    def pyfuncs(self) -> dict[str, Callable[..., Any]]:
        """Functions of Python that belong to the module, by name: to this object, passes leave them behind."""
        return self.__dict__.setdefault("pyfuncs", {})

    def clone(self) -> IRModule:
        copy = IRModule(dict(self.functions), dict(self._attrs), dict(self.global_infos))
        copy.pyfuncs.update(self.pyfuncs)
        return copy

    def functions_items(self) -> list[tuple[GlobalVar, BaseFunc]]:
        return sorted(self.functions.items(), key=lambda item: str(item[0].name_hint))

    def _key(self, var: Any) -> GlobalVar:
        return self.get_global_var(var) if isinstance(var, str) else var

    def __getitem__(self, var: Any) -> BaseFunc:
        return _lookup(self, var) if isinstance(var, str) else _lookup_var(self, var)

    def __setitem__(self, var: Any, func: BaseFunc) -> None:
        if isinstance(var, str):
            var = _find_var(self, var) or GlobalVar(var)
        _set(self, var, func)

    def __delitem__(self, var: Any) -> None:
        _remove(self, self._key(var))

    def __contains__(self, var: Any) -> bool:
        return _find_var(self, var if isinstance(var, str) else var.name_hint) is not None

    def __iter__(self) -> Iterator[GlobalVar]:
        return iter(self.functions)

    def __len__(self) -> int:
        return len(self.functions)

    def update(self, other: Any) -> None:
        """Adds the functions of another module or dictionary; equal names are replaced."""
        functions = other.functions if isinstance(other, IRModule) else other
        for var, func in functions.items():
            self[var] = func

    def update_func(self, var: GlobalVar, func: BaseFunc) -> None:
        self[var] = func

    def update_global_info(self, name: str, global_info: Any) -> None:
        infos = global_info if isinstance(global_info, (list, tuple)) else [global_info]
        _set_infos(self, name, list(infos))

    def get_global_var(self, name: str) -> GlobalVar:
        var = _find_var(self, name)
        if var is None:
            _lookup(self, name)  # raises, and lists the names there are
        return var

    def get_global_vars(self) -> list[GlobalVar]:
        return list(self.functions)

    def replace_global_vars(self, replacements: Mapping[Any, Any]) -> IRModule:
        """The module with functions renamed, calls included."""
        from ..relax.expr_functor import rename_global_vars

        return rename_global_vars(self, replacements)

    @staticmethod
    def from_expr(expr: Any, functions: Any = None) -> IRModule:
        """A module whose function is `expr`: under its global symbol, else called main."""
        name = str(expr.attrs["global_symbol"]) if "global_symbol" in expr.attrs else "main"
        mod = IRModule(functions or {})
        mod[name] = expr if "global_symbol" in expr.attrs else expr.with_attr("global_symbol", name)
        return mod

    def get_attr(self, name: str) -> Any:
        return self._attrs[name] if name in self._attrs else None

    def with_attr(self, key: str, value: Any) -> IRModule:
        return _with_attrs(self, {**dict(self._attrs), key: value})

    def with_attrs(self, attrs: Any) -> IRModule:
        values = attrs.as_object() if hasattr(attrs, "as_object") else attrs
        return _with_attrs(self, dict(values or {}))

    def without_attr(self, key: str) -> IRModule:
        return _with_attrs(self, {k: v for k, v in self._attrs.items() if k != key})
