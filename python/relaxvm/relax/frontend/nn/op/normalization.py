# SPDX-License-Identifier: Apache-2.0
"""Softmax and normalisations."""

from __future__ import annotations

import numpy as np

from relaxvm.ir.expr import Expr
from relaxvm.relax import op
from relaxvm.relax.expr import const

from ..tensor import Tensor, expr_of, wrap_nested


def softmax(x: Tensor, axis: int = -1, name: str = "softmax") -> Tensor:
    """exp(x) divided by its sum along a dimension."""
    return wrap_nested(op.nn.softmax(expr_of(x), axis), name)


def _affine(given: Tensor | None, value: float, shape: list[int], x: Tensor) -> Expr:
    """A scale or a shift; constant where it is left out."""
    if given is not None:
        return expr_of(given)
    if not all(isinstance(size, int) for size in shape):
        raise ValueError(f"without weight and bias the normalised sizes {shape} must be integers")
    return const(np.full(shape, value), x.dtype)


def layer_norm(
    x: Tensor,
    normalized_shape: int | list[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    name: str = "layer_norm",
) -> Tensor:
    """Mean 0 and variance 1 over the last dimensions, then scaled and shifted."""
    sizes = [normalized_shape] if isinstance(normalized_shape, int) else list(normalized_shape)
    scale, shift = _affine(weight, 1.0, sizes, x), _affine(bias, 0.0, sizes, x)
    axes = list(range(-len(sizes), 0))
    return wrap_nested(op.nn.layer_norm(expr_of(x), scale, shift, axes, epsilon=eps), name)


def rms_norm(
    x: Tensor,
    weight: Tensor,
    axes: int | list[int],
    epsilon: float = 1e-5,
    name: str = "rms_norm",
) -> Tensor:
    """x / sqrt(mean(x * x) + epsilon) over dimensions, then scaled (arXiv:1910.07467)."""
    call = op.nn.rms_norm(
        expr_of(x), expr_of(weight), [axes] if isinstance(axes, int) else axes, epsilon=epsilon
    )
    return wrap_nested(call, name)


def group_norm(
    x: Tensor,
    num_groups: int,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float = 1e-5,
    channel_axis: int = 1,
    axes: list[int] | None = None,
    name: str = "group_norm",
) -> Tensor:
    """Mean 0 and variance 1 over groups of channels and `axes` (None: those after the channels)."""
    if axes is None:
        axes = list(range(channel_axis + 1 if channel_axis >= 0 else 2, x.ndim))
    channels = [x.shape[channel_axis]]
    scale, shift = _affine(weight, 1.0, channels, x), _affine(bias, 0.0, channels, x)
    call = op.nn.group_norm(
        expr_of(x),
        scale,
        shift,
        num_groups=num_groups,
        channel_axis=channel_axis,
        axes=axes,
        epsilon=eps,
    )
    return wrap_nested(call, name)
