# SPDX-License-Identifier: Apache-2.0
"""What a profiled run shows: a table per kernel, the same as data, and a trace for Perfetto."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator, Sequence
from typing import Any

_PROCESS = 1


@dataclasses.dataclass(frozen=True)
class Event:
    """One call."""

    name: str
    kind: str  # "kernel", "builtin", "function" (of the program) or "packed"
    start_us: float
    duration_us: float
    num_bytes: float  # that a kernel touches; of the tensors among the arguments of other functions
    flop: float | None  # None: not known
    products: str  # "int8" or "bfloat16", where a kernel's sums are of products of these
    thread: int
    depth: int
    args: str


@dataclasses.dataclass(frozen=True)
class Row:
    """All calls of one function.  `self_us` is the time less that of the calls inside."""

    name: str
    kind: str
    calls: int
    time_us: float
    self_us: float
    share: float  # of the whole run, by self_us
    num_bytes: float
    flop: float | None
    products: str  # as in Event

    @property
    def gb_per_s(self) -> float:
        return self.num_bytes / self.self_us / 1e3 if self.self_us > 0 else 0.0

    @property
    def gflop_per_s(self) -> float | None:
        if self.flop is None:
            return None
        return self.flop / self.self_us / 1e3 if self.self_us > 0 else 0.0

    def to_dict(self) -> dict[str, Any]:
        rates = {"gb_per_s": self.gb_per_s, "gflop_per_s": self.gflop_per_s}
        return {**dataclasses.asdict(self), **rates}


class Profile:
    """Calls that were recorded, and how long the whole took."""

    def __init__(
        self, events: Sequence[Event], total_us: float, result: Any, num_lost: int = 0
    ) -> None:
        self.events = list(events)
        self.total_us = total_us
        self.result = result
        self.num_lost = num_lost  # calls that were too many to keep

    def _self_times(self) -> Iterator[tuple[Event, float]]:
        """Each event with its time less that of its direct calls."""
        inside: dict[tuple[int, int], float] = {}  # (thread, depth) -> time of calls since the last
        for event in self.events:  # a call ends after the calls in it
            children = inside.pop((event.thread, event.depth + 1), 0.0)
            key = (event.thread, event.depth)
            inside[key] = inside.get(key, 0.0) + event.duration_us
            yield event, max(0.0, event.duration_us - children)

    def rows(self) -> list[Row]:
        """One row a function, the one with most time of its own first."""
        groups: dict[str, list[tuple[Event, float]]] = {}
        for event, self_us in self._self_times():
            groups.setdefault(event.name, []).append((event, self_us))
        rows = []
        for name, calls in groups.items():
            events = [event for event, _ in calls]
            self_us = sum(time for _, time in calls)
            flops = [event.flop for event in events]
            rows.append(
                Row(
                    name,
                    events[0].kind,
                    len(events),
                    sum(event.duration_us for event in events),
                    self_us,
                    self_us / self.total_us if self.total_us > 0 else 0.0,
                    sum(event.num_bytes for event in events),
                    None if any(f is None for f in flops) else sum(f for f in flops if f),
                    events[0].products,
                )
            )
        return sorted(rows, key=lambda row: -row.self_us)

    def table(self) -> str:
        """The rows as text."""
        lines = [
            f"{'function':40} {'calls':>7} {'time us':>11} {'share':>6} {'MB':>10} {'GB/s':>7} "
            f"{'MFLOP':>9} {'GFLOP/s':>8}"
        ]
        for row in self.rows():
            rate = row.gflop_per_s
            work = (
                "        -        -" if row.flop is None else f"{row.flop / 1e6:9.3f} {rate:8.2f}"
            )
            lines.append(
                f"{row.name[:40]:40} {row.calls:7d} {row.self_us:11.1f} {row.share:6.1%} "
                f"{row.num_bytes / 1e6:10.3f} {row.gb_per_s:7.2f} {work}"
            )
        lines.append(f"{'total':40} {len(self.events):7d} {self.total_us:11.1f}")
        if self.num_lost:
            lines.append(f"{self.num_lost} more calls were too many to keep")
        return "\n".join(lines)

    __str__ = table

    def to_dict(self) -> dict[str, Any]:
        """The rows and the total as plain data, for JSON."""
        return {
            "total_us": self.total_us,
            "calls": len(self.events),
            "calls_lost": self.num_lost,
            "functions": [row.to_dict() for row in self.rows()],
        }

    def json(self) -> str:
        return json.dumps(self.to_dict(), indent=2)

    def trace(self) -> dict[str, Any]:
        """The calls as trace events, the format that https://ui.perfetto.dev opens."""
        threads = sorted({event.thread for event in self.events})
        events: list[dict[str, Any]] = [
            {"name": "process_name", "ph": "M", "pid": _PROCESS, "args": {"name": "relaxvm"}}
        ]
        events += [
            {
                "name": "thread_name",
                "ph": "M",
                "pid": _PROCESS,
                "tid": thread,
                "args": {"name": f"VM thread {thread}"},
            }
            for thread in threads
        ]
        for event in sorted(self.events, key=lambda event: (event.start_us, event.depth)):
            args: dict[str, Any] = {"arguments": event.args, "bytes": event.num_bytes}
            if event.flop is not None:
                args["flop"] = event.flop
            events.append(
                {
                    "name": event.name,
                    "cat": event.kind,
                    "ph": "X",
                    "ts": event.start_us,
                    "dur": event.duration_us,
                    "pid": _PROCESS,
                    "tid": event.thread,
                    "args": args,
                }
            )
        return {"traceEvents": events, "displayTimeUnit": "ns"}

    def save_trace(self, path: str | os.PathLike) -> None:
        """Writes a trace that https://ui.perfetto.dev opens."""
        partial = f"{os.fspath(path)}.partial"
        with open(partial, "w", encoding="utf-8") as file:
            json.dump(self.trace(), file)
        os.replace(partial, path)
