# SPDX-License-Identifier: Apache-2.0
"""Exceptions that users catch by name."""

from __future__ import annotations

TVMError = RuntimeError
InternalError = RuntimeError


class DiagnosticError(Exception):
    """A script is wrong: the message says where (file:line:column), what, and what to do."""


class AttributeValueError(ValueError, RuntimeError):
    """An operator cannot be called with such an attribute, a function cannot be differentiated as asked.  Besides the
    ValueError that it is, what users of Relax catch (`InternalError`)."""
