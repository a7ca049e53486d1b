# SPDX-License-Identifier: Apache-2.0
"""Codes of the VM's shape builtins, as programs write them by hand."""

from __future__ import annotations

from enum import IntEnum


class MatchShapeCode(IntEnum):
    """What vm.builtin.match_shape does with a dimension."""

    ASSERT_EQUAL_TO_IMM = 0
    STORE_TO_HEAP = 1
    NO_OP = 2
    ASSERT_EQUAL_TO_LOAD = 3


class MakeShapeCode(IntEnum):
    """Where vm.builtin.make_shape takes a dimension from."""

    USE_IMM = 0
    LOAD_SHAPE = 1
