# SPDX-License-Identifier: Apache-2.0
"""Passes and their context, by the older path."""

from ..transform import *  # noqa: F403
from ..transform import __all__ as __all__
