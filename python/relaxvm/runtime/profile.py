# SPDX-License-Identifier: Apache-2.0
"""What a profiled run shows: a table per function, and a trace for Perfetto."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True)
class Event:
    """One call."""

    name: str
    start_us: float
    duration_us: float
    num_bytes: int
    thread: int
    depth: int


@dataclasses.dataclass(frozen=True)
class Row:
    """All calls of one function."""

    name: str
    calls: int
    time_us: float
    share: float
    num_bytes: int

    @property
    def gb_per_s(self) -> float:
        return self.num_bytes / self.time_us / 1e3 if self.time_us > 0 else 0.0


class Profile:
    """Calls that were recorded, and how long the whole took."""

    def __init__(self, events: Sequence[Event], total_us: float, result) -> None:
        self.events = list(events)
        self.total_us = total_us
        self.result = result

    def rows(self) -> list[Row]:
        """One row a function, the slowest first; the time of a function includes what it calls."""
        groups: dict[str, list[Event]] = {}
        for event in self.events:
            groups.setdefault(event.name, []).append(event)
        rows = []
        for name, events in groups.items():
            time_us = sum(event.duration_us for event in events)
            share = time_us / self.total_us if self.total_us > 0 else 0.0
            rows.append(Row(name, len(events), time_us, share, sum(e.num_bytes for e in events)))
        return sorted(rows, key=lambda row: -row.time_us)

    def table(self) -> str:
        """The rows as text."""
        lines = [f"{'function':40} {'calls':>7} {'time us':>10} {'share':>6} {'MB':>9} {'GB/s':>7}"]
        for row in self.rows():
            lines.append(
                f"{row.name[:40]:40} {row.calls:7d} {row.time_us:10.1f} {row.share:6.1%} "
                f"{row.num_bytes / 1e6:9.3f} {row.gb_per_s:7.2f}"
            )
        lines.append(f"{'total':40} {len(self.events):7d} {self.total_us:10.1f}")
        return "\n".join(lines)

    __str__ = table

    def save_trace(self, path: str | os.PathLike) -> None:
        """Writes a trace that https://ui.perfetto.dev opens."""
        events = [
            {
                "name": event.name,
                "ph": "X",
                "ts": event.start_us,
                "dur": event.duration_us,
                "pid": 1,
                "tid": event.thread,
                "args": {"bytes": event.num_bytes},
            }
            for event in self.events
        ]
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"traceEvents": events, "displayTimeUnit": "ns"}, file)
