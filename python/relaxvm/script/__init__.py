# SPDX-License-Identifier: Apache-2.0
"""TVMScript: programs of both languages written as Python.

from relaxvm.script import ir as I, relax as R, tirx as T
"""

from . import ir, ir_builder, parser, relax, tirx
from .ir import ir_module
from .parser import from_source, parse

__all__ = ["from_source", "ir", "ir_builder", "ir_module", "parse", "parser", "relax", "tirx"]
