# SPDX-License-Identifier: Apache-2.0
"""Where each element of a tensor goes when it is stored in another layout."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm_ffi

from .. import _compiler
from ..ir.base import Scriptable, plain
from ..ir.expr import Range, Var
from .expr import const

_make = _compiler.func("tirx.IndexMap")
_indices = _compiler.func("tirx.IndexMapIndices")
_shape = _compiler.func("tirx.IndexMapShape")
_same = _compiler.func("tirx.IndexMapSame")


@tvm_ffi.register_object("relaxvm.tirx.IndexMap")
class IndexMap(Scriptable, tvm_ffi.Object):
    """A function from the indices of an element to its indices in another layout.

    Parameters
    ----------
    initial_indices : Sequence[Var]
        Integer variables of one type.
    final_indices : Sequence[Expr]
        Integer expressions of them.
    inverse_index_map : IndexMap, optional
        The way back, where it cannot be found from the indices.
    """

    def __init__(
        self,
        initial_indices: Sequence[Var],
        final_indices: Sequence[Any],
        inverse_index_map: Any = None,
    ) -> None:
        self.__init_handle_by_constructor__(
            _make, list(initial_indices), [plain(i) for i in final_indices], inverse_index_map
        )

    @staticmethod
    def from_func(
        mapping_function: Callable[..., Any],
        ndim: int | None = None,
        inverse_index_map: Any = None,
        *,
        index_dtype: str = "int64",
    ) -> IndexMap:
        """The map that a function of indices says; `ndim` is needed where it takes `*args`.

        Raises TypeError where the number of indices is not known or is not `ndim`.
        """
        names, rest = [], None
        for p in inspect.signature(mapping_function).parameters.values():
            if p.kind is inspect.Parameter.VAR_POSITIONAL:
                rest = p.name
            elif p.kind in (
                inspect.Parameter.POSITIONAL_ONLY,
                inspect.Parameter.POSITIONAL_OR_KEYWORD,
            ):
                names.append(p.name)
            else:
                raise TypeError(f"an index map takes indices by place; {p.name} is no place")
        if rest is not None:
            if ndim is None:
                raise TypeError(f"the function takes any number of indices (*{rest}); give ndim")
            names += [f"{rest}_{i}" for i in range(ndim - len(names))]
        if ndim is not None and len(names) != ndim:
            raise TypeError(f"the function takes {len(names)} indices, not {ndim}")
        initial = [Var(name, index_dtype) for name in names]
        final = mapping_function(*initial)
        if not isinstance(final, (tuple, list, tvm_ffi.Array)):
            final = [final]
        if inverse_index_map is not None and not isinstance(inverse_index_map, IndexMap):
            inverse_index_map = IndexMap.from_func(
                inverse_index_map, len(final), index_dtype=index_dtype
            )
        return IndexMap(initial, list(final), inverse_index_map)

    def map_indices(self, indices: Sequence[Any]) -> list[Any]:
        """Where the element at `indices` goes.  Raises ValueError for another number of indices."""
        return list(_indices(self, [plain(i) for i in indices]))

    def map_shape(self, shape: Sequence[Any]) -> list[Any]:
        """Extents of a tensor of `shape` in the other layout.  Raises ValueError where two elements would meet."""
        return list(_shape(self, [plain(n) for n in shape])[0])

    def inverse(self, shape: Sequence[Range | Any]) -> IndexMap:
        """The way back, for a tensor of `shape`.

        Raises ValueError where there is none, or where places get no element.
        """
        back, padding = self.non_surjective_inverse(shape)
        if not _is_false(padding):
            raise ValueError(
                f"places where {padding} get no element; use non_surjective_inverse, which says so"
            )
        return back

    def non_surjective_inverse(self, shape: Sequence[Range | Any]) -> tuple[IndexMap, Any]:
        """The way back, and the condition under which nothing comes from there."""
        if self.inverse_index_map is not None:
            return self.inverse_index_map, const(False, "bool")
        _, indices, origin, padding = _shape(self, [_extent(n) for n in shape])
        return IndexMap(list(indices), list(origin)), padding

    def is_equivalent_to(self, other_map: IndexMap) -> bool:
        """Do both send every element to the same place?"""
        return bool(_same(self, other_map))

    def map_ndarray(self, arr_src: Any) -> np.ndarray:
        """A copy of an array in the other layout; places that get no element hold 0."""
        source = np.asarray(arr_src)
        result = np.zeros([int(n) for n in self.map_shape(source.shape)], source.dtype)
        for place in np.ndindex(*source.shape):
            result[tuple(int(i) for i in self.map_indices(place))] = source[place]
        return result


def _is_false(condition: Any) -> bool:
    return getattr(condition, "value", None) == 0


def _extent(n: Any) -> Any:
    n = plain(n)
    return n.extent if isinstance(n, Range) else n
