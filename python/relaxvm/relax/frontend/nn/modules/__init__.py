# SPDX-License-Identifier: Apache-2.0
"""The usual layers, with the names and parameters of PyTorch's."""

from __future__ import annotations

from .activation import GELU, Identity, ReLU, SiLU
from .attention import Attention, TimestepEmbedding, Timesteps
from .convolution import Conv1D, Conv2D, Conv3D, ConvTranspose1D
from .effect import IOEffect, KVCache
from .linear import Embedding, Linear
from .normalization import GroupNorm, LayerNorm, RMSNorm

__all__ = [
    "GELU",
    "Attention",
    "Conv1D",
    "Conv2D",
    "Conv3D",
    "ConvTranspose1D",
    "Embedding",
    "GroupNorm",
    "IOEffect",
    "Identity",
    "KVCache",
    "LayerNorm",
    "Linear",
    "RMSNorm",
    "ReLU",
    "SiLU",
    "TimestepEmbedding",
    "Timesteps",
]
