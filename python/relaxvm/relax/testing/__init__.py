# SPDX-License-Identifier: Apache-2.0
"""What tests of Relax programs use."""

from . import nn
from .ast_printer import dump_ast

__all__ = ["dump_ast", "nn"]
