# SPDX-License-Identifier: Apache-2.0
"""What can be wrong with a model: one class per kind, all of them ValueErrors with one clear message."""

from __future__ import annotations


class OnnxError(ValueError):
    """The model cannot be imported."""


class DamagedModel(OnnxError):
    """The file or the bytes are not a complete ONNX model."""


class InvalidModel(OnnxError):
    """The model breaks a rule of ONNX: an undefined name, a missing attribute, shapes that contradict."""


class UnsupportedModel(OnnxError, NotImplementedError):
    """The model is legal but needs something that is not implemented."""
