# SPDX-License-Identifier: Apache-2.0
"""The names that users of TVM find in nn.core."""

from __future__ import annotations

from .containers import ModuleDict, ModuleList, ParameterDict, ParameterList
from .module import Module
from .tensor import (
    Effect,
    Object,
    Parameter,
    Tensor,
    get_default_dtype,
    set_default_dtype,
    wrap_nested,
)

__all__ = [
    "Effect",
    "Module",
    "ModuleDict",
    "ModuleList",
    "Object",
    "Parameter",
    "ParameterDict",
    "ParameterList",
    "Tensor",
    "get_default_dtype",
    "set_default_dtype",
    "wrap_nested",
]
