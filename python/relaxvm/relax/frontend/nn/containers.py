# SPDX-License-Identifier: Apache-2.0
"""Modules and parameters in lists and dicts; plain lists and dicts are not searched for parameters."""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from typing import Any, Generic, TypeVar

from .module import Module
from .tensor import Parameter

Item = TypeVar("Item", Module, Parameter)


class _Dict(Module, Generic[Item]):
    _items: dict[str, Item]

    def _children(self) -> Iterator[tuple[str, Any]]:
        yield from self._items.items()

    def __getitem__(self, key: str) -> Item:
        return self._items[key]

    def __setitem__(self, key: str, item: Item) -> None:
        self._items[key] = item

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, key: str) -> bool:
        return key in self._items

    def keys(self) -> KeysView[str]:
        return self._items.keys()

    def values(self) -> ValuesView[Item]:
        return self._items.values()

    def items(self) -> ItemsView[str, Item]:
        return self._items.items()

    def get(self, key: str, default: Item | None = None) -> Item | None:
        return self._items.get(key, default)

    def update(self, items: Mapping[str, Item]) -> None:
        for key, item in items.items():
            self[key] = item

    def clear(self) -> None:
        self._items.clear()

    def pop(self, key: str) -> Item:
        return self._items.pop(key)

    def to(self, dtype: str | None = None) -> None:
        for item in self._items.values():
            item.to(dtype=dtype)


class ModuleDict(_Dict[Module]):
    """Modules by name; iterating gives the modules."""

    def __init__(self, modules: Mapping[str, Module] | None = None) -> None:
        self._items = dict(modules or {})

    @property
    def modules(self) -> dict[str, Module]:
        return self._items

    def __iter__(self) -> Iterator[Module]:
        return iter(self._items.values())


class ParameterDict(_Dict[Parameter]):
    """Parameters by name; iterating gives the names."""

    def __init__(self, params: Mapping[str, Parameter] | None = None) -> None:
        self._items = {}
        self.update(params or {})

    @property
    def params(self) -> dict[str, Parameter]:
        return self._items

    def __setitem__(self, key: str, param: Parameter) -> None:
        if not isinstance(key, str):
            raise TypeError(f"a key of ParameterDict is a string, not {type(key).__name__}")
        _check_parameter(param, "ParameterDict")
        super().__setitem__(key, param)

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)


class _List(Module, Generic[Item]):
    _items: list[Item]

    def _children(self) -> Iterator[tuple[str, Any]]:
        for index, item in enumerate(self._items):
            yield str(index), item

    def __iter__(self) -> Iterator[Item]:
        return iter(self._items)

    def __getitem__(self, idx: int) -> Item:
        return self._items[idx]

    def __setitem__(self, idx: int, item: Item) -> None:
        self._items[idx] = item

    def __len__(self) -> int:
        return len(self._items)

    def to(self, dtype: str | None = None) -> None:
        for item in self._items:
            item.to(dtype=dtype)


class ModuleList(_List[Module]):
    """Modules in order; called, each takes what the one before gives."""

    def __init__(self, modules: list[Module]) -> None:
        self._items = modules

    @property
    def modules(self) -> list[Module]:
        return self._items

    def append(self, module: Module) -> None:
        self._items.append(module)

    def forward(self, x: Any) -> Any:
        for module in self._items:
            x = module(x)
        return x


class ParameterList(_List[Parameter]):
    """Parameters in order."""

    def __init__(self, params: Iterable[Parameter] | None = None) -> None:
        self._items = []
        self.extend(params or ())

    @property
    def params(self) -> list[Parameter]:
        return self._items

    def __setitem__(self, idx: int, param: Parameter) -> None:
        _check_parameter(param, "ParameterList")
        super().__setitem__(idx, param)

    def append(self, param: Parameter) -> None:
        _check_parameter(param, "ParameterList")
        self._items.append(param)

    def extend(self, params: Iterable[Parameter]) -> None:
        for param in params:
            self.append(param)


def _check_parameter(param: Any, where: str) -> None:
    if not isinstance(param, Parameter):
        raise TypeError(f"{where} holds nn.Parameter, not {type(param).__name__}")
