# SPDX-License-Identifier: Apache-2.0
"""Attributes of operator calls, functions and modules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import tvm_ffi
from tvm_ffi import Object

from .. import _compiler

_attrs = _compiler.func("ir.Attrs")


@tvm_ffi.register_object("relaxvm.ir.Attrs")
class Attrs(Object):
    """Attributes of a call, by name: `call.attrs.axis` or `call.attrs["axis"]`."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.__init_handle_by_constructor__(_attrs, dict(values))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        values = self.values
        if name in values:
            return values[name]
        raise AttributeError(f"no attribute {name}; there are {', '.join(values)}")

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def __contains__(self, name: str) -> bool:
        return name in self.values

    def keys(self) -> list[str]:
        return list(self.values)

    def __repr__(self) -> str:
        return f"Attrs({', '.join(f'{name}={value!r}' for name, value in self.values.items())})"

    __str__ = __repr__

    def get_str(self, name: str) -> str:
        return str(self.values[name])

    def get_int(self, name: str) -> int:
        return int(self.values[name])


class DictAttrs(Mapping):
    """Attributes of a function or module: a read-only dictionary."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def get(self, name: str, default: Any = None) -> Any:
        # A KeyError from below would load the symbols of all libraries for its traceback: 30 MB.
        return self._values[name] if name in self._values else default

    def as_object(self) -> Any:
        return self._values

    def __repr__(self) -> str:
        return repr(dict(self._values))


def make_dict_attrs(**values: Any) -> dict[str, Any]:
    """Attributes from keyword arguments."""
    return values


def make_node(type_key: str, **fields: Any) -> Attrs:
    """Attributes as an object; `type_key` names the class that other programs know them under."""
    if not type_key.endswith("Attrs"):
        raise ValueError(f"make_node makes attributes only, no {type_key}; call the class itself")
    return Attrs(fields)
