# SPDX-License-Identifier: Apache-2.0
"""Lets the tests of this folder import its programs."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
