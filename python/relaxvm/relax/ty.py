# SPDX-License-Identifier: Apache-2.0
"""The type of packed functions, where TVM has it."""

from .type import PackedFuncType

__all__ = ["PackedFuncType"]
