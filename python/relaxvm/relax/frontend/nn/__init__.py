# SPDX-License-Identifier: Apache-2.0
"""Models written in Python: modules with parameters, whose methods are traced into Relax functions."""

from __future__ import annotations

from typing import Any

from . import core, modules, op, spec
from .core import (
    Effect,
    Module,
    ModuleDict,
    ModuleList,
    Object,
    Parameter,
    ParameterDict,
    ParameterList,
    Tensor,
    get_default_dtype,
    wrap_nested,
)
from .exporter import add_extern
from .extern import ExternModule, ObjectModule, SourceModule
from .modules import (
    GELU,
    Conv1D,
    Conv2D,
    Conv3D,
    ConvTranspose1D,
    Embedding,
    GroupNorm,
    IOEffect,
    KVCache,
    LayerNorm,
    Linear,
    ReLU,
    RMSNorm,
    SiLU,
)
from .op import extern  # the function; the submodule of that name is imported above
from .subroutine import SubroutineMixin
from .visitor import Mutator

__all__ = [
    "GELU",
    "Conv1D",
    "Conv2D",
    "Conv3D",
    "ConvTranspose1D",
    "Effect",
    "Embedding",
    "ExternModule",
    "GroupNorm",
    "IOEffect",
    "KVCache",
    "LayerNorm",
    "Linear",
    "Module",
    "ModuleDict",
    "ModuleList",
    "Mutator",
    "Object",
    "ObjectModule",
    "Parameter",
    "ParameterDict",
    "ParameterList",
    "RMSNorm",
    "ReLU",
    "SiLU",
    "SourceModule",
    "SubroutineMixin",
    "Tensor",
    "add_extern",
    "core",
    "extern",
    "get_default_dtype",
    "modules",
    "op",
    "spec",
    "wrap_nested",
]


def __getattr__(name: str) -> Any:
    """The functions of nn.op are names of nn, too."""
    if name in op.__all__:
        return getattr(op, name)
    raise AttributeError(f"module {__name__} has no attribute {name}")


def __dir__() -> list[str]:
    return sorted({*globals(), *op.__all__})
