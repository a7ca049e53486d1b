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


TURNS = 8
_SLOW_S = 2.0


def in_turns(*sides: Callable[[], dict[str, float]]) -> list[dict[str, float]]:
    """The least of each figure that each side's function returns, over a few turns of all sides one after the other.

    What else runs on the machine slows it for seconds: a side measured once alone would carry that by itself.  Sides
    that need many seconds for a turn have one.
    """
    least: list[dict[str, float]] = [{} for _ in sides]
    for _ in range(TURNS):
        start = time.perf_counter()
        for found, side in zip(least, sides, strict=True):
            for name, figure in side().items():
                found[name] = min(figure, found.get(name, figure))
        if time.perf_counter() - start > _SLOW_S:
            break
    return least
