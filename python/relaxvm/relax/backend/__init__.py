# SPDX-License-Identifier: Apache-2.0
"""Passes and lists of passes for kinds of machines; patterns of external code generators, by name."""

from .dispatch_sampling import DispatchSampling
from .dispatch_sort_scan import DispatchSortScan
from .pattern_registry import get_pattern, get_patterns_with_prefix, register_patterns

__all__ = [
    "DispatchSampling",
    "DispatchSortScan",
    "get_pattern",
    "get_patterns_with_prefix",
    "register_patterns",
]
