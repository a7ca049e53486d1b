# SPDX-License-Identifier: Apache-2.0
"""Checks of well-formedness around passes."""

from __future__ import annotations

from typing import Any

from ...ir.instrument import PassInstrument
from ..analysis import check_well_formed


class WellFormedInstrument(PassInstrument):
    """Checks each module before and after a pass."""

    # These mend what the check would find.
    SKIPPED = frozenset({"Normalize", "NormalizeGlobalVar", "ResolveGlobals"})

    def __init__(self, validate_before_transform: bool = True) -> None:
        self.validate_before_transform = validate_before_transform

    def run_before_pass(self, mod: Any, info: Any) -> None:
        if self.validate_before_transform:
            self._check(mod, info, "before")

    def run_after_pass(self, mod: Any, info: Any) -> None:
        self._check(mod, info, "after")

    def _check(self, mod: Any, info: Any, when: str) -> None:
        if info.name in self.SKIPPED:
            return
        if not check_well_formed(mod):
            raise ValueError(f"{when} {info.name}: the module is not well formed\n{mod}")
