# SPDX-License-Identifier: Apache-2.0
"""What tests of Relax programs use."""

from . import nn
from .ast_printer import dump_ast
from .attention import get_relax_attention_module, get_relax_stacked_attention_module
from .matmul import get_relax_matmul_module

__all__ = [
    "dump_ast",
    "get_relax_attention_module",
    "get_relax_matmul_module",
    "get_relax_stacked_attention_module",
    "nn",
]
