# SPDX-License-Identifier: Apache-2.0
"""Activations as modules."""

from __future__ import annotations

from .. import op
from ..module import Module
from ..tensor import Tensor


class ReLU(Module):
    """max(x, 0)."""

    def forward(self, x: Tensor) -> Tensor:
        return op.relu(x)


class SiLU(Module):
    """x * sigmoid(x)."""

    def forward(self, x: Tensor) -> Tensor:
        return op.silu(x)


class GELU(Module):
    """x times the normal distribution's cumulative function."""

    def forward(self, x: Tensor) -> Tensor:
        return op.gelu(x)


class Identity(Module):
    """x."""

    def forward(self, x: Tensor) -> Tensor:
        return x
