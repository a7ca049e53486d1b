# SPDX-License-Identifier: Apache-2.0
"""Inverses, determinants, triangular roots, QR and systems of equations of small matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from relaxvm.relax import op

from ...elimination import LARGEST, eliminated, identity_like, lower_root
from ..errors import UnsupportedProgram
from ..graph import Graph, Size
from ..registry import aten_op


def _small(g: Graph, x: Any) -> Any:
    n = g.shape(x)[-1]
    if not isinstance(n, int) or not 1 <= n <= LARGEST:
        raise UnsupportedProgram(f"matrices of other than 1 to {LARGEST} rows")
    return x


@aten_op("linalg_inv.default", "inverse.default")
def inverse(g: Graph, x: Any) -> Any:
    """A singular matrix gives numbers that are not finite, not an error."""
    return eliminated(g.emit, _small(g, x), identity_like(g.emit, x))[0]


@aten_op("linalg_det.default", "det.default")
def determinant(g: Graph, x: Any) -> Any:
    return eliminated(g.emit, _small(g, x))[1]


@aten_op("linalg_slogdet.default", "slogdet.default")
def sign_and_logarithm(g: Graph, x: Any) -> tuple:
    found = g.emit(determinant(g, x))
    return op.sign(found), op.log(g.emit(op.abs(found)))


@aten_op("linalg_solve.default")
def solve(g: Graph, x: Any, right: Any, *, left: bool = True) -> Any:
    _small(g, x)
    is_vector = g.rank(right) == 1 or (
        g.rank(right) == g.rank(x) - 1 and g.shape(right) == g.shape(x)[:-1]
    )
    if is_vector:
        right = g.emit(op.expand_dims(right, [g.rank(right)]))
    found = g.emit(_solved(g, x, right, left, g.result_shape()[: -1 if is_vector else -2]))
    return op.squeeze(found, [g.rank(found) - 1]) if is_vector else found


@aten_op("linalg_solve_triangular.default")
def solve_triangular(
    g: Graph, x: Any, right: Any, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Any:
    part = g.emit((op.triu if upper else op.tril)(_small(g, x)))
    if unitriangular:
        one = identity_like(g.emit, x)
        on_diagonal = g.emit(op.greater(one, g.const(0, g.dtype(x))))
        part = g.emit(op.where(on_diagonal, one, part))
    return _solved(g, part, right, left, g.result_shape()[:-2])


def _solved(g: Graph, x: Any, right: Any, left: bool, batch: Sequence[Size]) -> Any:
    """The matrices y with x y = right, or y x = right, for all of `batch`."""
    if not left:
        x, right = _turned(g, x), _turned(g, right)
    if not isinstance(g.shape(right)[-1], int):
        raise UnsupportedProgram("a number of right sides that is not known")
    x, right = (g.broadcast(v, [*batch, *g.shape(v)[-2:]]) for v in (x, right))
    found = eliminated(g.emit, x, right)[0]
    return found if left else _turned(g, found)


@aten_op("linalg_cholesky.default", "cholesky.default")
def cholesky(g: Graph, x: Any, upper: bool = False) -> Any:
    """A matrix that is not positive definite gives numbers that are not finite, not an error."""
    root = lower_root(g.emit, _turned(g, _small(g, x)) if upper else _small(g, x))
    return _turned(g, root) if upper else root


@aten_op("linalg_cholesky_ex.default")
def cholesky_and_check(
    g: Graph, x: Any, *, upper: bool = False, check_errors: bool = False
) -> tuple:
    return cholesky(g, x, upper), op.zeros(g.shape(x)[:-2], "int32")


@aten_op("linalg_qr.default")
def qr(g: Graph, x: Any, mode: str = "reduced") -> tuple:
    """By reflections (Householder, 1958), with LAPACK's signs: one at a time makes a column end at the diagonal."""
    *batch, rows, columns = g.shape(x)
    if not all(isinstance(n, int) and 1 <= n <= LARGEST for n in (rows, columns)):
        raise UnsupportedProgram(f"matrices of other than 1 to {LARGEST} rows and columns")
    dtype, last = g.dtype(x), g.rank(x) - 1
    q = g.broadcast(g.const(np.eye(rows), dtype), [*batch, rows, rows])
    minus = lambda a, b: g.emit(op.subtract(a, b))
    times = lambda a, b: g.emit(op.multiply(a, b))
    total = lambda v: g.emit(op.sum(times(v, v), [last - 1], keepdims=True))
    place = np.arange(rows)[:, None]
    for k in range(min(rows - 1, columns)):
        column = g.emit(op.strided_slice(x, [last], [k], [k + 1], [1]))
        head = g.emit(op.strided_slice(column, [last - 1], [k], [k + 1], [1]))
        below = times(column, g.const(place > k, dtype))
        rest = total(below)
        length = g.emit(op.sqrt(g.emit(op.add(rest, times(head, head)))))
        is_right = g.emit(op.greater_equal(head, g.const(0, dtype)))
        end = g.emit(op.where(is_right, g.emit(op.negative(length)), length))
        axis = g.emit(op.add(below, times(minus(head, end), g.const(place == k, dtype))))
        scale = g.emit(op.divide(g.const(2, dtype), total(axis)))
        is_done = g.emit(op.equal(rest, g.const(0, dtype)))
        scaled = times(axis, g.emit(op.where(is_done, g.const(0, dtype), scale)))
        row = _turned(g, axis)
        x = minus(x, g.emit(op.matmul(scaled, g.emit(op.matmul(row, x)))))
        q = minus(q, g.emit(op.matmul(g.emit(op.matmul(q, scaled)), row)))
    inner = rows if mode == "complete" else min(rows, columns)
    r = op.triu(g.emit(op.strided_slice(x, [last - 1], [0], [inner], [1])))
    if mode == "r":
        return op.zeros([0], dtype), r
    return op.strided_slice(q, [last], [0], [inner], [1]), r


def _turned(g: Graph, x: Any) -> Any:
    order = list(range(g.rank(x)))
    return g.emit(op.permute_dims(x, [*order[:-2], order[-1], order[-2]]))
