# SPDX-License-Identifier: Apache-2.0
"""Images read at computed places."""

from __future__ import annotations

from typing import Any

from relaxvm import te, tirx
from relaxvm.relax import op

from ..errors import InvalidModel, UnsupportedModel
from ..graph import Graph
from ..padding import window_counts
from ..registry import Dims, Expr, onnx_op

_METHODS = {
    "linear": "bilinear", "bilinear": "bilinear", "nearest": "nearest", "cubic": "bicubic",
    "bicubic": "bicubic",
}  # fmt: skip


@onnx_op("GridSample", since=16)
@onnx_op("GridSample", since=1, domain="com.microsoft")
def grid_sample(
    g: Graph,
    x: Expr,
    grid: Expr,
    *,
    align_corners: int = 0,
    mode: str = "linear",
    padding_mode: str = "zeros",
) -> Expr:
    rank = g.rank(x)
    if mode not in _METHODS:
        raise InvalidModel(f"mode is one of {sorted(_METHODS)}, not '{mode}'")
    if rank not in (4, 5):
        raise UnsupportedModel(f"works on 4 and 5 dimensions; its input has {rank}")
    # Places lie along one axis, however short their own are: vectors run along it.
    x, places = g.emit(x), g.shape(grid)
    ones = [1] * (rank - 3)
    flat = [places[0], *ones, g.product(places[1:-1]), places[-1]]
    grid = op.permute_dims(g.emit(op.reshape(grid, flat)), [0, rank - 1, *range(1, rank - 1)])
    grid = grid if g.dtype(grid := g.emit(grid)) == g.dtype(x) else op.astype(grid, g.dtype(x))
    samples = op.image.grid_sample(
        x,
        g.emit(grid),
        method=_METHODS[mode],
        layout="NCHW" if rank == 4 else "NCDHW",
        padding_mode=padding_mode,
        align_corners=bool(align_corners),
    )
    return op.reshape(g.emit(samples), [*g.shape(x)[:2], *places[1:-1]])


@onnx_op("AffineGrid", since=20)
def affine_grid(g: Graph, theta: Expr, size: Dims, *, align_corners: int = 0) -> Expr:
    spatial, batch = size[2:], size[0]
    count, dtype = len(spatial), g.dtype(theta)
    theta = g.checked(theta, [batch, count, count + 1])
    total = g.product(spatial)
    columns = []
    for axis in reversed(range(count)):  # the last axis comes first
        shape = [n if i == axis else 1 for i, n in enumerate(spatial)]
        place = op.reshape(_places(g, spatial[axis], align_corners, dtype), shape)
        columns.append(g.emit(op.reshape(op.broadcast_to(g.emit(place), spatial), [total])))
    columns.append(g.emit(op.ones([total], dtype)))
    base = g.emit(op.stack(columns, axis=0))  # [count + 1, total]
    grid = op.permute_dims(op.matmul(theta, base), [0, 2, 1])
    return op.reshape(g.emit(grid), [batch, *spatial, count])


def _places(g, size, align_corners, dtype):
    """From -1 to 1, the middles of the elements."""
    number = lambda d: op.astype(g.as_expr(g.dims_value([d], ()), "size"), dtype)
    one, two = g.constant(1, dtype), g.constant(2, dtype)
    i = op.astype(op.arange(0, size, 1, dtype="int64"), dtype)
    if align_corners:
        steps = op.maximum(op.subtract(number(size), one), one)
        return g.emit(op.subtract(op.divide(op.multiply(i, two), steps), one))
    place = op.divide(op.add(op.multiply(i, two), one), number(size))
    return g.emit(op.subtract(place, one))


@onnx_op("Col2Im", since=18)
def col2im(
    g: Graph,
    x: Expr,
    image_shape: Dims,
    block_shape: Dims,
    *,
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Expr:
    """Blocks added at their places: each element is the sum of what lies over it."""
    n, s = len(image_shape), g.scalars
    if len(block_shape) != n or g.rank(x) != 3:
        raise InvalidModel(f"{n} axes need a block of {n} axes and an input of 3 dimensions")
    dilations, strides = dilations or [1] * n, strides or [1] * n
    pads = pads or [0] * 2 * n
    batch, rows, _ = g.shape(x)
    channels = s.floordiv(rows, g.product(block_shape))
    counts = window_counts(s, image_shape, block_shape, strides, dilations, pads)
    x = g.emit(op.reshape(x, [batch, channels, *block_shape, *counts]))
    whole = (
        s.same(d, s.mul(c, b)) for d, c, b in zip(image_shape, counts, block_shape, strict=True)
    )
    if strides == list(block_shape) and not any(pads) and set(dilations) == {1} and all(whole):
        # Each element is one of one block.
        order = [axis for i in range(n) for axis in (2 + n + i, 2 + i)]
        apart = g.emit(op.permute_dims(x, [0, 1, *order]))
        return op.reshape(apart, [batch, channels, *image_shape])

    def gathered(x: Any) -> Any:
        taps = [te.reduce_axis((0, size), "tap") for size in block_shape]

        def element(*index: Any) -> Any:
            inside: list[Any] = []
            places = []
            for i, at in enumerate(index[2:]):
                offset = at + pads[i] - taps[i] * dilations[i]
                places.append(offset // strides[i])
                inside += [offset >= 0, offset % strides[i] < 1, places[i] < counts[i]]
            value = x(*index[:2], *(tap.var for tap in taps), *places)
            zero = tirx.const(0, x.dtype)
            return te.sum(tirx.if_then_else(tirx.all(*inside), value, zero), axis=taps)

        return te.compute([batch, channels, *image_shape], element, name="col2im")

    return g.builder.call_te(gathered, x, primfunc_name_hint="col2im")


@onnx_op("RoiAlign", since=10)
def roi_align(
    g: Graph,
    x: Expr,
    rois: Expr,
    images: Expr,
    *,
    coordinate_transformation_mode: str | None = None,
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> Expr:
    """The older form counts corners from the middles of elements."""
    if coordinate_transformation_mode is None:
        newer = g.version >= 16
        coordinate_transformation_mode = "half_pixel" if newer else "output_half_pixel"
    first = op.expand_dims(op.astype(images, g.dtype(rois)), axis=[1])
    return op.vision.roi_align(
        x,
        op.concat([g.emit(first), rois], axis=1),
        pooled_size=[output_height, output_width],
        spatial_scale=spatial_scale,
        sample_ratio=sampling_ratio or -1,
        aligned=coordinate_transformation_mode == "half_pixel",
        mode=mode,
    )


@onnx_op("MaxRoiPool", since=1)
def max_roi_pool(
    x: Expr, rois: Expr, *, pooled_shape: list[int], spatial_scale: float = 1.0
) -> Expr:
    return op.vision.roi_pool(x, rois, pooled_size=pooled_shape, spatial_scale=spatial_scale)
