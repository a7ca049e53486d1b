# SPDX-License-Identifier: Apache-2.0
"""Determinants and inverses of small matrices."""

from __future__ import annotations

from typing import Any

from ...elimination import LARGEST, eliminated, identity_like
from ..errors import InvalidModel, UnsupportedModel
from ..graph import Graph
from ..registry import Expr, onnx_op
from ..scalars import is_symbolic


def _square(g: Graph, x: Any) -> Any:
    if g.rank(x) < 2:
        raise InvalidModel(f"works on matrices; its input has {g.rank(x)} dimensions")
    *batch, rows, n = g.shape(x)
    if is_symbolic(n):
        n = rows
    if is_symbolic(n) or not 1 <= n <= LARGEST:
        raise UnsupportedModel(f"needs a known size of 1 to {LARGEST}")
    return g.checked(x, [*batch, n, n])


@onnx_op("Det", since=11)
def det(g: Graph, x: Expr) -> Expr:
    return eliminated(g.emit, _square(g, x))[1]


@onnx_op("Inverse", since=1, domain="com.microsoft")
def inverse(g: Graph, x: Expr) -> Expr:
    """A singular matrix gives numbers that are not finite, not an error."""
    x = _square(g, x)
    return eliminated(g.emit, x, identity_like(g.emit, x))[0]
