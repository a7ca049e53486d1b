# SPDX-License-Identifier: Apache-2.0
"""Resize and Upsample.

image.resize2d serves the common case: one or two neighbouring axes, nearest or linear, by scales
that are known or the ratio of the sizes.  The rest is done one axis after the other, most of it as
a product with a matrix, which is a constant where sizes are known.
"""

from __future__ import annotations

import functools
from fractions import Fraction

import numpy as np

from relaxvm import relax, tirx
from relaxvm.relax import op

from ..errors import InvalidModel, UnsupportedModel
from ..graph import Graph
from ..interpolation import Axis, Interpolation, resize_axis
from ..registry import Dims, Expr, onnx_op
from ..scalars import is_symbolic
from ..subgraphs import emit_if, walked
from ..values import Tensor, Value

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
def upsample_9(g: Graph, x: Expr, scales: Value, *, mode: str = "nearest") -> Expr:
    return _upsample(g, x, _factors(g, x, scales), mode)


@onnx_op("Resize", since=10)
def resize_10(g: Graph, x: Expr, scales: Value, *, mode: str = "nearest") -> Expr:
    return _upsample(g, x, _factors(g, x, scales), mode)


def _upsample(g, x, scales, mode):
    """Nearest elements stand before the position, but behind it where an axis shrinks, as in ONNX Runtime."""
    shrinks = [s for s in scales if isinstance(s, float) and s < 1]
    if mode == "nearest" and shrinks:
        for part, rounding in ((lambda s: s < 1, "ceil"), (lambda s: s >= 1, "floor")):
            if any(not isinstance(s, float) for s in scales):
                raise UnsupportedModel("some of its scales are constants below 1, others computed")
            how = Interpolation(mode, "asymmetric", rounding, -0.75, False, 0.0, False)
            mine = [s if part(s) else 1.0 for s in scales]
            x = g.emit(_resize(g, x, None, mine, None, None, "stretch", how))
        return x
    how = Interpolation(mode, "asymmetric", "floor", -0.75, False, 0.0, False)
    return _resize(g, x, None, scales, None, None, "stretch", how)


@onnx_op("Resize", since=11)
def resize(
    g: Graph,
    x: Expr,
    roi: Value | None = None,
    scales: Value | None = None,
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
    factors = None if scales is None else _factors(g, x, scales)
    windows = (
        _factors(g, x, roi) if roi is not None and how.coordinates == "tf_crop_and_resize" else None
    )
    return _resize(
        g, x, windows, factors or None, sizes or None, axes, keep_aspect_ratio_policy, how
    )


def _factors(g, x, values):
    """Numbers, or scalar tensors where they are computed while running."""
    if g.is_constant(values):
        return [float(v) for v in values.array.reshape(-1)]
    expr = g.emit(op.astype(g.as_expr(values, "scales"), "float32"))
    count = g.shape(expr)[0]
    if is_symbolic(count):
        raise UnsupportedModel("the number of its scales is unknown")
    part = lambda i: op.strided_slice(expr, axes=[0], begin=[i], end=[i + 1])
    return [g.emit(op.reshape(part(i), [])) for i in range(count)]


def _resize(g, x, roi, scales, sizes, axes, policy, how):
    have, s = g.shape(x), g.scalars
    axes = list(range(len(have))) if axes is None else [g.axis(a, len(have)) for a in axes]
    given = scales if sizes is None else sizes
    if given is None or len(given) != len(axes):
        raise InvalidModel(f"scales or sizes must have {len(axes)} values")
    if sizes is not None and policy != "stretch":
        sizes, scales = _keep_aspect(g, have, axes, sizes, policy)
    out = list(have)
    plan = []
    for i, axis in enumerate(axes):
        window = None if roi is None else _window(g, roi[i], roi[i + len(axes)])
        if scales is not None and not isinstance(scales[i], float):
            out[axis] = sizes[i] if sizes is not None else _run_time_size(g, have[axis], scales[i])
            plan.append(Axis(axis, have[axis], out[axis], scales[i], window))
            continue
        scale = None if scales is None else _fraction(scales[i])
        if window is not None and not isinstance(window, tuple):
            out[axis] = sizes[i] if sizes is not None else _scaled(s, have[axis], scale, None)
            plan.append(Axis(axis, have[axis], out[axis], scale, window))
            continue
        out[axis] = sizes[i] if sizes is not None else _scaled(s, have[axis], scale, window)
        # The scale that says nothing new about the sizes is forgotten, unless it must be a constant.
        if (
            scale is not None
            and not how.antialias
            and s.same(s.mul(have[axis], scale.numerator), s.mul(out[axis], scale.denominator))
        ):
            scale = None
        if window is not None or scale not in (None, 1) or not s.same(have[axis], out[axis]):
            plan.append(Axis(axis, have[axis], out[axis], scale, window))
    if not plan:
        return x
    plan.sort(key=lambda step: step.axis)
    if np.issubdtype(np.dtype(g.dtype(x)), np.integer) and how.mode != "nearest":
        return _resized_integers(g, x, out, plan, how)
    return _resized(g, x, out, plan, how)


def _resized_integers(g, x, out, plan, how):
    """Positions between elements by way of float32: linear results lose their fraction, others are rounded."""
    dtype = g.dtype(x)
    y = g.emit(_resized(g, g.emit(op.astype(x, "float32")), out, plan, how))
    if how.mode == "cubic" or how.antialias:
        limits = np.iinfo(dtype)
        y = op.clip(op.round(y), float(limits.min), float(limits.max))
    return op.astype(y, dtype)


def _resized(g, x, out, plan, how):
    outer = [step for step in plan if step.axis < 2]
    inner = plan[len(outer) :]
    may_keep = outer and len(out) == 4 and all(map(_may_keep, outer))
    if may_keep and _fits_resize2d(inner, how) and not _fits_resize2d(plan, how):
        return _kept_or_resized(g, x, out, plan, outer, how)
    return _along_axes(g, x, plan, how)


def _along_axes(g, x, plan, how):
    if _fits_resize2d(plan, how):
        return g.emit(_resize2d(g, x, plan, how))
    for step in plan:
        fits = _fits_resize2d([step], how)
        x = g.emit(_resize2d(g, x, [step], how)) if fits else resize_axis(g, x, step, how)
    return x


def _may_keep(step) -> bool:
    return step.scale is None and step.window is None and is_symbolic(step.size)


def _kept_or_resized(g, x, out, plan, outer, how):
    """Asks while running whether batch and channels keep their sizes, as they nearly always do."""
    keeps = functools.reduce(tirx.And, (g.scalars.equal(step.size, step.out) for step in outer))
    inner = plan[len(outer) :]
    kept = lambda: g.match_cast(x, [*out[:2], *g.shape(x)[2:]])
    two_axes = lambda: g.emit(_resize2d(g, kept(), inner, how))
    bodies = [
        walked(g, lambda: [Tensor(two_axes())]),
        walked(g, lambda: [Tensor(_along_axes(g, x, plan, how))]),
    ]
    return emit_if(g, relax.prim_value(keeps), bodies)[0].expr


def _fraction(scale: float) -> Fraction:
    """The simple fraction that was rounded to this float32, when there is one (0.3, 2/3)."""
    simple = Fraction(scale).limit_denominator(1000)
    return simple if np.float32(float(simple)) == np.float32(scale) else Fraction(scale)


def _scaled(s, have, scale, window):
    if window is not None:
        scale = scale * _fraction(window[1] - window[0])
    return s.floordiv(s.mul(have, scale.numerator), scale.denominator)


def _window(g, begin, end):
    if isinstance(begin, float) and isinstance(end, float):
        return begin, end
    return g.emit(op.stack([begin, end], axis=0))


def _run_time_size(g, have, scale):
    size = g.emit(op.astype(g.as_expr(g.dims_value([have], (1,)), "size"), "float32"))
    return g.run_time_dims(g.emit(op.astype(op.floor(op.multiply(size, scale)), "int64")), "size")[
        0
    ]


def _run_time_aspect(g, old, sizes, policy):
    """The scale that all axes share, and the sizes that it gives."""
    numbers = lambda dims: g.emit(
        op.astype(g.as_expr(g.dims_value(dims, (len(dims),)), "sizes"), "float32")
    )
    have = numbers(old)
    ratios = g.emit(op.divide(numbers(sizes), have))
    pick = op.min if policy == "not_larger" else op.max
    scale = g.emit(pick(ratios, axis=[0], keepdims=False))
    half = g.constant(0.5, "float32")
    rounded = op.floor(op.add(op.multiply(have, scale), half))
    return g.run_time_dims(g.emit(op.astype(rounded, "int64")), "size"), [scale] * len(old)


def _keep_aspect(g, have, axes, sizes, policy):
    old = [have[a] for a in axes]
    if policy not in ("not_larger", "not_smaller"):
        raise InvalidModel(f"keep_aspect_ratio_policy is '{policy}'")
    if any(is_symbolic(d) for d in [*old, *sizes]):
        return _run_time_aspect(g, old, sizes, policy)
    pick = min if policy == "not_larger" else max
    scale = pick(Fraction(n, o) for n, o in zip(sizes, old))
    return [int(scale * o + Fraction(1, 2)) for o in old], [float(scale)] * len(old)


def _scale_of(step, how) -> float:
    """0: that of the sizes."""
    if step is not None and step.scale is not None:
        return float(step.scale)
    if not how.antialias:
        return 0.0
    return 1.0 if step is None else step.out / step.size


def _is_little_smaller(step) -> bool:
    """Few enough elements make one that each has a table of its own."""
    if step.scale is not None:
        return step.scale >= Fraction(1, 8)
    if is_symbolic(step.size) or is_symbolic(step.out):
        return False
    return step.out * 8 >= step.size > 0


def _fits_resize2d(plan, how) -> bool:
    return (
        1 <= len(plan) <= 2
        and plan[-1].axis - plan[0].axis < 2
        and all(isinstance(step.scale, (Fraction, type(None))) for step in plan)
        and all(step.window is None for step in plan)
        and how.coordinates in _COORDINATES
        and how.mode != "cubic"
        and (how.mode != "nearest" or how.rounding in _ROUNDING)
        and (not how.antialias or (how.mode == "linear" and all(map(_is_little_smaller, plan))))
        and not how.exclude_outside
    )


def _resize2d(g, x, plan, how):
    """Axes that stand before and behind those of the plan are batch and channels, or part of rows."""
    have = g.shape(x)
    product = lambda dims: functools.reduce(g.scalars.mul, dims, 1)
    first, last = plan[0].axis, plan[-1].axis
    behind = have[last + 1 :]
    if len(plan) == 2:
        pair, image = plan, have[first : last + 1]
    elif behind:
        pair, image, behind = [plan[0], None], [have[first], product(behind)], []
    else:
        first = max(last - 1, 0)
        pair, image = [None, plan[0]], [have[first] if last > 0 else 1, have[last]]
    if behind:
        layout, dims = "NHWC", [product(have[:first]), *image, product(behind)]
    else:
        before = have[:first] if first == 2 else [1, product(have[:first])]
        layout, dims = "NCHW", [*before, *image]
    is_image = len(dims) == len(have) and all(map(g.scalars.same, dims, have))
    scales = [_scale_of(step, how) for step in pair]
    y = op.image.resize2d(
        x if is_image else g.emit(op.reshape(x, dims)),
        [size if step is None else step.out for size, step in zip(image, pair, strict=True)],
        layout=layout,
        method=_METHODS[how.mode],
        coordinate_transformation_mode=how.coordinates,
        rounding_method=_ROUNDING[how.rounding] if how.mode == "nearest" else "",
        cubic_alpha=how.cubic_a,
        antialias=how.antialias,
        scales=scales if any(scales) else [],
    )
    if is_image:
        return y
    out = {step.axis: step.out for step in plan}
    return op.reshape(g.emit(y), [out.get(axis, size) for axis, size in enumerate(have)])
