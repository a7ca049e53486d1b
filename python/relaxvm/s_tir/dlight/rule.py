# SPDX-License-Identifier: Apache-2.0
"""What rules have in common."""


class ScheduleRule:
    """A kind of program that a script wants scheduled."""
