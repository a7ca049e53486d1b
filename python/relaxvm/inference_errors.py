# SPDX-License-Identifier: Apache-2.0
"""Errors of InferenceSession, named as ONNX Runtime names its own.

They are classes of this library: a client that catches `onnxruntime`'s classes has to catch these
instead (`from relaxvm.inference import InvalidArgument`).
"""

from __future__ import annotations


class InferenceError(RuntimeError):
    """Base of all errors of an InferenceSession."""


class Fail(InferenceError):
    """The model could not be compiled or run."""


class InvalidArgument(InferenceError, ValueError):
    """An input, an output name or an option is wrong."""


class NoSuchFile(InferenceError, FileNotFoundError):
    """There is no model at this path."""

    def __str__(self) -> str:  # OSError would print an error number
        return str(self.args[0])


class InvalidProtobuf(InferenceError, ValueError):
    """The model is no ONNX model, or is damaged or truncated."""


class InvalidGraph(InferenceError, ValueError):
    """The model breaks a rule of ONNX."""


class NotImplemented(InferenceError, NotImplementedError):  # noqa: A001: ONNX Runtime's name
    """Something that is legal but not supported."""
