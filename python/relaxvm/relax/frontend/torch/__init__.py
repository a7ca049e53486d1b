# SPDX-License-Identifier: Apache-2.0
"""Programs of PyTorch become Relax modules: those of `torch.export`, and graphs of `torch.fx` and `torch.compile`."""

from .errors import TorchError, UnsupportedProgram
from .fx import dynamo_capture_subgraphs, from_fx, relax_dynamo
from .importer import from_exported_program

__all__ = [
    "TorchError",
    "UnsupportedProgram",
    "dynamo_capture_subgraphs",
    "from_exported_program",
    "from_fx",
    "relax_dynamo",
]
