# SPDX-License-Identifier: Apache-2.0
"""ONNX models become Relax modules: `from_onnx`."""

from .errors import DamagedModel, InvalidModel, OnnxError, UnsupportedModel
from .importer import from_onnx

__all__ = ["DamagedModel", "InvalidModel", "OnnxError", "UnsupportedModel", "from_onnx"]
