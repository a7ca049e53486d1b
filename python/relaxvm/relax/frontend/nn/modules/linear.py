# SPDX-License-Identifier: Apache-2.0
"""Linear layers and tables of rows."""

from __future__ import annotations

from relaxvm.ir.expr import Expr

from .. import op
from ..module import Module
from ..tensor import Parameter, Tensor

Size = int | str | Expr


class Linear(Module):
    """x weight^T + bias; weight is (out_features, in_features). Sizes may be symbolic.

    With `out_dtype` the product and the bias have that element type.
    """

    def __init__(
        self,
        in_features: Size,
        out_features: Size,
        bias: bool = True,
        dtype: str | None = None,
        out_dtype: str | None = None,
    ) -> None:
        self.in_features, self.out_features, self.out_dtype = in_features, out_features, out_dtype
        self.weight = Parameter((out_features, in_features), dtype)
        self.bias = Parameter((out_features,), out_dtype or dtype) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        product = op.matmul(x, op.permute_dims(self.weight), out_dtype=self.out_dtype)
        return product if self.bias is None else op.add(product, self.bias)

    def to(self, dtype: str | None = None) -> None:
        self.weight.to(dtype=dtype)
        if self.bias is not None and self.out_dtype is None:
            self.bias.to(dtype=dtype)
        if isinstance(getattr(self, "dtype", None), str):
            self.dtype = dtype


class Embedding(Module):
    """Rows of a table (num, dim) at indices of any shape."""

    def __init__(self, num: Size, dim: Size, dtype: str | None = None) -> None:
        self.num, self.dim = num, dim
        self.weight = Parameter((num, dim), dtype)

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim == 1:
            return op.take(self.weight, x, axis=0)
        rows = op.take(self.weight, op.reshape(x, [-1]), axis=0)
        return op.reshape(rows, [*x.shape, self.weight.shape[1]])
