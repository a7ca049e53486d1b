# SPDX-License-Identifier: Apache-2.0
"""Resizing of one axis, in all of ONNX's modes."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction
from typing import Any

import numpy as np

from relaxvm import relax
from relaxvm.relax import op

from .errors import InvalidModel, UnsupportedModel
from .graph import Graph
from .scalars import is_symbolic

# A constant matrix above this size is refused: the file it would make is larger than any model.
MAX_MATRIX_ELEMENTS = 1 << 24


@dataclasses.dataclass(frozen=True)
class Interpolation:
    mode: str
    coordinates: str
    rounding: str
    cubic_a: float
    exclude_outside: bool
    extrapolation: float
    antialias: bool

    def __post_init__(self) -> None:
        if self.mode not in ("nearest", "linear", "cubic"):
            raise InvalidModel(f"mode is 'nearest', 'linear' or 'cubic', not '{self.mode}'")


@dataclasses.dataclass(frozen=True)
class Axis:
    axis: int
    size: Any
    out: Any
    scale: Any  # a Fraction, or a scalar tensor of float32; None: out / size
    window: Any  # of tf_crop_and_resize: two floats, or a tensor with them


def resize_axis(g: Graph, x: Any, step: Axis, how: Interpolation) -> Any:
    x = g.emit(x)
    known = isinstance(step.scale, (Fraction, type(None))) and isinstance(
        step.window, (tuple, type(None))
    )
    if known and not is_symbolic(step.size) and not is_symbolic(step.out):
        return _static(g, x, step, how)
    return _by_matrix(g, x, step, how)


def _number(g: Graph, dim: Any) -> Any:
    return g.emit(op.astype(g.as_expr(g.dims_value([dim], ()), "size"), "float32"))


def _by_matrix(g: Graph, x: Any, step: Axis, how: Interpolation) -> Any:
    """A product with a matrix that is computed while running: for everything."""
    scale = step.scale
    if scale is None:
        scale = g.emit(op.divide(_number(g, step.out), _number(g, step.size)))
    elif isinstance(scale, Fraction):
        scale = g.constant(float(scale), "float32")
    window = (0.0, 1.0) if step.window is None else step.window
    window = g.constant(window, "float32") if isinstance(window, tuple) else window
    pair = g.emit(
        op.rvm.resize_weights(
            scale, window, relax.ShapeExpr([step.size, step.out]), mode=how.mode,
            coordinates=how.coordinates, rounding=how.rounding, cubic_alpha=how.cubic_a,
            exclude_outside=how.exclude_outside, antialias=how.antialias,
        )
    )  # fmt: skip
    matrix, outside = (g.emit(relax.TupleGetItem(pair, i)) for i in range(2))
    dtype = g.dtype(x)
    order = [a for a in range(g.rank(x)) if a != step.axis] + [step.axis]
    back = [order.index(a) for a in range(g.rank(x))]
    moved = g.emit(op.permute_dims(x, order))
    wide = moved if dtype == "float32" else g.emit(op.astype(moved, "float32"))
    y = g.emit(op.matmul(wide, matrix))
    if how.coordinates == "tf_crop_and_resize":
        y = op.add(y, op.multiply(outside, g.constant(how.extrapolation, "float32")))
    if not dtype.startswith("float"):
        y = op.round(y)
    y = g.emit(y) if dtype == "float32" else g.emit(op.astype(y, dtype))
    return g.emit(op.permute_dims(y, back))


# ---- known sizes


def _static(g: Graph, x: Any, step: Axis, how: Interpolation) -> Any:
    if step.size == 0:
        raise InvalidModel(f"axis {step.axis} has no elements to make {step.out} of")
    positions, outside = coordinates(step, how)
    if how.mode == "nearest" and not outside.any():
        index = np.clip(rounded(positions, how.rounding), 0, step.size - 1).astype(np.int64)
        return g.emit(op.take(x, g.constant(index), axis=step.axis))
    if step.size * step.out > MAX_MATRIX_ELEMENTS:
        raise UnsupportedModel(
            f"resizing {step.size} to {step.out} elements needs too large a matrix"
        )
    matrix = weights(step, how, positions)
    matrix[:, outside] = 0
    dtype = g.dtype(x)
    order = [a for a in range(g.rank(x)) if a != step.axis] + [step.axis]
    back = [order.index(a) for a in range(g.rank(x))]
    y = op.matmul(op.permute_dims(x, order), g.constant(matrix, dtype))
    if outside.any():
        y = op.add(y, g.constant(np.where(outside, how.extrapolation, 0), dtype))
    return g.emit(op.permute_dims(y, back))


def coordinates(step: Axis, how: Interpolation) -> tuple[np.ndarray, np.ndarray]:
    """Positions on the input, and which of them lie outside and take the extrapolation value."""
    size, out, i = step.size, step.out, np.arange(step.out, dtype=np.float64)
    scale = float(step.scale) if step.scale is not None else out / size
    inside = np.zeros(out, bool)
    if how.coordinates == "align_corners":
        # The length that the scale states, of which `out` is the whole part.
        length = size * scale
        return (i * (size - 1) / (length - 1) if length != 1 else np.zeros(out)), inside
    if how.coordinates == "asymmetric":
        return i / scale, inside
    if how.coordinates == "half_pixel":
        return (i + 0.5) / scale - 0.5, inside
    if how.coordinates == "pytorch_half_pixel":
        return ((i + 0.5) / scale - 0.5 if scale * size > 1 else np.zeros(out)), inside
    if how.coordinates == "half_pixel_symmetric":
        adjustment = out / (scale * size)
        centre = size / 2
        return centre * (1 - adjustment) + (i + 0.5) / scale - 0.5, inside
    if how.coordinates == "tf_half_pixel_for_nn":
        return (i + 0.5) / scale, inside
    if how.coordinates == "tf_crop_and_resize":
        start, end = step.window or (0.0, 1.0)
        if out > 1:
            x = start * (size - 1) + i * (end - start) * (size - 1) / (out - 1)
        else:
            x = np.full(out, 0.5 * (start + end) * (size - 1))
        return x, (x < 0) | (x > size - 1)
    raise InvalidModel(f"coordinate_transformation_mode '{how.coordinates}' is unknown")


def rounded(x: np.ndarray, rounding: str) -> np.ndarray:
    if rounding == "round_prefer_floor":
        return np.ceil(x - 0.5)
    if rounding == "round_prefer_ceil":
        return np.floor(x + 0.5)
    if rounding not in ("floor", "ceil"):
        raise InvalidModel(f"nearest_mode '{rounding}' is unknown")
    return np.floor(x) if rounding == "floor" else np.ceil(x)


def _kernel(how: Interpolation, x: np.ndarray) -> np.ndarray:
    """The weight of an element at distance `x`."""
    x = np.abs(x)
    if how.mode == "linear":
        return np.maximum(1 - x, 0)
    a = how.cubic_a
    near = (a + 2) * x**3 - (a + 3) * x**2 + 1
    far = a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0))


def weights(step: Axis, how: Interpolation, positions: np.ndarray) -> np.ndarray:
    """matrix[i, o]: how much input element i adds to output element o."""
    size, out = step.size, step.out
    matrix = np.zeros((size, out))
    if how.mode == "nearest":
        index = np.clip(rounded(positions, how.rounding), 0, size - 1).astype(int)
        matrix[index, np.arange(out)] = 1
        return matrix
    scale = float(step.scale) if step.scale is not None else out / size
    # Antialiasing widens the kernel by the factor that the image shrinks.
    shrink = min(scale, 1.0) if how.antialias else 1.0
    support = (1 if how.mode == "linear" else 2) / shrink
    for o, x in enumerate(positions):
        taps = np.arange(math.floor(x - support) + 1, math.ceil(x + support))
        if how.mode == "linear" and not how.antialias:
            taps = np.array([math.floor(x), math.floor(x) + 1])
        share = _kernel(how, (taps - x) * shrink)
        if how.exclude_outside:
            share = np.where((taps >= 0) & (taps < size), share, 0)
        if how.exclude_outside or how.antialias:
            share = share / share.sum()
        np.add.at(matrix[:, o], np.clip(taps, 0, size - 1), share)
    return matrix
