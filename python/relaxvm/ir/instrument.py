# SPDX-License-Identifier: Apache-2.0
"""Instruments: what runs around every pass."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
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


class PassPrintingInstrument(PassInstrument):
    """Prints modules before and after the passes that are named."""

    def __init__(
        self, print_before_pass_names: Sequence[str], print_after_pass_names: Sequence[str]
    ) -> None:
        self.print_before_pass_names = list(print_before_pass_names)
        self.print_after_pass_names = list(print_after_pass_names)

    def run_before_pass(self, mod: Any, info: Any) -> None:
        if info.name in self.print_before_pass_names:
            print(f"Print IR before: {info.name}\n{mod}\n")

    def run_after_pass(self, mod: Any, info: Any) -> None:
        if info.name in self.print_after_pass_names:
            print(f"Print IR after: {info.name}\n{mod}\n")


class DumpIR(PassInstrument):
    """Writes the module after each pass into a folder: 000_LegalizeOps.py, 001_...

    The folder is made when it is missing; `refresh` removes what an earlier dump left there.  Raises ValueError when
    `refresh` would remove other files.
    """

    _WRITTEN = re.compile(r"\d{3,}_\w+\.py")

    def __init__(self, dump_dir: Path | str, refresh: bool = False) -> None:
        self.dump_dir, self.counter = Path(dump_dir), 0
        if refresh and self.dump_dir.exists():
            found = list(self.dump_dir.iterdir())
            others = [
                p.name for p in found if not (p.is_file() and self._WRITTEN.fullmatch(p.name))
            ]
            if others:
                raise ValueError(
                    f"{self.dump_dir} has files that no dump wrote: {', '.join(sorted(others))}; "
                    "take another folder, or refresh=False"
                )
            for path in found:
                path.unlink()

    def run_after_pass(self, mod: Any, info: Any) -> None:
        name = re.sub(r"\W", "_", str(info.name))
        self.dump_dir.mkdir(parents=True, exist_ok=True)
        (self.dump_dir / f"{self.counter:03d}_{name}.py").write_text(str(mod))
        self.counter += 1


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
