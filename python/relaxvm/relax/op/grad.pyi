# SPDX-License-Identifier: Apache-2.0
# Written by tools/make_stubs.py from the compiler's tables.
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from relaxvm.ir.expr import Call, Expr

# An expression, or what becomes one: a number, an array, a tuple.
Argument = Any

def end_checkpoint(input: Argument) -> Call: ...
def no_grad(input: Argument) -> Call: ...
def start_checkpoint(input: Argument) -> Call: ...
