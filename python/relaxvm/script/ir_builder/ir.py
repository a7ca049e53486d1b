# SPDX-License-Identifier: Apache-2.0
"""Modules of an IRBuilder."""

from __future__ import annotations

from .frames import ModuleFrame


def ir_module() -> ModuleFrame:
    """`with ir_module():` around functions makes them one module."""
    return ModuleFrame()
