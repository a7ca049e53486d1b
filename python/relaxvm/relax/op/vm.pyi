# SPDX-License-Identifier: Apache-2.0
# Written by tools/make_stubs.py from the compiler's tables.
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from relaxvm.ir.expr import Call, Expr

# An expression, or what becomes one: a number, an array, a tuple.
Argument = Any

def alloc_storage(shape: Argument, runtime_device_index: Argument, dtype: Argument, storage_scope: Argument = 'global') -> Call: ...
def alloc_tensor(storage: Argument, offset: Argument, shape: Argument, dtype: Argument, runtime_device_ind: Argument = 0) -> Call: ...
def call_tir_dyn(func: Argument, args: Any) -> Call: ...
def kill_object(obj: Argument) -> Call: ...
