# SPDX-License-Identifier: Apache-2.0
"""Rules by their names for a GPU."""

from .rule import ScheduleRule


class Fallback(ScheduleRule):
    """Whatever no other rule is for."""


class GEMV(ScheduleRule):
    """A matrix times a vector."""


class GeneralReduction(ScheduleRule):
    """Several reductions along one axis, as in a softmax."""


class LowBatchGEMV(ScheduleRule):
    """A matrix times a few vectors."""


class Matmul(ScheduleRule):
    """A product of matrices."""


class RMSNorm(ScheduleRule):
    """A normalisation by the root of the mean square."""


class Reduction(ScheduleRule):
    """A sum or another reduction."""


class Transpose(ScheduleRule):
    """A permutation of axes."""
