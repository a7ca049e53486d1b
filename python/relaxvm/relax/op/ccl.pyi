# SPDX-License-Identifier: Apache-2.0
# Written by tools/make_stubs.py from the compiler's tables.
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from relaxvm.ir.expr import Call, Expr

# An expression, or what becomes one: a number, an array, a tuple.
Argument = Any

def allgather(x: Argument, num_workers: int, in_group: bool = True) -> Call: ...
def allreduce(x: Argument, op_type: str = 'sum', in_group: bool = True) -> Call: ...
def broadcast_from_worker0(x: Argument) -> Call: ...
def scatter_from_worker0(x: Argument, num_workers: int, axis: int = 0) -> Call: ...
