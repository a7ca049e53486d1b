# SPDX-License-Identifier: Apache-2.0
"""Values of algebraic data types, as functions of the VM take and give them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from relaxvm._ffi import runtime_function, tvm_ffi
from relaxvm.runtime.tensor import tensor

_make = runtime_function("runtime.make_adt")
_fields = runtime_function("runtime.adt_fields")


def _field(value: Any) -> Any:
    """NumPy values become tensors, lists and tuples stay nested."""
    if isinstance(value, (np.ndarray, np.generic)):
        return tensor(value)
    if isinstance(value, (list, tuple)) and not isinstance(value, tvm_ffi.Shape):
        return [_field(item) for item in value]
    return value


@tvm_ffi.register_object("relaxvm.ADT")
class ADT(tvm_ffi.Object):
    """A value of a data type: `tag` says which constructor made it, `fields` from what."""

    def __init__(self, tag: int, fields: Sequence[Any] = ()) -> None:
        self.__init_handle_by_constructor__(_make, tag, [_field(value) for value in fields])

    @property
    def fields(self) -> tuple[Any, ...]:
        return tuple(_fields(self))

    def __getitem__(self, index: int) -> Any:
        return self.fields[index]

    def __len__(self) -> int:
        return len(self.fields)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.fields)

    def __repr__(self) -> str:
        return f"ADT(tag={self.tag}, {len(self)} fields)"
