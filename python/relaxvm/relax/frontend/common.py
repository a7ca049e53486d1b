# SPDX-License-Identifier: Apache-2.0
"""What front ends share with those who use their programs."""

from __future__ import annotations

from typing import Any

from ...ir.module import IRModule
from ..expr import Function


def detach_params(mod: IRModule) -> tuple[IRModule, dict[str, list[Any]]]:
    """The module without the attribute `params` of its functions, and the tensors of these attributes by the names of
    the functions (what `keep_params_in_input` of a front end left there)."""
    detached, params = mod.clone(), {}
    for var, func in mod.functions_items():
        if isinstance(func, Function) and "params" in func.attrs:
            params[str(var.name_hint)] = list(func.attrs["params"])
            detached.update_func(var, func.without_attr("params"))
    return detached, params
