# SPDX-License-Identifier: Apache-2.0
"""Systems of linear equations, determinants and triangular roots of small matrices: Gauss-Jordan elimination.

Each column's greatest element is its pivot (G. Golub and C. Van Loan, Matrix Computations, 3.4).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from relaxvm import relax, tirx
from relaxvm.relax import op

LARGEST = 16  # each column is written out

Emit = Callable[[Any], Any]


def eliminated(emit: Emit, x: Any, right: Any = None) -> tuple[Any, Any]:
    """The solution of x y = right, [..., n, m] (None without a right side), and the determinant of x, [...].

    x: [..., n, n], right: [..., n, m], of one float type; n is known and at most LARGEST, m is known.  Where x is
    singular, the solution is not finite.
    """
    *batch, n, _ = _dims(x)
    number = lambda v: relax.const(v, str(x.ty.dtype))
    place = lambda v: relax.const(np.int64(v), "int64")
    axis, width = len(batch), n
    if right is not None:
        width += _dims(right)[-1]
        x = emit(op.concat([x, right], axis=axis + 1))
    cut = lambda v, rows, columns: emit(
        op.strided_slice(v, [axis, axis + 1], [rows[0], columns[0]], [rows[1], columns[1]], [1, 1])
    )
    numbers = relax.const(np.arange(n).reshape([1] * axis + [n]), "int64")
    numbers = emit(op.broadcast_to(numbers, [*batch, n]))
    total = None
    for k in range(n):
        # The row with the greatest element of column k is brought up.
        column = emit(op.squeeze(cut(x, (k, n), (k, k + 1)), [axis + 1]))
        pivot = emit(op.argmax(emit(op.abs(column)), axis, True))
        pivot = emit(op.add(pivot, place(k)))
        swapped = emit(op.where(emit(op.equal(numbers, pivot)), place(k), numbers))
        order = emit(op.where(emit(op.equal(numbers, place(k))), pivot, swapped))
        order = emit(op.broadcast_to(emit(op.expand_dims(order, [axis + 1])), [*batch, n, width]))
        x = emit(op.gather_elements(x, order, axis))
        top, head = cut(x, (k, k + 1), (0, width)), cut(x, (k, k + 1), (k, k + 1))
        stays = emit(op.equal(pivot, place(k)))
        sign = emit(op.reshape(emit(op.where(stays, number(1), number(-1))), batch))
        factor = emit(op.multiply(sign, emit(op.reshape(head, batch))))
        total = factor if total is None else emit(op.multiply(total, factor))
        if right is None:
            head = emit(op.where(emit(op.equal(head, number(0))), number(1), head))
        row = emit(op.divide(top, head))
        parts = [row]
        for rows in ((0, k), (k + 1, n)):
            if rows[0] == rows[1]:
                continue
            part = cut(x, rows, (0, width))
            if right is not None or rows[0] > k:  # else nobody reads them
                column = cut(part, (0, rows[1] - rows[0]), (k, k + 1))
                part = emit(op.subtract(part, emit(op.multiply(column, row))))
            parts.insert(len(parts) if rows[0] > k else 0, part)
        x = parts[0] if len(parts) == 1 else emit(op.concat(parts, axis))
    return None if right is None else cut(x, (0, n), (n, width)), total


def lower_root(emit: Emit, x: Any) -> Any:
    """The lower triangular matrix L with L L^T = x, column by column (Golub and Van Loan, 4.2).

    x: [..., n, n] symmetric, of one float type; n is known and at most LARGEST, and only the lower triangle is read.
    Where x is not positive definite, L is not finite.
    """
    *batch, n, _ = _dims(x)
    axis, columns = len(batch), []
    cut = lambda v, rows, width: emit(
        op.strided_slice(v, [axis, axis + 1], [rows[0], width[0]], [rows[1], width[1]], [1, 1])
    )
    turned = lambda v: emit(op.permute_dims(v, [*range(axis), axis + 1, axis]))
    for k in range(n):
        size = n - k
        head = emit(op.sqrt(cut(x, (0, 1), (0, 1))))
        column = emit(op.divide(cut(x, (0, size), (0, 1)), head))
        columns.append(emit(op.nn.pad(column, [0, 0] * axis + [k, 0, 0, 0])) if k else column)
        if size > 1:
            below = cut(column, (1, size), (0, 1))
            product = emit(op.multiply(below, turned(below)))
            x = emit(op.subtract(cut(x, (1, size), (1, size)), product))
    return columns[0] if n == 1 else emit(op.concat(columns, axis + 1))


def identity_like(emit: Emit, x: Any) -> Any:
    *batch, n, _ = _dims(x)
    one = relax.const(np.eye(n).reshape([1] * len(batch) + [n, n]), str(x.ty.dtype))
    return emit(op.broadcast_to(one, [*batch, n, n]))


def _dims(x: Any) -> list:
    return [int(d) if isinstance(d, tirx.IntImm) else d for d in x.ty.shape.values]
