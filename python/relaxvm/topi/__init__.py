# SPDX-License-Identifier: Apache-2.0
"""Operators on tensor expressions: the compute rules of the table of operators, by topi's names and parameters."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

from ..te.tensor import Tensor
from ..tirx import div, floordiv, floormod
from . import arrays, convolutions, elementwise, images, indexing, layers, signals
from .fast_math import fast_erf, fast_exp, fast_softmax, fast_tanh
from .operators import OPERATORS


def _install(full_name: str, function: Callable[..., Any]) -> None:
    *folders, name = full_name.split(".")
    module = sys.modules[__name__]
    for folder in folders:
        full = f"{module.__name__}.{folder}"
        if full not in sys.modules:
            sys.modules[full] = types.ModuleType(
                full, f"Operators {folder}.* on tensor expressions."
            )
            setattr(module, folder, sys.modules[full])
        module = sys.modules[full]
    setattr(module, name, function)


def _functions_of(module: types.ModuleType) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Those that are written there, not imported."""
    for name, value in vars(module).items():
        is_own = callable(value) and getattr(value, "__module__", "") == module.__name__
        if is_own and not name.startswith("_"):
            yield name, value


for _name, _function in [*OPERATORS.items(), *elementwise.FUNCTIONS.items()]:
    _install(_name, _function)
for _module, _folder in (
    (arrays, ""),
    (indexing, ""),
    (signals, ""),
    (layers, "nn."),
    (convolutions, "nn."),
    (images, "image."),
):
    for _name, _function in _functions_of(_module):
        _install(("nn." if _name.startswith("upsampling") else _folder) + _name, _function)
_install("nn.fast_softmax", fast_softmax)
nn, image = sys.modules[__name__ + ".nn"], sys.modules[__name__ + ".image"]

__all__ = [
    "Tensor",
    "div",
    "fast_erf",
    "fast_exp",
    "fast_tanh",
    "floordiv",
    "floormod",
    "image",
    "nn",
]
