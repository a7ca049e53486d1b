# SPDX-License-Identifier: Apache-2.0
"""What a module knows besides its functions."""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm_ffi import Object

from .. import _compiler
from .base import Scriptable

_vdevice = _compiler.func("ir.VDevice")
_dummy = _compiler.func("ir.DummyGlobalInfo")


@tvm_ffi.register_object("relaxvm.ir.GlobalInfo")
class GlobalInfo(Scriptable, Object):
    """Base of what a module lists by name."""


def target_text(target: Any) -> str:
    """A target as one line: a dictionary becomes "kind -key=value"."""
    if isinstance(target, dict):
        options = [f"-{k}={v}" for k, v in target.items() if k != "kind"]
        return " ".join([str(target["kind"]), *options])
    return str(target)


@tvm_ffi.register_object("relaxvm.ir.VDevice")
class VDevice(GlobalInfo):
    """A device as a program sees it: target, index, where its memory lies."""

    def __init__(
        self, target: Any = None, vdevice_id: int = 0, memory_scope: str = "global"
    ) -> None:
        text = "llvm" if target is None else target_text(target)
        self.__init_handle_by_constructor__(_vdevice, text, vdevice_id, memory_scope)


@tvm_ffi.register_object("relaxvm.ir.DummyGlobalInfo")
class DummyGlobalInfo(GlobalInfo):
    def __init__(self) -> None:
        self.__init_handle_by_constructor__(_dummy)
