# SPDX-License-Identifier: Apache-2.0
"""Instruments of the graph language."""

from . import instrument

__all__ = ["instrument"]
