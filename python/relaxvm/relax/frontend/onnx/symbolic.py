# SPDX-License-Identifier: Apache-2.0
"""Evaluates operators on values that are known at import: the model's own shape arithmetic.

Each rule takes NumPy arrays, native ones for constants and arrays of objects where elements are
symbolic (scalars.py), and gives arrays back.  A rule that cannot say the result raises `Undecided`;
then the operator is imported like any other and runs on tensors.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from .element_types import numpy_dtype
from .scalars import Ratio, Scalars, Undecided, is_symbolic
from .values import Known

# Values above this size are data, not shapes.
MAX_ELEMENTS = 1024


class Call:
    """One node to evaluate: its inputs (None where absent), attributes and opset version."""

    def __init__(
        self, inputs: list[Known | None], attributes: dict[str, Any], version: int, scalars: Scalars
    ) -> None:
        self.inputs = inputs
        self.attributes = attributes
        self.version = version
        self.scalars = scalars

    def array(self, i: int) -> np.ndarray:
        return self.inputs[i].array

    def dtype(self, i: int = 0) -> np.dtype:
        return self.inputs[i].dtype

    def has(self, i: int) -> bool:
        return i < len(self.inputs) and self.inputs[i] is not None

    def ints(self, i: int, attribute: str, default: Any = None) -> list[int] | None:
        """Integers from input `i`, or from an attribute in older versions of the operator."""
        if self.has(i):
            if not self.inputs[i].is_constant:
                raise Undecided
            return [int(v) for v in self.array(i).reshape(-1)]
        return self.attributes.get(attribute, default)


_rules: dict[str, Callable[[Call], Any]] = {}


def known_op(*names: str) -> Callable[[Callable], Callable]:
    def register(function: Callable) -> Callable:
        for name in names:
            _rules[name] = function
        return function

    return register


def evaluate(
    name: str,
    inputs: list[Known | None],
    attributes: dict[str, Any],
    version: int,
    scalars: Scalars,
) -> list[Known] | None:
    """The outputs of the node, or None when they are not known at import."""
    rule = _rules.get(name)
    if rule is None or any(i is not None and i.array.size > MAX_ELEMENTS for i in inputs):
        return None
    try:
        result = rule(Call(inputs, attributes, version, scalars))
    except Undecided:
        return None
    outputs = result if isinstance(result, list) else [result]
    return None if any(o.array.size > MAX_ELEMENTS for o in outputs) else outputs


# ---- elementwise


def _map(dtype: Any, function: Callable, *arrays: np.ndarray) -> Known:
    arrays = np.broadcast_arrays(*[a.astype(object) for a in arrays])
    out = np.empty(arrays[0].shape, object)
    for index in np.ndindex(out.shape):
        out[index] = function(*(a[index] for a in arrays))
    return Known.of(out, dtype)


def _is_float(dtype: np.dtype) -> bool:
    return np.dtype(dtype).kind not in "biu"


def _arithmetic(name: str, native: Callable, integer: str, real: Callable) -> None:
    @known_op(name)
    def rule(call: Call) -> Known:
        dtype = call.dtype()
        if all(i.is_constant for i in call.inputs):
            arrays = [i.array for i in call.inputs]
            with np.errstate(all="ignore"):
                out = arrays[0]
                for other in arrays[1:]:
                    out = native(out, other)
            return Known.of(out, dtype)
        if _is_float(dtype):
            function = lambda a, b: real(call.scalars, a, b)
        else:
            function = getattr(call.scalars, integer)
        result = call.inputs[0]
        for other in call.inputs[1:]:
            result = _map(dtype, function, result.array, other.array)
        return result


def _native_div(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if _is_float(a.dtype):
        return a / b
    if np.any(b == 0):
        raise Undecided
    quotient = np.abs(a) // np.abs(b)
    return np.where((a < 0) == (b < 0), quotient, -quotient)


_arithmetic("Add", np.add, "add", Scalars.real_add)
_arithmetic("Sub", np.subtract, "sub", lambda s, a, b: s.real_add(a, s.real_mul(-1, b)))
_arithmetic("Mul", np.multiply, "mul", Scalars.real_mul)
_arithmetic("Div", _native_div, "truncdiv", Scalars.real_div)
_arithmetic("Min", np.minimum, "minimum", Scalars.real_minimum)
_arithmetic("Max", np.maximum, "maximum", Scalars.real_maximum)


@known_op("Clip")
def _clip(call: Call) -> Known:
    x = call.inputs[0]
    for i, (name, steps) in enumerate((("min", "Max"), ("max", "Min")), start=1):
        bound = call.inputs[i] if call.has(i) else None
        if bound is None and name in call.attributes:
            bound = Known.of(np.asarray(call.attributes[name], x.dtype), x.dtype)
        if bound is not None:
            x = _rules[steps](Call([x, bound], {}, call.version, call.scalars))
    return x


@known_op("Relu")
def _relu(call: Call) -> Known:
    zero = Known.of(np.zeros((), call.dtype()), call.dtype())
    return _rules["Max"](Call([call.inputs[0], zero], {}, call.version, call.scalars))


def _of_constants(name: str, native: Callable) -> None:
    @known_op(name)
    def rule(call: Call) -> Known:
        if not call.inputs[0].is_constant:
            raise Undecided
        with np.errstate(all="ignore"):
            return Known.of(native(call.array(0)), call.dtype())


# Those that give each element's exact or correctly rounded result.
_of_constants("Abs", np.abs)
_of_constants("Sqrt", np.sqrt)
_of_constants("Sign", np.sign)
_of_constants("Round", np.rint)


@known_op("Mod")
def _mod(call: Call) -> Known:
    if _is_float(call.dtype()):
        raise Undecided
    fmod = call.attributes.get("fmod", 0)
    function = call.scalars.truncmod if fmod else call.scalars.floormod
    return _map(call.dtype(), function, call.array(0), call.array(1))


@known_op("Neg")
def _neg(call: Call) -> Known:
    if call.inputs[0].is_constant:
        return Known.of(-call.array(0), call.dtype())
    if _is_float(call.dtype()):
        return _map(call.dtype(), lambda a: call.scalars.real_mul(-1, a), call.array(0))
    return _map(call.dtype(), lambda a: call.scalars.sub(0, a), call.array(0))


@known_op("Floor")
def _floor(call: Call) -> Known:
    return _round(call, call.scalars.real_floor)


@known_op("Ceil")
def _ceil(call: Call) -> Known:
    return _round(call, call.scalars.real_ceil)


def _round(call: Call, function: Callable) -> Known:
    if call.inputs[0].is_constant and not np.all(np.isfinite(call.array(0))):
        raise Undecided
    return _map(call.dtype(), function, call.array(0))


def _comparison(name: str, relation: Callable) -> None:
    @known_op(name)
    def rule(call: Call) -> Known:
        if all(i.is_constant for i in call.inputs):
            return Known.of(relation(call.array(0), call.array(1)), bool)
        if _is_float(call.dtype()):
            raise Undecided
        compare = lambda a, b: call.scalars.compare(relation, a, b)
        if relation is operator.eq:
            compare = call.scalars.equal
        return _map(bool, compare, call.array(0), call.array(1))


_comparison("Equal", operator.eq)
_comparison("Less", operator.lt)
_comparison("LessOrEqual", operator.le)
_comparison("Greater", operator.gt)
_comparison("GreaterOrEqual", operator.ge)


@known_op("Not")
def _not(call: Call) -> Known:
    return _map(bool, call.scalars.logical_not, call.array(0))


def _logical(name: str, native: Callable) -> None:
    @known_op(name)
    def rule(call: Call) -> Known:
        if not all(i.is_constant for i in call.inputs):
            raise Undecided
        return Known.of(native(call.array(0), call.array(1)), bool)


_logical("And", np.logical_and)
_logical("Or", np.logical_or)


@known_op("Where")
def _where(call: Call) -> Known:
    return _map(call.dtype(1), call.scalars.select, *(call.array(i) for i in range(3)))


@known_op("Cast")
def _cast(call: Call) -> Known:
    value, to = call.inputs[0], numpy_dtype(call.attributes["to"])
    if to.kind not in "biuf" or to.itemsize * value.dtype.itemsize == 0:
        raise Undecided  # strings, and types that NumPy does not know by itself
    if value.is_constant:
        with np.errstate(all="ignore"):
            return Known.of(value.array.astype(to), to)
    if to.kind == "b":
        return _map(bool, lambda a: call.scalars.logical_not(call.scalars.equal(a, 0)), value.array)
    if value.dtype.kind == "b":
        return _map(to, lambda a: call.scalars.select(a, 1, 0), value.array)
    if _is_float(to):
        return _map(to, call.scalars.real, value.array)
    if np.dtype(to).itemsize < 4:  # a dimension may not fit: let the run-time cast wrap it
        raise Undecided
    convert = call.scalars.to_integer if _is_float(value.dtype) else call.scalars.simplify
    return _map(to, convert, value.array)


# ---- moving elements


@known_op("Identity")
def _identity(call: Call) -> Known:
    return call.inputs[0]


@known_op("Gather")
def _gather(call: Call) -> Known:
    if not call.inputs[1].is_constant:
        raise Undecided
    axis = call.attributes.get("axis", 0)
    return Known.of(_index(np.take, call.array(0), call.array(1), axis=axis), call.dtype())


@known_op("GatherElements")
def _gather_elements(call: Call) -> Known:
    if not call.inputs[1].is_constant:
        raise Undecided
    axis = call.attributes.get("axis", 0)
    return Known.of(
        _index(np.take_along_axis, call.array(0), call.array(1), axis=axis), call.dtype()
    )


def _index(function: Callable, *args: Any, **kwargs: Any) -> np.ndarray:
    try:
        return function(*args, **kwargs)
    except (IndexError, ValueError) as e:
        raise Undecided from e


@known_op("Concat")
def _concat(call: Call) -> Known:
    arrays = [i.array for i in call.inputs]
    if any(not i.is_constant for i in call.inputs):
        arrays = [a.astype(object) for a in arrays]
    joined = _index(np.concatenate, arrays, axis=call.attributes.get("axis", 0))
    return Known.of(joined, call.dtype())


@known_op("Squeeze")
def _squeeze(call: Call) -> Known:
    axes = call.ints(1, "axes")
    axis = None if axes is None else tuple(axes)
    return Known.of(_index(np.squeeze, call.array(0), axis=axis), call.dtype())


@known_op("Unsqueeze")
def _unsqueeze(call: Call) -> Known:
    axes = call.ints(1, "axes")
    return Known.of(_index(np.expand_dims, call.array(0), tuple(axes or ())), call.dtype())


@known_op("Reshape", "Flatten")
def _reshape(call: Call) -> Known:
    x = call.array(0)
    if not call.has(1) and "shape" not in call.attributes:
        raise Undecided
    shape = call.ints(1, "shape")
    if not call.attributes.get("allowzero", 0):
        shape = [x.shape[i] if d == 0 and i < x.ndim else d for i, d in enumerate(shape)]
    return Known.of(_index(np.reshape, x, shape), call.dtype())


@known_op("Transpose")
def _transpose(call: Call) -> Known:
    return Known.of(_index(np.transpose, call.array(0), call.attributes.get("perm")), call.dtype())


@known_op("Slice")
def _slice(call: Call) -> Known:
    x = call.array(0)
    starts, ends = call.ints(1, "starts"), call.ints(2, "ends")
    axes = call.ints(3, "axes", None) or list(range(len(starts)))
    steps = call.ints(4, "steps", None) or [1] * len(starts)
    where = [slice(None)] * x.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if step == 0 or not -x.ndim <= axis < x.ndim:
            raise Undecided
        where[axis] = _python_slice(start, end, step, x.shape[axis])
    return Known.of(x[tuple(where)], call.dtype())


def _python_slice(start: int, end: int, step: int, size: int) -> slice:
    """ONNX clamps both ends; Python reads a stop of -1 as the last element."""
    start, end = (v + size if v < 0 else v for v in (start, end))
    if step > 0:
        return slice(min(max(start, 0), size), min(max(end, 0), size), step)
    start, end = min(max(start, 0), size - 1), min(max(end, -1), size - 1)
    return slice(start, None if end < 0 else end, step)


@known_op("Split")
def _split(call: Call) -> list[Known]:
    axis, sizes = call.attributes.get("axis", 0), call.ints(1, "split")
    if sizes is None:
        raise Undecided
    parts = _index(np.split, call.array(0), np.cumsum(sizes)[:-1], axis=axis)
    return [Known.of(p, call.dtype()) for p in parts]


@known_op("Expand")
def _expand(call: Call) -> Known:
    if not call.inputs[1].is_constant:
        raise Undecided
    shape = [int(v) for v in call.array(1)]
    if np.prod(shape, dtype=float) > MAX_ELEMENTS:
        raise Undecided
    shape = _index(np.broadcast_shapes, call.array(0).shape, shape)
    return Known.of(np.broadcast_to(call.array(0), shape).copy(), call.dtype())


@known_op("Tile")
def _tile(call: Call) -> Known:
    if not call.inputs[1].is_constant:
        raise Undecided
    repeats = [int(v) for v in call.array(1)]
    if call.array(0).size * np.prod(repeats, dtype=float) > MAX_ELEMENTS:
        raise Undecided
    return Known.of(np.tile(call.array(0), repeats), call.dtype())


@known_op("ConstantOfShape")
def _constant_of_shape(call: Call) -> Known:
    if not call.inputs[0].is_constant:
        raise Undecided
    shape = [int(v) for v in call.array(0)]
    if any(d < 0 for d in shape) or np.prod(shape, dtype=float) > MAX_ELEMENTS:
        raise Undecided
    value = call.attributes.get("value", np.zeros(1, np.float32))
    return Known.of(np.full(shape, value.reshape(-1)[0], value.dtype), value.dtype)


@known_op("Range")
def _range(call: Call) -> Known:
    if not all(i.is_constant for i in call.inputs):
        raise Undecided
    start, limit, delta = (i.array.reshape(()).item() for i in call.inputs)
    if delta == 0 or (limit - start) / delta > MAX_ELEMENTS:
        raise Undecided
    return Known.of(np.arange(start, limit, delta, call.dtype()), call.dtype())


@known_op("Size")
def _size(call: Call) -> Known:
    return Known.constant(np.asarray(call.array(0).size, np.int64))


@known_op("Shape")
def _shape(call: Call) -> Known:
    dims = call.array(0).shape
    dims = dims[call.attributes.get("start", 0) : call.attributes.get("end", len(dims))]
    return Known.constant(np.asarray(dims, np.int64))


# ---- reductions


def _reduction(name: str, native: Callable, step: str) -> None:
    @known_op(name)
    def rule(call: Call) -> Known:
        x, dtype = call.array(0), call.dtype()
        axes = call.ints(1, "axes")
        if not axes and call.attributes.get("noop_with_empty_axes", 0):
            return call.inputs[0]
        axis = tuple(axes) if axes else None
        keepdims = bool(call.attributes.get("keepdims", 1))
        if call.inputs[0].is_constant:
            if x.size == 0:
                raise Undecided
            return Known.of(_index(native, x, axis=axis, keepdims=keepdims), dtype)
        if _is_float(dtype) or x.ndim != 1 or x.size == 0:
            raise Undecided
        total = x[0]
        for element in x[1:]:
            total = getattr(call.scalars, step)(total, element)
        out = np.empty((1,) if keepdims else (), object)
        out[...] = total
        return Known.of(out, dtype)


_reduction("ReduceProd", np.prod, "mul")
_reduction("ReduceSum", np.sum, "add")
_reduction("ReduceMin", np.min, "minimum")
_reduction("ReduceMax", np.max, "maximum")


def real_parts(element: Any) -> tuple[Any, int]:
    """A floating-point element as (integer or expression, divisor), to compute it at run time."""
    if isinstance(element, Ratio):
        return element.numerator, element.denominator
    if is_symbolic(element):
        return element, 1
    exact = Fraction(element)
    return exact.numerator, exact.denominator
