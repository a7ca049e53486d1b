# SPDX-License-Identifier: Apache-2.0
"""Symbolic dimensions of a graph's inputs.

A dimension named '', '?' or below 0 is a new variable at each place; equal real names are one.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

from relaxvm import _compiler, tirx
from relaxvm.ir import structural_equal, structural_hash

from .errors import InvalidModel
from .scalars import Scalars

_is_large_size = _compiler.func("analysis.is_large_size")

_ANONYMOUS = ("", "?")


def identifier(name: str, fallback: str) -> str:
    """`name` as a name of the script language."""
    clean = re.sub(r"\W", "_", name, flags=re.ASCII)
    if not clean:
        return fallback
    return clean if not clean[0].isdigit() else f"{fallback}_{clean}"


class Dimensions:
    """Makes the variables of one model."""

    def __init__(self, scalars: Scalars) -> None:
        self._scalars = scalars
        self._by_name: dict[str, Any] = {}
        self._taken: set[str] = set()
        self._names: dict[int, list] = {}  # of large sizes, with them, by their hash
        self._joint: list[tuple[Any, set[Any]]] = []  # sizes of what broadcasts, with their parts

    def of_proto(self, dim: Any, place: str) -> Any:
        """The dimension that a TensorShapeProto.Dimension states."""
        kind = dim.WhichOneof("value")
        if kind == "dim_value" and dim.dim_value >= 0:
            return dim.dim_value
        return self.named(dim.dim_param if kind == "dim_param" else "", place)

    def of_user(self, dim: Any, place: str) -> Any:
        """A dimension of `shape_dict`: a number, or a name."""
        if isinstance(dim, bool) or not isinstance(dim, (int, str)):
            raise InvalidModel(f"{place}: a dimension is an int or a name, not {dim!r}")
        if isinstance(dim, int) and dim >= 0:
            return dim
        return self.named(dim if isinstance(dim, str) else "", place)

    def named(self, name: str, place: str) -> Any:
        if name in _ANONYMOUS:
            return self.fresh(place)
        if name not in self._by_name:
            self._by_name[name] = self._scalars.new_dim(self._unique(identifier(name, "d")))
        return self._by_name[name]

    def fresh(self, hint: str) -> Any:
        """A variable that nothing else refers to."""
        return self._scalars.new_dim(self._unique(identifier(hint, "d")))

    # ---- sizes that broadcast (broadcasting.py)

    def is_free(self, size: Any) -> bool:
        """May it be anything: is it no expression of others?"""
        named = (name for names in self._names.values() for _, name in names)
        return isinstance(size, tirx.Var) and not any(size is name for name in named)

    def is_within(self, size: Any, other: Any) -> bool:
        """Is `other` what `size` is together with others?"""
        return any(other is joint and size in parts for joint, parts in self._joint)

    def joint(self, a: Any, b: Any) -> tuple[Any, bool]:
        """The size that a and b are together, and whether it is new: then it is to be matched."""
        wanted = {a, b}
        for size, parts in self._joint:
            if wanted <= parts:
                return size, False
        for size, parts in self._joint:
            if size in wanted:
                wanted |= parts
        size = self.fresh("joint")
        self._joint.append((size, wanted))
        return size, True

    # ---- sizes that are long to say

    def is_long(self, size: Any) -> bool:
        return str(size.dtype) == "int64" and _is_large_size(size)

    def has_name(self, size: Any) -> bool:
        """Is there a variable for it, that was matched with it?"""
        if isinstance(size, (int, tirx.IntImm, tirx.Var)):
            return False
        names = self._names.get(structural_hash(size), [])
        return any(structural_equal(size, other) for other, _ in names)

    def short(self, dim: Any) -> Any:
        """`dim` itself, or a variable for it when it is long; who gets one matches it with the size."""
        if isinstance(dim, (int, tirx.IntImm, tirx.Var)) or not self.is_long(dim):
            return dim
        names = self._names.setdefault(structural_hash(dim), [])
        for size, name in names:
            if structural_equal(size, dim):
                return name
        names.append((dim, self.fresh("size")))
        return names[-1][1]

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        """What is named inside is unknown outside."""
        outer, joint = self._names, len(self._joint)
        self._names = {key: list(names) for key, names in outer.items()}
        try:
            yield
        finally:
            self._names = outer
            del self._joint[joint:]

    def _unique(self, name: str) -> str:
        unique, n = name, 0
        while unique in self._taken:
            n += 1
            unique = f"{name}_{n}"
        self._taken.add(unique)
        return unique
