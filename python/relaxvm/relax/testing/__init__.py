# SPDX-License-Identifier: Apache-2.0
"""What tests of Relax programs use."""

from .ast_printer import dump_ast

__all__ = ["dump_ast"]
