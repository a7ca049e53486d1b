# SPDX-License-Identifier: Apache-2.0
"""Default schedules of tensor programs.

The compiler's schedule picks itself from shapes and the machine's description.  Rules are named for scripts that name
them; all stand for that one schedule."""

from __future__ import annotations

from collections.abc import Callable

from relaxvm.ir.module import IRModule
from relaxvm.relax.transform import ScheduleTensorPrograms

from . import cpu, gpu
from .rule import ScheduleRule


def ApplyDefaultSchedule(*rules: ScheduleRule) -> Callable[[IRModule], IRModule]:
    """The pass that gives tensor programs their final loops, as compilation does; once is as good as twice."""
    for rule in rules:
        if not isinstance(rule, ScheduleRule):
            raise TypeError(f"{rule!r} is no schedule rule; write dlight.cpu.GEMV()")
    return ScheduleTensorPrograms()


__all__ = ["ApplyDefaultSchedule", "ScheduleRule", "cpu", "gpu"]
