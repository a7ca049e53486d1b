# SPDX-License-Identifier: Apache-2.0
"""Operators on tensor expressions: the compute rules of the table of operators, by topi's names and parameters."""

from __future__ import annotations

import sys
import types

from ..te.tensor import Tensor
from . import arrays, layers
from .fast_math import fast_erf, fast_exp, fast_softmax, fast_tanh
from .operators import OPERATORS


def _install() -> None:
    for full_name, function in OPERATORS.items():
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


_install()
nn = sys.modules[__name__ + ".nn"]
for _name, _function in arrays.FUNCTIONS.items():
    globals()[_name] = _function
for _name, _function in layers.LAYERS.items():
    setattr(nn, _name, _function)
image = sys.modules[__name__ + ".image"]
image.resize2d = layers.resize2d  # type: ignore[attr-defined]
nn.fast_softmax = fast_softmax  # type: ignore[attr-defined]

__all__ = ["Tensor", "fast_erf", "fast_exp", "fast_tanh", "image", "nn"]
