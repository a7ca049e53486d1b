# SPDX-License-Identifier: Apache-2.0
"""Front ends: programs from other frameworks, and models written in Python."""

from __future__ import annotations

import importlib
from typing import Any

_MODULES = ("common", "nn", "onnx", "torch")


def __getattr__(name: str) -> Any:
    if name == "detach_params":
        return importlib.import_module(f"{__name__}.common").detach_params
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__} has no attribute {name}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES, "detach_params"})
