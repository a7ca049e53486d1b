# SPDX-License-Identifier: Apache-2.0
"""AttachExternModules: the code of external functions goes with the module to the compiler."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relaxvm.ir.module import IRModule

from ...transform import Pass, module_pass

EXTERNAL_MODULES = "external_mods"


def AttachExternModules(extern_modules: Sequence[Any]) -> Pass:
    """Loads external modules (nn.ExternModule, or what else has `load`) and keeps them as the module's attribute
    `external_mods`; executables made of it import them."""

    @module_pass(opt_level=0, name="AttachExternModules")
    def attach(mod: IRModule, context: Any) -> IRModule:
        loaded = [code for m in extern_modules if (code := m.load()) is not None]
        if not loaded:
            return mod
        known = list(mod.get_attr(EXTERNAL_MODULES) or [])
        return mod.with_attr(EXTERNAL_MODULES, known + loaded)

    return attach
