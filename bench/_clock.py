# SPDX-License-Identifier: Apache-2.0
"""The clock of all programs here.  Knows nothing of the project: a peer's interpreter imports it too."""

from __future__ import annotations

import time
from collections.abc import Callable


def least_seconds(run: Callable[[], object], budget: float, rounds: int = 1) -> float:
    """The least time of one call in `budget` seconds and at least `rounds` calls, after one that does not count."""
    run()
    least, end = float("inf"), time.perf_counter() + budget
    while rounds > 0 or time.perf_counter() < end:
        start = time.perf_counter()
        run()
        least = min(least, time.perf_counter() - start)
        rounds -= 1
    return least
