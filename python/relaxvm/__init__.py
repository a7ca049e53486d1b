# SPDX-License-Identifier: Apache-2.0
"""relaxvm compiles machine-learning models to one small native program and runs it on a register virtual machine.

Importing it loads neither the compiler nor its languages: names are found when they are first used."""

from __future__ import annotations

import importlib
from typing import Any

# name -> module that has it
_NAMES = {
    "IRModule": "relaxvm.ir.module",
    "TVMError": "relaxvm.error",
}
_MODULES = (
    "analysis",
    "arith",
    "error",
    "ir",
    "relax",
    "runtime",
    "script",
    "te",
    "testing",
    "tirx",
    "topi",
    "transform",
)


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        value = getattr(importlib.import_module(_NAMES[name]), name)
    elif name in _MODULES:
        value = importlib.import_module(f"{__name__}.{name}")
    else:
        raise AttributeError(f"module relaxvm has no attribute {name}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_NAMES, *_MODULES})
