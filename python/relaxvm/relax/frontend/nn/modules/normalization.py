# SPDX-License-Identifier: Apache-2.0
"""Normalisations as modules."""

from __future__ import annotations

from .. import op
from ..module import Module
from ..tensor import Parameter, Tensor


class LayerNorm(Module):
    """Mean 0 and variance 1 over the last dimension, then scaled and shifted."""

    def __init__(
        self,
        normalized_shape: int,
        eps: float | None = 1e-5,
        elementwise_affine: bool = True,
        dtype: str | None = None,
    ) -> None:
        self.normalized_shape, self.eps = normalized_shape, eps
        self.elementwise_affine = elementwise_affine
        self.weight = Parameter((normalized_shape,), dtype) if elementwise_affine else None
        self.bias = Parameter((normalized_shape,), dtype) if elementwise_affine else None

    def forward(self, x: Tensor) -> Tensor:
        eps = 1e-5 if self.eps is None else self.eps
        return op.layer_norm(x, self.normalized_shape, self.weight, self.bias, eps)


class RMSNorm(Module):
    """x divided by its root mean square over `axes`, then scaled, and shifted with `bias`."""

    def __init__(
        self,
        hidden_size: int,
        axes: int | list[int],
        epsilon: float = 1e-5,
        bias: bool = True,
        dtype: str | None = None,
    ) -> None:
        self.epsilon, self.axes = epsilon, axes
        self.weight = Parameter((hidden_size,), dtype)
        self.bias = Parameter((hidden_size,), dtype) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        scaled = op.rms_norm(x, self.weight, self.axes, self.epsilon)
        return scaled if self.bias is None else op.add(scaled, self.bias)


class GroupNorm(Module):
    """Mean 0 and variance 1 over groups of channels, then scaled and shifted with `affine`."""

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        dtype: str | None = None,
    ) -> None:
        self.num_groups, self.num_channels, self.eps = num_groups, num_channels, eps
        self.weight = Parameter((num_channels,), dtype) if affine else None
        self.bias = Parameter((num_channels,), dtype) if affine else None

    def forward(self, x: Tensor, channel_axis: int = 1, axes: list[int] | None = None) -> Tensor:
        return op.group_norm(
            x, self.num_groups, self.weight, self.bias, self.eps, channel_axis, axes
        )
