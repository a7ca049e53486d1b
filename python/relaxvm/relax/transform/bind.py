# SPDX-License-Identifier: Apache-2.0
"""Functions with parameters or sizes given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ... import _compiler
from ...ir.expr import Expr
from ..expr import to_tensor
from .factories import _option

_bind_params = _compiler.func("relax.BindParams")
_inline = _compiler.func("relax.InlineFunctions")
_bind_sizes = _compiler.func("relax.BindSymbolicVars")


def bind_params(func: Any, values: Mapping[Any, Any]) -> Any:
    """Parameters, by object or name, replaced by tensors, arrays or expressions."""
    table = {k: v if isinstance(v, (Expr, int)) else to_tensor(v) for k, v in values.items()}
    return _bind_params(func, table)


def bind_symbolic_vars(func: Any, values: Mapping[Any, Any]) -> Any:
    """Sizes, by object or name, replaced by numbers or expressions."""
    return _bind_sizes(func, {k: _option(v) for k, v in values.items()})


def inline_functions(func: Any, functions: Mapping[Any, Any]) -> Any:
    """Calls of functions, by GlobalVar or name, replaced by their bodies."""
    table: dict[str, Any] = {}
    for key, value in functions.items():
        name = key if isinstance(key, str) else str(key.name_hint)
        if name in table:
            raise ValueError(f"inline_functions: {name} is given twice")
        table[name] = value
    return _inline(func, table)
