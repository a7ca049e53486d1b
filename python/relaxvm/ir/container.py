# SPDX-License-Identifier: Apache-2.0
"""Immutable lists and dictionaries shared with C++."""

from tvm_ffi import Array, Map

__all__ = ["Array", "Map"]
