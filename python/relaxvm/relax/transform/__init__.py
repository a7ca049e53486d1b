# SPDX-License-Identifier: Apache-2.0
"""Passes over the graph language.  Their factories are made from the compiler's table of passes when this package is
imported: name, options, defaults and documentation stand there once."""

from __future__ import annotations

from ...transform import Pass, PassContext, PassInfo, Sequential, module_pass
from .factories import install
from .function_pass import DataflowBlockPass, FunctionPass, dataflowblock_pass, function_pass

__all__ = [
    "DataflowBlockPass",
    "FunctionPass",
    "Pass",
    "PassContext",
    "PassInfo",
    "Sequential",
    "dataflowblock_pass",
    "function_pass",
    "module_pass",
]
__all__ += install(globals())
