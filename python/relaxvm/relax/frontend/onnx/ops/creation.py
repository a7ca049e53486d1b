# SPDX-License-Identifier: Apache-2.0
"""Constants, and tensors made from shapes."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from relaxvm.relax import op

from ..errors import InvalidModel
from ..graph import Graph
from ..registry import Dims, Expr, onnx_op
from ..values import Known, Value


@onnx_op("Constant", since=1)
def constant(
    g: Graph,
    *,
    value: np.ndarray | None = None,
    value_float: float | None = None,
    value_floats: list[float] | None = None,
    value_int: int | None = None,
    value_ints: list[int] | None = None,
    value_string: str | None = None,
    value_strings: list[str] | None = None,
) -> Known:
    texts = [v for v in (value_string, value_strings) if v is not None]
    if texts:
        g.set_output_type(0, TensorProto.STRING)
    floats = [v for v in (value_float, value_floats) if v is not None]
    ints = [v for v in (value_int, value_ints) if v is not None]
    values = [v for v in (value,) if v is not None]
    values += [np.asarray(v, np.float32) for v in floats] + [np.asarray(v, np.int64) for v in ints]
    values += [g.texts.places(v) for v in texts]
    if len(values) != 1:
        raise InvalidModel(f"needs one attribute with its value, has {len(values)}")
    return Known.constant(values[0])


@onnx_op("ConstantOfShape", since=9)
def constant_of_shape(g: Graph, shape: Dims, *, value: np.ndarray | None = None) -> Expr:
    value = np.zeros(1, np.float32) if value is None else value
    element = g.constant(value.reshape(-1)[0], value.dtype)
    g.filled[g.node.output[0]] = value.reshape(-1)[0]
    return op.full(shape, element, dtype=value.dtype.name)


@onnx_op("Shape", since=1)
def shape(g: Graph, x: Value, *, start: int = 0, end: int | None = None) -> Known:
    dims = list(x.array.shape) if isinstance(x, Known) else g.shape(x.expr)
    dims = dims[start:end]
    return g.dims_value(dims, (len(dims),))


@onnx_op("Size", since=1)
def size(g: Graph, x: Expr) -> Known:
    return g.dims_value([g.product(g.shape(x))], ())


@onnx_op("Range", since=11)
def range_(g: Graph, start: Value, limit: Value, delta: Value, *, stash_type: int = 1) -> Expr:
    dtype = start.dtype.name if isinstance(start, Known) else g.dtype(start.expr)
    if all(isinstance(v, Known) and v.is_constant for v in (start, limit, delta)):
        first, last, step = (v.array.reshape(()).item() for v in (start, limit, delta))
        return g.constant(np.arange(first, last, step), dtype)
    if not dtype.startswith(("int", "uint")):
        return _real_range(g, *(g.as_expr(v, "limits") for v in (start, limit, delta)))
    first, last, step = (
        g.as_offsets(v, name)[0]
        for v, name in ((start, "start"), (limit, "limit"), (delta, "delta"))
    )
    if step == 0:
        raise InvalidModel("delta is 0")
    if not isinstance(step, int):
        return _range_of_any_step(g, *(g.as_expr(v, "limits") for v in (start, limit, delta)))
    s = g.scalars
    count = s.maximum(
        s.ceildiv(s.sub(last, first), step) if step > 0 else s.ceildiv(s.sub(first, last), -step), 0
    )
    steps = op.arange(0, count, 1, dtype="int64")
    scaled = op.multiply(steps, g.constant(step, "int64"))
    offset = g.as_expr(g.dims_value([first], ()), "start")
    values = op.add(scaled, offset)
    return values if dtype == "int64" else op.astype(values, dtype)


def _range_of_any_step(g, start, limit, delta):
    """The same of integers whose step, up or down, is computed while running.  A step of 0 gives nothing."""
    wide = lambda x: op.astype(x, "float64")
    span, size = wide(op.subtract(limit, start)), wide(delta)
    steps = g.emit(op.ceil(op.divide(span, size)))
    some = op.logical_and(
        op.not_equal(delta, g.scalar(0, delta)), op.greater(steps, g.scalar(0, steps))
    )
    count = g.emit(op.astype(op.where(some, steps, g.scalar(0, steps)), "int64"))
    number = g.run_time_dims(g.emit(op.reshape(count, [1])), "count")[0]
    index = op.astype(op.arange(0, number, 1, dtype="int64"), g.dtype(start))
    return op.add(start, op.multiply(index, delta))


def _real_range(g, start, limit, delta):
    """start, start + delta, ... of floating-point numbers that are computed while running."""
    steps = g.emit(op.ceil(op.divide(op.subtract(limit, start), delta)))
    count = op.maximum(steps, g.scalar(0, steps))
    number = g.run_time_dims(g.emit(op.reshape(op.astype(count, "int64"), [1])), "count")[0]
    index = op.astype(op.arange(0, number, 1, dtype="int64"), g.dtype(start))
    return op.add(start, op.multiply(index, delta))
