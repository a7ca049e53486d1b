# SPDX-License-Identifier: Apache-2.0
"""Lets the tests of operators import what they share (ops_*.py beside this file)."""

from __future__ import annotations

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
