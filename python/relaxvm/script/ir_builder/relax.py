# SPDX-License-Identifier: Apache-2.0
"""Functions of an IRBuilder.  All names of R are here as well; `function` opens one instead of decorating it."""

from __future__ import annotations

from typing import Any

from .frames import FunctionFrame


def function(is_pure: bool = True, is_private: bool = False) -> FunctionFrame:
    """`with function():` around R.arg, R.emit and their kin, R.func_ret_value last."""
    return FunctionFrame(is_pure, is_private)


def __getattr__(name: str) -> Any:
    from .. import relax as script

    return getattr(script, name)
