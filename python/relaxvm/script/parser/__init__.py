# SPDX-License-Identifier: Apache-2.0
"""The parser: Python's syntax tree becomes a module or function; every error says file, line and column."""

from .. import ir, relax, tirx
from .entry import from_source, parse

__all__ = ["from_source", "ir", "parse", "relax", "tirx"]
