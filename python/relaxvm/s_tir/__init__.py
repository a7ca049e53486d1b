# SPDX-License-Identifier: Apache-2.0
"""Schedules of tensor programs, under the names of TVM's scripts."""

from . import dlight

__all__ = ["dlight"]
