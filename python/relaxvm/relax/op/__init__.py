# SPDX-License-Identifier: Apache-2.0
"""Operators.  Functions are made from the compiler's table of operators when this package is imported: name, arguments,
attributes, defaults and documentation stand there once.  calls.py has those that take more than a row can say."""

from __future__ import annotations

from .build import call_operator, install

install(__name__)
# Operators on boxes go by their short names as well: relax.op.roi_align.
from . import vision as _vision  # noqa: E402  made by install

globals().update({k: v for k, v in vars(_vision).items() if not k.startswith("_")})

__all__ = ["call_operator"]
