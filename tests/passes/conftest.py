# SPDX-License-Identifier: Apache-2.0
"""Lets the tests of passes import the check that they share."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
