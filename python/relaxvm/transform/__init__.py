# SPDX-License-Identifier: Apache-2.0
"""Passes, their context and their instruments."""

from ..ir.instrument import PassInstrument, pass_instrument
from .passes import (
    BuiltinPass,
    ModulePass,
    Pass,
    PassContext,
    PassInfo,
    PrintIR,
    Sequential,
    module_pass,
    pass_function,
)
from .subset import ApplyPassToFunction

__all__ = [
    "ApplyPassToFunction",
    "BuiltinPass",
    "ModulePass",
    "Pass",
    "PassContext",
    "PassInfo",
    "PassInstrument",
    "PrintIR",
    "Sequential",
    "module_pass",
    "pass_function",
    "pass_instrument",
]
