# SPDX-License-Identifier: Apache-2.0
"""Instruments: what runs around every pass."""

from __future__ import annotations

from typing import Any


class PassInstrument:
    """Override what is of interest; `should_run` may skip a pass."""

    def enter_pass_ctx(self) -> None:
        """The context that lists this instrument has been entered."""

    def exit_pass_ctx(self) -> None:
        """It is being left."""

    def should_run(self, mod: Any, info: Any) -> bool:
        return True

    def run_before_pass(self, mod: Any, info: Any) -> None:
        """`info.name` is about to run on `mod`."""

    def run_after_pass(self, mod: Any, info: Any) -> None:
        """`info.name` has made `mod`."""


def pass_instrument(cls: type) -> type:
    """Decorates a class with some of PassInstrument's methods: it becomes an instrument."""
    if issubclass(cls, PassInstrument):
        return cls
    return type(cls.__name__, (cls, PassInstrument), {"__doc__": cls.__doc__})


class PrintBeforeAll(PassInstrument):
    """Prints each module before a pass."""

    def run_before_pass(self, mod: Any, info: Any) -> None:
        print(f"Before {info.name}\n{mod}")


class PrintAfterAll(PassInstrument):
    """Prints each module after a pass."""

    def run_after_pass(self, mod: Any, info: Any) -> None:
        print(f"After {info.name}\n{mod}")


class PassTimingInstrument(PassInstrument):
    """Times passes; `render()` lists them."""

    def __init__(self) -> None:
        self._begin: list[float] = []
        self.times: list[tuple[str, float]] = []

    def run_before_pass(self, mod: Any, info: Any) -> None:
        import time

        self._begin.append(time.perf_counter())

    def run_after_pass(self, mod: Any, info: Any) -> None:
        import time

        self.times.append((info.name, time.perf_counter() - self._begin.pop()))

    def render(self) -> str:
        return "\n".join(f"{1e6 * t:12.0f} us  {name}" for name, t in self.times)
