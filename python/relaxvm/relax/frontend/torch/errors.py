# SPDX-License-Identifier: Apache-2.0
"""What can be wrong with an exported program."""

from __future__ import annotations


class TorchError(ValueError):
    """The program cannot be imported."""


class UnsupportedProgram(TorchError, NotImplementedError):
    """The program is legal but needs something that is not implemented."""


def refuse_training(drops_values: bool) -> None:
    if drops_values:
        raise UnsupportedProgram("it drops values at random; export the model after model.eval()")
