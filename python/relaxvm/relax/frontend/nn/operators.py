# SPDX-License-Identifier: Apache-2.0
"""The operators and methods of nn.Tensor; each is a function of nn.op."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .tensor import Tensor


class TensorOperators:
    """Numbers beside a tensor become constants of its element type."""

    def _apply(self, name: str, *args: Any) -> Any:
        from . import op

        return getattr(op, name)(*args)

    def _constant(self, number: Any) -> Any:
        from .tensor import Tensor, expr_of

        assert isinstance(self, Tensor)
        return Tensor(_expr=expr_of(number, self))

    def __add__(self, other: Any) -> Tensor:
        return self._apply("add", self, other)

    def __radd__(self, other: Any) -> Tensor:
        return self._apply("add", self, other)

    def __sub__(self, other: Any) -> Tensor:
        return self._apply("subtract", self, other)

    def __rsub__(self, other: Any) -> Tensor:
        return self._apply("subtract", self._constant(other), self)

    def __mul__(self, other: Any) -> Tensor:
        return self._apply("multiply", self, other)

    def __rmul__(self, other: Any) -> Tensor:
        return self._apply("multiply", self, other)

    def __truediv__(self, other: Any) -> Tensor:
        return self._apply("divide", self, other)

    def __rtruediv__(self, other: Any) -> Tensor:
        return self._apply("divide", self._constant(other), self)

    def __neg__(self) -> Tensor:
        return self._apply("negative", self)

    def __lt__(self, other: Any) -> Tensor:
        return self._apply("less", self, other)

    def __le__(self, other: Any) -> Tensor:
        return self._apply("less_equal", self, other)

    def __gt__(self, other: Any) -> Tensor:
        return self._apply("greater", self, other)

    def __ge__(self, other: Any) -> Tensor:
        return self._apply("greater_equal", self, other)

    def astype(self, dtype: str) -> Tensor:
        return self._apply("astype", self, dtype)

    def maximum(self, other: Any) -> Tensor:
        return self._apply("maximum", self, other)

    def minimum(self, other: Any) -> Tensor:
        return self._apply("minimum", self, other)

    def reshape(self, *shape: Any) -> Tensor:
        return self._apply("reshape", self, _one_sequence(shape))

    def permute_dims(self, *axes: Any) -> Tensor:
        return self._apply("permute_dims", self, _one_sequence(axes) or None)

    def repeat(self, repeats: int, axis: int | None = None) -> Tensor:
        return self._apply("repeat", self, repeats, axis)


def _one_sequence(values: tuple[Any, ...]) -> Sequence[Any]:
    if len(values) == 1 and isinstance(values[0], (list, tuple)):
        return values[0]
    return values
