# SPDX-License-Identifier: Apache-2.0
"""What a module knows besides its functions, by the path that programs of the graph language use."""

from ..ir.global_info import DummyGlobalInfo, GlobalInfo, VDevice

__all__ = ["DummyGlobalInfo", "GlobalInfo", "VDevice"]
