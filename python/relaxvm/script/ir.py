# SPDX-License-Identifier: Apache-2.0
"""I: modules, and what both languages share."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import tvm_ffi

from .. import _compiler
from ..ir.devices import lookup_vdevice
from ..ir.expr import GlobalVar, Range
from ..ir.expr import Op as _Op
from ..ir.global_info import DummyGlobalInfo, VDevice


def ir_module(mod: type | None = None, check_well_formed: bool = True, s_tir: bool = False) -> Any:
    """Decorates a class: it becomes the module that it describes.  DiagnosticError when the module breaks a rule of the
    language, unless `check_well_formed` is off."""
    from .parser.entry import parse_class

    if mod is not None:
        return parse_class(mod, sys._getframe(1), check_well_formed)
    return lambda cls: parse_class(cls, sys._getframe(1), check_well_formed)


class _Setting:
    """What a statement of a module's class sets."""

    def __init__(self, kind: str, values: Mapping[str, Any]) -> None:
        self.module_setting, self.values = kind, dict(values)


def module_attrs(attrs: Mapping[str, Any], allow_overwrite: bool = False) -> _Setting:
    """Attributes of the module."""
    return _Setting("attrs", attrs)


def module_global_infos(global_infos: Mapping[str, Any]) -> _Setting:
    """Devices and other infos of the module, by group."""
    return _Setting("global_infos", global_infos)


def vdevice(target: Any = None, vdevice_id: int = 0, memory_scope: str = "global") -> VDevice:
    """A device that tensors of the module may lie on."""
    return VDevice(target, vdevice_id, memory_scope)


def dummy_global_info() -> DummyGlobalInfo:
    return DummyGlobalInfo()


def Op(name: str) -> _Op:
    """The operator of that name."""
    return _Op.get(name)


class _MetaValue:
    """A value that exists while parsing only."""

    def __init__(self, value: Any) -> None:
        self.meta_value = value


def meta_var(value: Any) -> _MetaValue:
    """A name for `value` without a binding in the program."""
    return _MetaValue(getattr(value, "meta_value", value))


def dtype(name: str) -> tvm_ffi.dtype:
    """An element type as an attribute's value."""
    return tvm_ffi.dtype(name)


def Shape(values: list[int]) -> Any:
    """A shape of integers as an attribute's value."""
    return tvm_ffi.Shape(tuple(values))


def metadata(groups: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Large constants of a printed program: (dtype, shape, content as base64) each."""
    return {name: [_constant(*row) for row in rows] for name, rows in groups.items()}


def _constant(dtype_name: str, shape: list[int], text: str) -> Any:
    from ..relax.expr import Constant

    decode = _compiler.func("script.DecodeTensor")
    data = _compiler.func("ir.EmptyTensor")(shape, tvm_ffi.dtype(dtype_name))
    decode(text, data)
    return Constant(data)


def unprintable(type_key: str) -> Any:
    """Stands where the printer met an object that has no script form."""
    raise ValueError(
        f"the program holds an object of type {type_key}, which cannot be written as script"
    )


def pyfunc(func: Any) -> Any:
    """Marks a function of Python in a class that inherits from `relax.BasePyModule`."""
    return func


pyfunc.script_kind = "pyfunc"  # type: ignore[attr-defined]


__all__ = [
    "GlobalVar",
    "Op",
    "Range",
    "Shape",
    "dtype",
    "dummy_global_info",
    "ir_module",
    "lookup_vdevice",
    "meta_var",
    "metadata",
    "module_attrs",
    "module_global_infos",
    "pyfunc",
    "unprintable",
    "vdevice",
]
