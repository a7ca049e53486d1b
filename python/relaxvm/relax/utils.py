# SPDX-License-Identifier: Apache-2.0
"""Conversions and copies."""

from __future__ import annotations

from .. import _compiler
from .expr import Function, to_expr

convert_to_expr = to_expr


def copy_with_new_vars(func: Function) -> Function:
    """A copy with fresh variables throughout, symbolic sizes included."""
    return _compiler.func("relax.CopyWithFreshVars")(func)


__all__ = ["convert_to_expr", "copy_with_new_vars"]
