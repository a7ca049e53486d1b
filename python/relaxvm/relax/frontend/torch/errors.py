# SPDX-License-Identifier: Apache-2.0
"""What can be wrong with an exported program."""

from __future__ import annotations


class TorchError(ValueError):
    """The program cannot be imported."""


class UnsupportedProgram(TorchError, NotImplementedError):
    """The program is legal but needs something that is not implemented."""
