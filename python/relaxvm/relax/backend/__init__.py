# SPDX-License-Identifier: Apache-2.0
"""Patterns of external code generators, by name."""

from .pattern_registry import get_pattern, get_patterns_with_prefix, register_patterns

__all__ = ["get_pattern", "get_patterns_with_prefix", "register_patterns"]
