# SPDX-License-Identifier: Apache-2.0
"""Resize and Upsample.

image.resize2d serves the common case: two spatial axes whose scale is the ratio of the sizes.  The
rest is done one axis after the other: nearest and linear with positions computed at run time (they
work on symbolic sizes), cubic and antialiased ones as a product with a constant matrix.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from relaxvm.relax import op

from ..errors import InvalidModel, UnsupportedModel
from ..graph import Graph
from ..interpolation import Axis, Interpolation, resize_axis
from ..registry import Array, Dims, Expr, onnx_op
from ..scalars import is_symbolic

# What image.resize2d computes as ONNX does.
_COORDINATES = ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel")
_METHODS = {"nearest": "nearest_neighbor", "linear": "linear", "cubic": "cubic"}
_ROUNDING = {
    "round_prefer_floor": "round_prefer_floor",
    "round_prefer_ceil": "round_prefer_ceil",
    "floor": "floor",
    "ceil": "ceil",
}


@onnx_op("Upsample", since=7)
def upsample_7(g: Graph, x: Expr, *, scales: list[float], mode: str = "nearest") -> Expr:
    return _upsample(g, x, scales, mode)


@onnx_op("Upsample", since=9)
def upsample_9(g: Graph, x: Expr, scales: Array, *, mode: str = "nearest") -> Expr:
    return _upsample(g, x, [float(v) for v in scales], mode)


@onnx_op("Resize", since=10)
def resize_10(g: Graph, x: Expr, scales: Array, *, mode: str = "nearest") -> Expr:
    return _upsample(g, x, [float(v) for v in scales], mode)


def _upsample(g, x, scales, mode):
    how = Interpolation(mode, "asymmetric", "floor", -0.75, False, 0.0, False)
    return _resize(g, x, None, scales, None, None, "stretch", how)


@onnx_op("Resize", since=11)
def resize(
    g: Graph,
    x: Expr,
    roi: Array | None = None,
    scales: Array | None = None,
    sizes: Dims | None = None,
    *,
    antialias: int = 0,
    axes: list[int] | None = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Expr:
    how = Interpolation(
        mode,
        coordinate_transformation_mode,
        nearest_mode,
        cubic_coeff_a,
        bool(exclude_outside),
        extrapolation_value,
        bool(antialias),
    )
    factors = None if scales is None or not scales.size else [float(v) for v in scales]
    if how.coordinates != "tf_crop_and_resize":
        roi = None
    return _resize(g, x, roi, factors, sizes or None, axes, keep_aspect_ratio_policy, how)


def _resize(g, x, roi, scales, sizes, axes, policy, how):
    have, s = g.shape(x), g.scalars
    axes = list(range(len(have))) if axes is None else [g.axis(a, len(have)) for a in axes]
    given = scales if sizes is None else sizes
    if given is None or len(given) != len(axes):
        raise InvalidModel(f"scales or sizes must have {len(axes)} values")
    if sizes is not None and policy != "stretch":
        sizes, scales = _keep_aspect(have, axes, sizes, policy)
    out = list(have)
    plan = []
    for i, axis in enumerate(axes):
        scale = None if scales is None else _fraction(scales[i])
        window = None if roi is None else (float(roi[i]), float(roi[i + len(axes)]))
        out[axis] = sizes[i] if sizes is not None else _scaled(s, have[axis], scale, window)
        # The scale that says nothing new about the sizes is forgotten.
        if scale is not None and s.same(
            s.mul(have[axis], scale.numerator), s.mul(out[axis], scale.denominator)
        ):
            scale = None
        if window is not None or scale is not None or not s.same(have[axis], out[axis]):
            plan.append(Axis(axis, have[axis], out[axis], scale, window))
    if not plan:
        return x
    if _fits_resize2d(have, plan, how):
        return _resize2d(g, x, out, how)
    for step in plan:
        x = resize_axis(g, x, step, how)
    return x


def _fraction(scale: float) -> Fraction:
    """The simple fraction that was rounded to this float32, when there is one (0.3, 2/3)."""
    simple = Fraction(scale).limit_denominator(1000)
    return simple if np.float32(float(simple)) == np.float32(scale) else Fraction(scale)


def _scaled(s, have, scale, window):
    if window is not None:
        scale = scale * _fraction(window[1] - window[0])
    return s.floordiv(s.mul(have, scale.numerator), scale.denominator)


def _keep_aspect(have, axes, sizes, policy):
    old = [have[a] for a in axes]
    if any(is_symbolic(d) for d in [*old, *sizes]):
        raise UnsupportedModel("keep_aspect_ratio_policy needs known sizes")
    if policy not in ("not_larger", "not_smaller"):
        raise InvalidModel(f"keep_aspect_ratio_policy is '{policy}'")
    pick = min if policy == "not_larger" else max
    scale = pick(Fraction(n, o) for n, o in zip(sizes, old))
    return [int(scale * o + Fraction(1, 2)) for o in old], [float(scale)] * len(old)


def _fits_resize2d(have, plan, how) -> bool:
    return (
        len(have) == 4
        and all(step.axis >= 2 and step.scale is None and step.window is None for step in plan)
        and how.coordinates in _COORDINATES
        and (how.mode != "nearest" or how.rounding in _ROUNDING)
        and not how.antialias
        and not how.exclude_outside
        and how.mode != "cubic"
    )


def _resize2d(g, x, out, how):
    return op.image.resize2d(
        x,
        (out[2], out[3]),
        layout="NCHW",
        method=_METHODS[how.mode],
        coordinate_transformation_mode=how.coordinates,
        rounding_method=_ROUNDING[how.rounding] if how.mode == "nearest" else "",
        cubic_alpha=how.cubic_a,
    )
