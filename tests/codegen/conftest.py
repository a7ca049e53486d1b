# SPDX-License-Identifier: Apache-2.0
"""Lets the tests of this folder import its programs, and the families of kernels of tests/schedule."""

from __future__ import annotations

import pathlib
import sys

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "schedule")]
