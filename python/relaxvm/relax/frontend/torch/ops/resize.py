# SPDX-License-Identifier: Apache-2.0
"""Resizing of pictures: `torch.nn.functional.interpolate`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from relaxvm.relax import op

from ..errors import UnsupportedProgram
from ..graph import Graph
from ..registry import aten_op
from ..symbols import same_size

_CUBIC = -0.75  # PyTorch's coefficient; antialiased: -0.5


def _resize(
    g: Graph, x: Any, factors: Any, method: str, aligned: bool, exact: bool = False, antialias: bool = False
) -> Any:  # fmt: skip
    """To the size that PyTorch found."""
    new, how = g.result_shape()[2:], (method, aligned, exact, antialias)
    if method == "nearest" or g.is_float(x):
        return _resize_floats(g, x, new, factors, *how)
    # PyTorch rounds bytes after each axis, the last one first, and halves up.
    dtype, old = g.dtype(x), g.shape(x)[2:]
    limits, real = np.iinfo(dtype), g.cast(x, "float32")
    for i in reversed(range(len(new))):
        own = [f if k == i else 1.0 for k, f in enumerate(factors)] if factors else None
        real = g.emit(_resize_floats(g, real, [*old[:i], *new[i:]], own, *how))
        real = g.emit(op.floor(g.emit(op.add(real, g.const(0.5)))))
        real = g.emit(op.clip(real, limits.min, limits.max))
    return g.cast(real, dtype)


def _resize_floats(
    g: Graph, x: Any, new: list, factors: Any, method: str, aligned: bool, exact: bool, antialias: bool
) -> Any:  # fmt: skip
    """Places follow the factor where one is given, else both sizes."""
    old, rank = g.shape(x)[2:], len(new)
    plain = (
        not factors
        or aligned
        or all(
            float(f).is_integer() or (isinstance(o, int) and o * f == n)
            for o, n, f in zip(old, new, factors)
        )
    )
    if rank in (1, 2, 3) and plain and not antialias and not (rank == 3 and method == "cubic"):
        return _by_operator(g, x, new, method, aligned, exact)
    known = all(isinstance(d, int) for d in old + new)
    if not known and (antialias or not factors):
        raise UnsupportedProgram("this resizing, of sizes that are not known")
    for i in range(rank):
        ratio = 1 / factors[i] if factors else old[i] / new[i]
        if same_size(old[i], new[i]) and ratio == 1:
            continue
        if not known:
            x = _by_places(g, x, i + 2, old[i], new[i], ratio, method, exact)
            continue
        weights = _weights(old[i], new[i], ratio, method, aligned, exact, antialias)
        x = _along(g, x, i + 2, weights)
    return x


def _by_operator(g: Graph, x: Any, size: list, method: str, aligned: bool, exact: bool) -> Any:
    rank = len(size)
    nearest = method == "nearest"
    middle = "asymmetric" if nearest and not exact else "half_pixel"
    options = dict(
        method="nearest_neighbor" if nearest else method,
        coordinate_transformation_mode="align_corners" if aligned else middle,
        rounding_method=("round_prefer_ceil" if exact else "floor") if nearest else "round",
        cubic_alpha=_CUBIC,
    )
    if rank == 1:
        wide = g.emit(op.expand_dims(x, [2]))
        return op.squeeze(g.emit(op.image.resize2d(wide, [1, *size], **options)), [2])
    function = op.image.resize2d if rank == 2 else op.image.resize3d
    return function(x, list(size), layout="NCHW" if rank == 2 else "NCDHW", **options)


def _along(g: Graph, x: Any, axis: int, weights: np.ndarray) -> Any:
    """A product with `weights`, [new, old], over one axis."""
    last = g.rank(x) - 1
    order = [i for i in range(last + 1) if i != axis] + [axis]
    moved = x if axis == last else g.emit(op.permute_dims(x, order))
    result = g.emit(op.matmul(moved, g.const(weights.T.copy(), g.dtype(x))))
    return result if axis == last else g.emit(op.permute_dims(result, list(np.argsort(order))))


def _by_places(
    g: Graph, x: Any, axis: int, old: Any, new: Any, ratio: float, method: str, exact: bool
) -> Any:
    """Over one axis of a size that is not known: a sum of the elements beside each place."""
    scale, half = g.const(ratio), g.const(0.5)
    number = g.emit(op.arange(0, new, 1, dtype="float32"))
    if method != "nearest" or exact:
        number = g.emit(op.add(number, half))
    at = g.emit(op.multiply(number, scale))
    last = g.emit(op.subtract(g.number(old, "int64"), g.const(1, "int64")))
    zero = g.const(0, "int64")
    within = lambda v: g.emit(op.minimum(g.emit(op.maximum(v, zero)), last))
    floor = lambda v: g.cast(g.emit(op.floor(v)), "int64")
    if method == "nearest":
        return g.emit(op.take(x, within(floor(at)), axis=axis))
    at = g.emit(op.subtract(at, half))
    if method == "linear":
        at = g.emit(op.maximum(at, g.const(0.0)))
    first, total = floor(at), None
    share = g.emit(op.subtract(at, g.cast(first, "float32")))
    after = g.rank(x) - 1 - axis
    for k in range(2) if method == "linear" else range(-1, 3):
        weight = g.cast(_share(g, method, share, k), g.dtype(x))
        if after:
            weight = g.emit(op.expand_dims(weight, [1 + i for i in range(after)]))
        row = g.emit(op.take(x, within(g.emit(op.add(first, g.const(k, "int64")))), axis=axis))
        part = g.emit(op.multiply(row, weight))
        total = part if total is None else g.emit(op.add(total, part))
    return total


def _share(g: Graph, method: str, share: Any, k: int) -> Any:
    """`_kernel` in operators: the weight of the k-th element from the one that lies `share` below a place."""
    distance = g.emit(op.abs(g.emit(op.subtract(share, g.const(float(k))))))
    times = lambda v, c: g.emit(op.multiply(v, g.const(c)))
    plus = lambda v, c: g.emit(op.add(v, g.const(c)))
    if method == "linear":
        return plus(times(distance, -1.0), 1.0)
    square = g.emit(op.multiply(distance, distance))
    if k in (0, 1):  # near
        inner = plus(times(distance, _CUBIC + 2), -(_CUBIC + 3))
        return plus(g.emit(op.multiply(inner, square)), 1.0)
    inner = plus(g.emit(op.multiply(plus(distance, -5.0), distance)), 8.0)
    return plus(times(g.emit(op.multiply(inner, distance)), _CUBIC), -4 * _CUBIC)


def _weights(
    old: int, new: int, ratio: float, method: str, aligned: bool, exact: bool, antialias: bool
) -> np.ndarray:
    weights = np.zeros((new, old))
    place = np.arange(new)
    if method == "nearest":
        at = (place + 0.5) * ratio if exact else place * ratio
        weights[place, np.minimum(np.floor(at).astype(int), old - 1)] = 1
        return weights
    if aligned:
        at = place * ((old - 1) / max(new - 1, 1))
    else:
        at = (place + 0.5) * ratio - 0.5
    if antialias:
        return _smoothed(at, old, ratio, method)
    if method == "linear":
        at = np.maximum(at, 0)
    first = np.floor(at).astype(int)
    reach = range(2) if method == "linear" else range(-1, 3)
    for k in reach:
        share = _kernel(method, at - (first + k), _CUBIC)
        np.add.at(weights, (place, np.clip(first + k, 0, old - 1)), share)
    return weights


def _kernel(method: str, distance: np.ndarray, cubic: float) -> np.ndarray:
    d = np.abs(distance)
    if method == "linear":
        return np.maximum(1 - d, 0)
    near = ((cubic + 2) * d - (cubic + 3)) * d * d + 1
    far = ((d - 5) * d + 8) * d * cubic - 4 * cubic
    return np.where(d <= 1, near, np.where(d < 2, far, 0))


def _smoothed(at: np.ndarray, old: int, ratio: float, method: str) -> np.ndarray:
    """The kernel is as wide as a new pixel where that is wider than an old one."""
    width = max(ratio, 1.0)
    distance = (np.arange(old)[None, :] - at[:, None]) / width
    weights = _kernel(method, distance, -0.5)
    return weights / weights.sum(1, keepdims=True)


def _register(name: str, method: str, ranks: Sequence[int], aligns: bool, **how: bool) -> None:
    for rank in ranks:

        @aten_op(f"{name}{rank}d.vec" if not how.get("antialias") else f"{name}{rank}d_aa.vec")
        def by_factors(g: Graph, x: Any, size: Any, *rest: Any) -> Any:
            factors = rest[-1]
            return _resize(g, x, None if size else factors, method, aligns and bool(rest[0]), **how)

        @aten_op(
            f"{name}{rank}d.default" if not how.get("antialias") else f"{name}{rank}d_aa.default"
        )
        def by_size(g: Graph, x: Any, size: Any, *rest: Any) -> Any:
            factors = [f for f in rest[int(aligns) :]]
            known = factors if factors and all(f is not None for f in factors) else None
            return _resize(g, x, known, method, aligns and bool(rest[0]), **how)


_register("upsample_nearest", "nearest", (1, 2, 3), False)
_register("_upsample_nearest_exact", "nearest", (1, 2, 3), False, exact=True)
_register("upsample_linear", "linear", (1,), True)
_register("upsample_bilinear", "linear", (2,), True)
_register("upsample_trilinear", "linear", (3,), True)
_register("upsample_bicubic", "cubic", (2,), True)
_register("_upsample_bilinear", "linear", (2,), True, antialias=True)
_register("_upsample_bicubic", "cubic", (2,), True, antialias=True)
