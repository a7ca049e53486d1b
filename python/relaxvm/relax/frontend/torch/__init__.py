# SPDX-License-Identifier: Apache-2.0
"""Programs that `torch.export` makes become Relax modules: `from_exported_program`."""

from .errors import TorchError, UnsupportedProgram
from .importer import from_exported_program

__all__ = ["TorchError", "UnsupportedProgram", "from_exported_program"]
