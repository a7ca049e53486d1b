# SPDX-License-Identifier: Apache-2.0
"""The table of patterns that external code generators take.  Later entries are tried first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..transform.fuse import FusionPattern, as_pattern

_patterns: list[FusionPattern] = []


def register_patterns(patterns: Sequence[Any]) -> None:
    """Adds patterns; those that come last are the more specific ones and are tried first."""
    _patterns.extend(as_pattern(p) for p in patterns)


def get_patterns_with_prefix(prefix: str) -> list[FusionPattern]:
    """All patterns whose name starts with `prefix`, the ones to try first in front."""
    return [p for p in reversed(_patterns) if p.name.startswith(prefix)]


def get_pattern(name: str) -> FusionPattern | None:
    """The pattern called `name`."""
    return next((p for p in reversed(_patterns) if p.name == name), None)
