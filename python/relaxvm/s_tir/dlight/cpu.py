# SPDX-License-Identifier: Apache-2.0
"""Rules by their names for a CPU."""

from .rule import ScheduleRule


class GEMV(ScheduleRule):
    """A matrix times a vector."""


class Reduction(ScheduleRule):
    """A sum or another reduction."""
