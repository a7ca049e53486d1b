# SPDX-License-Identifier: Apache-2.0
"""Images: sizes, crops, morphological dilation, regions of interest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .. import te, tirx
from ..te.tensor import Tensor, compute
from .arrays import Ints, _ints
from .convolutions import _SPACE, _padding
from .layers import pad
from .operators import OPERATORS as op


def _resize(space: int) -> Callable[..., Tensor]:
    def function(
        data: Tensor,
        roi: Sequence[float],
        size: Sequence[Any],
        layout: str = "NC" + _SPACE[space],
        method: str = "linear",
        coordinate_transformation_mode: str = "half_pixel",
        rounding_method: str = "",
        bicubic_alpha: float = -0.75,
        bicubic_exclude: int = 0,
        extrapolation_value: float = 0.0,
        out_dtype: Any = None,
        output_shape: Sequence[Any] | None = None,
    ) -> Tensor:
        if output_shape is not None:
            size = [output_shape[layout.index(c)] for c in _SPACE[space]]
        # An image of one axis is one of two, of height 1.
        flat = space == 1
        place = layout.index("W")
        result = op[f"image.resize{max(space, 2)}d"](
            op["expand_dims"](data, axis=[place]) if flat else data,
            (1, *size) if flat else tuple(size),
            roi=_region([float(r) for r in roi], space),
            layout=layout.replace("W", "HW") if flat else layout,
            method=method,
            coordinate_transformation_mode=coordinate_transformation_mode,
            rounding_method=rounding_method,
            cubic_alpha=bicubic_alpha,
            cubic_exclude=bicubic_exclude,
            extrapolation_value=extrapolation_value,
            out_dtype=out_dtype,
        )
        return op["squeeze"](result, axis=[place]) if flat else result

    function.__name__ = f"resize{space}d"
    function.__doc__ = (
        'An image of another size; `roi` is the part of it that "tf_crop_and_resize" takes.'
    )
    return function


def _region(roi: list[float], space: int) -> list[float]:
    """Begins, then ends; all of the height that a row is given."""
    return [0.0, roi[0], 1.0, roi[1]] if space == 1 and len(roi) == 2 else roi


resize1d, resize2d, resize3d = _resize(1), _resize(2), _resize(3)


_METHODS = {"bilinear": "linear", "trilinear": "linear", "bicubic": "cubic"}


def _scaled(extent: Any, scale: float) -> Any:
    if float(scale).is_integer():
        return extent * int(scale)
    return round(int(extent) * scale)


def upsampling(
    data: Tensor,
    scale_h: float,
    scale_w: float,
    layout: str = "NCHW",
    method: str = "nearest_neighbor",
    align_corners: bool = False,
    output_shape: Sequence[Any] | None = None,
) -> Tensor:
    """An image `scale_h` times as high and `scale_w` times as wide, or of the extents in `output_shape`."""
    high, wide = (data.shape[layout.index(c)] for c in "HW")
    size = (_scaled(high, scale_h), _scaled(wide, scale_w))
    mode = "align_corners" if align_corners else "asymmetric"
    method = _METHODS.get(method, method)
    return resize2d(data, (0.0,) * 4, size, layout, method, mode, output_shape=output_shape)


def upsampling3d(
    data: Tensor,
    scale_d: float,
    scale_h: float,
    scale_w: float,
    layout: str = "NCDHW",
    method: str = "nearest_neighbor",
    coordinate_transformation_mode: str = "half_pixel",
    output_shape: Sequence[Any] | None = None,
) -> Tensor:
    """An image so many times as deep, high and wide, or of the extents in `output_shape`."""
    extents = (data.shape[layout.index(c)] for c in "DHW")
    size = tuple(_scaled(n, s) for n, s in zip(extents, (scale_d, scale_h, scale_w)))
    method, mode = _METHODS.get(method, method), coordinate_transformation_mode
    return resize3d(data, (0.0,) * 6, size, layout, method, mode, output_shape=output_shape)


def crop_and_resize(
    data: Tensor,
    boxes: Tensor,
    box_indices: Tensor,
    crop_size: Sequence[Any],
    layout: str = "NCHW",
    method: str = "bilinear",
    extrapolation_value: float | None = None,
    out_dtype: Any = None,
) -> Tensor:
    """Crops of one size: box b, [top, left, bottom, right] in [0, 1], of image box_indices[b].

    Outside of the image is `extrapolation_value`, 0 unless given.
    """
    if layout not in ("NCHW", "NHWC"):
        raise ValueError(f"layout must be NCHW or NHWC, not {layout!r}")
    if method not in ("bilinear", "nearest_neighbor"):
        raise ValueError(f'method must be "bilinear" or "nearest_neighbor", not {method!r}')
    axes = [layout.index(c) for c in "HW"]
    extents = [data.shape[x] for x in axes]
    dtype, result = str(boxes.dtype), str(out_dtype or data.dtype)
    outside = tirx.const(extrapolation_value or 0.0, result)
    shape = [boxes.shape[0], *list(data.shape)[1:]]
    for x, n in zip(axes, crop_size):
        shape[x] = n

    def where(box: Any, axis: int, place: Any) -> Any:
        """The place in the image, along height (0) or width (1), of a place in the crop."""
        first, last = boxes(box, axis), boxes(box, axis + 2)
        reach = (extents[axis] - 1 + place * 0).astype(dtype)
        if int(crop_size[axis]) == 1:
            return tirx.const(0.5, dtype) * (first + last) * reach
        step = (last - first) * reach / tirx.const(int(crop_size[axis]) - 1, dtype)
        return first * reach + place.astype(dtype) * step

    def formula(*i: Any) -> Any:
        y, x = (where(i[0], axis, i[axes[axis]]) for axis in (0, 1))
        limits = [(n - 1 + i[0] * 0).astype(dtype) for n in extents]

        def pixel(row: Any, column: Any) -> Any:
            places = [box_indices(i[0]), *i[1:]]
            for axis, place, n in zip(axes, (row, column), extents):
                at = place.astype("int64")
                places[axis] = tirx.min(tirx.max(at, tirx.const(0, "int64")), n - 1)
            return data(*places).astype(dtype)

        if method == "nearest_neighbor":
            value = pixel(tirx.round(y), tirx.round(x))
        else:
            top, left = tirx.floor(y), tirx.floor(x)
            down, right = tirx.ceil(y), tirx.ceil(x)
            part = x - left
            above = pixel(top, left) + (pixel(top, right) - pixel(top, left)) * part
            below = pixel(down, left) + (pixel(down, right) - pixel(down, left)) * part
            value = above + (below - above) * (y - top)
        zero = tirx.const(0, dtype)
        inside = tirx.all(y >= zero, y <= limits[0], x >= zero, x <= limits[1])
        return tirx.if_then_else(inside, value.astype(result), outside)

    return compute(shape, formula, name="T_crop_and_resize")


# ---- morphological dilation


def _dilation2d(layout: str) -> Callable[..., Tensor]:
    high, wide, channel = (layout.index(c) for c in "HWC")

    def function(
        input: Tensor,
        filter: Tensor,
        stride: Ints,
        padding: Any,
        dilations: Ints,
        out_dtype: Any = None,
    ) -> Tensor:
        window = list(filter.shape)[1:] if layout == "NCHW" else list(filter.shape)[:2]
        steps, spread = (_ints(v) * (2 if isinstance(v, int) else 1) for v in (stride, dilations))
        around = _padding(padding, window, spread)
        around = {1: around * 4, 2: around * 2}.get(len(around), around)
        before, after = [0] * 4, [0] * 4
        for n, axis in enumerate((high, wide)):
            before[axis], after[axis] = around[n], around[n + 2]
        padded = pad(input, before, after)
        dtype = str(out_dtype or input.dtype)
        shape = list(padded.shape)
        for n, axis in enumerate((high, wide)):
            shape[axis] = (shape[axis] - (window[n] - 1) * spread[n] - 1) // steps[n] + 1
        ky: Any
        kx: Any
        ky, kx = (te.reduce_axis((0, w), name) for w, name in zip(window, ("ky", "kx")))

        def formula(*i: Any) -> Any:
            places = list(i)
            places[high] = i[high] * steps[0] + ky * spread[0]
            places[wide] = i[wide] * steps[1] + kx * spread[1]
            weight = filter(i[channel], ky, kx) if layout == "NCHW" else filter(ky, kx, i[channel])
            return te.max(padded(*places).astype(dtype) + weight.astype(dtype), axis=[ky, kx])

        return compute(shape, formula, name=function.__name__)

    function.__name__ = f"dilation2d_{layout.lower()}"
    function.__doc__ = (
        f"Maxima of {layout}, padded with zeros, plus filter {layout[1:]}, over windows."
    )
    return function


dilation2d_nchw, dilation2d_nhwc = _dilation2d("NCHW"), _dilation2d("NHWC")
