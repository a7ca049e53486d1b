# SPDX-License-Identifier: Apache-2.0
"""Passes for tests."""

from __future__ import annotations

from typing import Any


def ApplyEmptyCppMutator() -> Any:
    """A pass that rebuilds every function as the compiler's own passes do, and changes nothing else."""
    from ..transform import Normalize  # type: ignore[attr-defined]

    return Normalize()
