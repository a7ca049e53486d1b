# SPDX-License-Identifier: Apache-2.0
"""IRBuilder: functions and modules written by ordinary Python calls, in the words of the script.

with IRBuilder() as builder:
    with relax.function():
        R.func_name("main")
        x = R.arg("x", R.Tensor((4,), "float32"))
        R.func_ret_value(R.emit(R.exp(x)))
func = builder.get()
"""

from . import ir, relax
from .frames import IRBuilder

__all__ = ["IRBuilder", "ir", "relax"]
