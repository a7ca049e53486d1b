# SPDX-License-Identifier: Apache-2.0
"""matmul by the name of TVM's BLAS wrapper: a tensor expression, compiled like any other."""

from __future__ import annotations

from typing import Any

from ..te.tensor import Tensor, compute, reduce_axis, sum


def matmul(
    lhs: Tensor, rhs: Tensor, transa: bool = False, transb: bool = False, **_options: Any
) -> Tensor:
    """lhs @ rhs, either side transposed if asked for."""
    rows, depth = (lhs.shape[1], lhs.shape[0]) if transa else (lhs.shape[0], lhs.shape[1])
    columns = rhs.shape[0] if transb else rhs.shape[1]
    k = reduce_axis((0, depth), "k")

    def element(i: Any, j: Any) -> Any:
        left = lhs[k.var, i] if transa else lhs[i, k.var]
        right = rhs[j, k.var] if transb else rhs[k.var, j]
        return sum(left * right, axis=k)

    return compute((rows, columns), element, name="matmul")
