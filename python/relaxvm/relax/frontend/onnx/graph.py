# SPDX-License-Identifier: Apache-2.0
"""What an operator's importer works with: emits expressions, asks for shapes, decodes inputs."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from relaxvm import ir, relax, tirx
from relaxvm.relax import op

from .. import lists
from .broadcasting import fitted, joint_shape
from .dimensions import Dimensions
from .element_types import NARROW, carried
from .errors import InvalidModel, UnsupportedModel
from .load import Model
from .scalars import Scalars, is_symbolic
from .symbolic import real_parts
from .texts import Texts, texts_of
from .values import ItemSequence, Known, Maybe, Sequence, Tensor, Value


@dataclasses.dataclass
class Dequantized:
    """(values - zero) * scale: what a real tensor was made of."""

    values: Any
    scale: Any
    zero: Any  # or None
    axis: int  # of several scales
    elem_type: int  # ONNX's number of the type of the values


@dataclasses.dataclass
class Joined:
    """A concatenation of dequantized tensors whose scales or zero points differ."""

    real: list
    parts: list[Dequantized]
    join: Callable[[list], Any]  # concatenates other tensors the same way


def known(value: Any) -> np.ndarray | None:
    """The value of a constant."""
    return value.data.numpy() if isinstance(value, relax.Constant) else None


@dataclasses.dataclass
class Sums:
    """plain + offset, as int32: what is known at compile time is added at once, when all of it is there."""

    plain: Any
    offset: np.ndarray | None = None  # that broadcasts

    def plus(self, g: Graph, times: Any, *factors: Any) -> Sums:
        """With `times` times, a number that may be symbolic, the product of the factors."""
        if is_symbolic(times):
            number = g.as_expr(g.dims_value([times], ()), "a factor of sums")
            return self.plus(g, 1, g.emit(op.astype(number, "int32")), *factors)
        arrays = [known(f) for f in factors]
        if all(a is not None for a in arrays):
            with np.errstate(over="ignore"):
                term = functools.reduce(np.multiply, [*arrays, np.int32(times)])
                term = term if self.offset is None else term + self.offset
            return Sums(self.plain, np.asarray(term, np.int32))
        term = functools.reduce(lambda a, b: g.emit(op.multiply(a, b)), factors)
        if times in (1, -1):
            combine = op.add if times == 1 else op.subtract
            return Sums(g.emit(combine(self.plain, term)), self.offset)
        term = g.emit(op.multiply(term, g.constant(times, "int32")))
        return Sums(g.emit(op.add(self.plain, term)), self.offset)

    def total(self, g: Graph) -> Any:
        if self.offset is None or not self.offset.any():
            return self.plain
        return g.emit(op.add(self.plain, g.constant(self.offset)))


@dataclasses.dataclass
class Product:
    """sums * scale: what a real product of dequantized tensors is made of."""

    sums: Sums
    scale: Any  # float32, that broadcasts
    factors: tuple[Dequantized, Dequantized]

    def real(self, g: Graph) -> Any:
        return op.multiply(op.astype(self.sums.total(g), "float32"), self.scale)


class Graph:
    """The graph being imported.  Its `node` is the one whose importer runs."""

    def __init__(self, model: Model, builder: relax.BlockBuilder) -> None:
        self.model = model
        self.builder = builder
        self.scalars = Scalars()
        self.dimensions = Dimensions(self.scalars)
        self.values: dict[str, Value] = {}
        self.node: Any = None
        self.walk: Callable[[Any], None]  # imports the nodes of a subgraph; set by the importer
        self._emitted_known: list[Known] = []
        self.narrow: dict[str, int] = {}  # values whose elements are smaller than a byte
        self.texts = Texts(texts_of(model.proto))
        self.textual: set[str] = set()  # values whose elements are places of texts
        self.dequantized: dict[str, Dequantized] = {}
        self.block_weights: dict[str, Any] = {}  # StoredWeight of block_weights.py
        self.joined: dict[str, Joined] = {}
        self.products: dict[str, Product] = {}
        self.raised: dict[str, Any] = {}  # signed bytes plus 128, as unsigned ones
        self.filled: dict[str, Any] = {}  # what all elements of a tensor are
        self.functions: dict[Any, Any] = {}  # of the module, besides main
        self.repeaters: dict[tuple, Any] = {}  # those of broadcasting.py
        self.loop_dims: list = []  # sizes of carried values that vary from iteration to iteration
        self.is_pure = True  # no call with an effect was emitted

    # ---- about the node

    @property
    def version(self) -> int:
        """The opset that the node is written for."""
        return self.model.version_of(self.node) or 1

    @property
    def num_outputs(self) -> int:
        """How many outputs the node names; trailing empty names do not count."""
        names = list(self.node.output)
        while names and not names[-1]:
            names.pop()
        return len(names)

    def wants(self, i: int) -> bool:
        return i < len(self.node.output) and bool(self.node.output[i])

    def read_tensor(self, proto: Any) -> np.ndarray:
        """Of an attribute of the node; a Constant then has its element type."""
        if self.node is not None and (proto.data_type in NARROW or self.node.op_type == "Constant"):
            self.set_output_type(0, proto.data_type)
        return self.elements(proto)

    def elements(self, proto: Any) -> np.ndarray:
        """Of a tensor of the model, as programs hold them."""
        array = self.model.read_tensor(proto)
        if proto.data_type == TensorProto.STRING:
            return self.texts.places(array)
        return carried(array, proto.data_type)

    # ---- element types that a tensor's own type does not tell

    def set_type(self, name: str, elem_type: int) -> None:
        if elem_type in NARROW:
            self.narrow[name] = elem_type
        elif elem_type == TensorProto.STRING:
            self.textual.add(name)

    def set_output_type(self, i: int, elem_type: int) -> None:
        if self.wants(i):
            self.set_type(self.node.output[i], elem_type)

    def is_text(self, i: int) -> bool:
        """Are the elements of the node's input `i` texts?"""
        return self.node.input[i] in self.textual

    def input_type(self, i: int) -> int:
        """ONNX's number of the element type of the node's input `i`."""
        name = self.node.input[i]
        if name in self.narrow:
            return self.narrow[name]
        value = self.values[name]
        dtype = value.dtype.name if isinstance(value, Known) else self.dtype(value.expr)
        return self.elem_type_of(dtype)

    @staticmethod
    def elem_type_of(dtype: str) -> int:
        return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    # ---- emitting

    def note_dequantized(self, what: Dequantized) -> None:
        """Remembers what the node's first output was made of."""
        self.dequantized[self.node.output[0]] = what

    def dequantized_input(self, i: int) -> Dequantized | None:
        """What the node's input `i` is made of, when DequantizeLinear gave it."""
        return self.dequantized.get(self.node.input[i])

    def emit(self, expr: Any, hint: str = "") -> Any:
        """Binds `expr` to a variable, whose type is known after this.

        A dimension that is long to say becomes a new variable: all that follows would carry it.
        """
        if isinstance(expr, (relax.Var, relax.Constant)):
            return expr
        var = self.builder.emit(expr, hint or self.hint())
        if not isinstance(var.ty, relax.TensorType) or var.ty.shape is None:
            return var
        dims = list(var.ty.shape.values)
        short = list(map(self.dimensions.short, dims))
        return var if all(map(operator.is_, dims, short)) else self.match_cast(var, short)

    def emit_effect(self, name: str, *args: Any, ty: Any) -> Any:
        """Calls a function of the VM that does not give the same each time."""
        self.is_pure = False
        return self.builder.emit(op.call_packed(name, *args, ty_args=[ty]), self.hint())

    def match_cast(self, expr: Any, shape: list) -> Any:
        """`expr` as a tensor of this shape, checked at run time."""
        expr = self.emit(expr)
        ty = self._tensor_type(expr)
        have = [None] * len(shape) if ty.shape is None else list(ty.shape.values)
        # A new name would be matched with whatever is there: only the size itself may be.
        shape = [self._short(d, h) for d, h in zip(shape, have, strict=True)]
        return self.builder.match_cast(expr, relax.TensorType(shape, ty.dtype), self.hint())

    def _short(self, size: Any, have: Any) -> Any:
        own = have is not None and self.scalars.same(size, have)
        return self.dimensions.short(size) if own else self._matched(size)

    def hint(self) -> str:
        return self.node.op_type.lower() if self.node is not None else "lv"

    def constant(self, value: Any, dtype: Any = None) -> Any:
        return relax.const(np.ascontiguousarray(np.asarray(value, dtype)).reshape(np.shape(value)))

    def widened(self, expr: Any) -> Any:
        """Floats of 16 bits as float32: their squares and sums would not fit."""
        if self.dtype(expr) not in ("float16", "bfloat16"):
            return expr
        return self.emit(op.astype(expr, "float32"))

    def as_type(self, expr: Any, dtype: str) -> Any:
        expr = self.emit(expr)
        return expr if self.dtype(expr) == dtype else self.emit(op.astype(expr, dtype))

    def scalar(self, value: Any, like: Any) -> Any:
        """A constant of the element type of `like`."""
        return relax.const(value, self.dtype(like))

    @contextlib.contextmanager
    def emitting_known(self) -> Iterator[list[Known]]:
        """A scope: known values that are emitted inside are emitted again outside."""
        outer, self._emitted_known = self._emitted_known, []
        inner = self._emitted_known
        try:
            with self.dimensions.scope():
                yield inner
        finally:
            self._emitted_known = outer
            for known in inner:
                known.expr = None

    def unique_function(self, name: str) -> str:
        taken = {str(var.name_hint) for var in self.functions}
        return next(n for i in range(len(taken) + 1) if (n := f"{name}_{i}") not in taken)

    # ---- lists of the VM

    def empty_list(self) -> Any:
        return self.emit(lists.empty())

    def list_concat(self, expr: Any, axis: int, new_axis: bool, dtype: str, dims: list) -> Any:
        """The items of a list joined; a dimension of None in `dims` is unknown."""
        return self.emit(lists.joined(expr, axis, new_axis, dtype, dims))

    def sequence_expr(self, value: Value) -> Any:
        """A sequence as a list of the VM."""
        if isinstance(value, ItemSequence):
            return value.expr
        if not isinstance(value, Sequence):
            raise InvalidModel("its input is no sequence")
        expr = self.empty_list()
        for item in value.items:
            tensor = self.emit(self.as_expr(item, "item"))
            expr = self.emit(lists.appended(expr, tensor))
        return expr

    # ---- about expressions

    def dtype(self, expr: Any) -> str:
        return str(self._tensor_type(expr).dtype)

    def rank(self, expr: Any) -> int:
        ndim = self._tensor_type(expr).ndim
        if ndim < 0:
            raise UnsupportedModel("its input has an unknown number of dimensions")
        return ndim

    def shape(self, expr: Any) -> list:
        """Dimensions as ints and expressions."""
        shape = self._tensor_type(expr).shape
        if shape is None:
            raise UnsupportedModel("its input has unknown dimensions")
        return [self.scalars.simplify(d) for d in shape.values]

    def _tensor_type(self, expr: Any) -> Any:
        if expr.ty is None:  # a call that is not emitted yet
            expr = self.builder.normalize(expr)
        if not isinstance(expr.ty, relax.TensorType):
            raise InvalidModel(f"its input is no tensor but {expr.ty}")
        return expr.ty

    def named(self, expr: Any) -> Any:
        """`expr` with every dimension named: what the compiler cannot say becomes a new variable."""
        expr = self.emit(expr)
        ty = self._tensor_type(expr)
        if ty.ndim < 0 or ty.shape is not None:
            return expr
        return self.match_cast(expr, [self.dimensions.fresh("m") for _ in range(ty.ndim)])

    def shortened(self, value: Known) -> Known:
        """`value` with variables for its elements that are long to say."""
        if value.is_constant:
            return value
        array = np.empty(value.array.shape, object)
        array.flat = list(map(self._shortened, value.array.flat))
        return Known(array, value.dtype)

    def _shortened(self, element: Any) -> Any:
        if not isinstance(element, ir.Expr) or not self.dimensions.is_long(element):
            return element
        if self.scalars.prove(element >= 0):
            return self._matched(element)
        # A variable is never negative.
        above = self._matched(self.scalars.maximum(element, 0))
        return self.scalars.sub(above, self._matched(self.scalars.maximum(0 - element, 0)))

    def _matched(self, size: Any) -> Any:
        is_new = not self.dimensions.has_name(size)
        name = self.dimensions.short(size)
        if name is not size and is_new:
            self.builder.match_cast(relax.ShapeExpr([size]), relax.ShapeType([name]), self.hint())
        return name

    def axis(self, axis: int, rank: int) -> int:
        if not -rank <= axis < rank:
            raise InvalidModel(f"axis {axis} is out of range for a tensor with {rank} dimensions")
        return axis % rank if rank else 0

    def product(self, dims: list) -> Any:
        total: Any = 1
        for d in dims:
            total = self.scalars.mul(total, d)
        return total

    def agree(self, *exprs: Any) -> list:
        """The operands of an elementwise operator, with shapes that surely broadcast (broadcasting.py)."""
        exprs = [self.emit(e) for e in exprs]
        result = joint_shape(self, [self.shape(e) for e in exprs])
        return [fitted(self, e, result) for e in exprs]

    def checked(self, expr: Any, shape: list) -> Any:
        """`expr` with this shape: checked at run time where the compiler cannot say."""
        have, surely = self.shape(expr), True
        for i, (a, b) in enumerate(zip(have, shape, strict=True)):
            if self.scalars.same(a, b):
                # What takes cases apart to be seen is written down: operators look less closely.
                surely &= not is_symbolic(a) or not is_symbolic(self.scalars.sub(a, b))
                continue
            if self.scalars.differ(a, b):
                raise InvalidModel(f"shapes {have} and {shape} do not agree in dimension {i}")
            surely = False
        return expr if surely else self.match_cast(expr, shape)

    def at_least(self, expr: Any, least: list) -> Any:
        """`expr`, whose axes have so many elements or more: checked at run time where they are symbolic."""
        shape, wanted = self.shape(expr), []
        for i, (size, bound) in enumerate(zip(shape, least, strict=True)):
            if not is_symbolic(size) and not is_symbolic(bound) and size < bound:
                raise InvalidModel(f"dimension {i} of {shape} has less than {bound} elements")
            wanted.append(self.scalars.maximum(size, bound))
        if all(self.scalars.same(a, b) for a, b in zip(shape, wanted)):
            return expr
        return self.match_cast(self.match_cast(expr, wanted), shape)  # size == max(size, bound)

    def only_if(self, condition: Any, value: Value, name: str) -> Any:
        """A tensor that is `value`: at run time it is an error when the condition does not hold.

        The check is a cast of the tensor itself; one that nothing uses would be swept away.
        """
        expr = self.emit(self.as_expr(value, name))
        shape = self.shape(expr)
        sizes = shape or [1]
        tensor = expr if shape else self.emit(op.reshape(expr, [1]))
        wrong = self.scalars.add(sizes[0], 1)
        first = self.scalars.select(condition, sizes[0], wrong)
        tensor = self.match_cast(self.match_cast(tensor, [first, *sizes[1:]]), sizes)
        return tensor if shape else self.emit(op.reshape(tensor, []))

    def dims_value(self, dims: list, shape: tuple) -> Known:
        """Dimensions as a value of type int64."""
        array = np.empty(len(dims), object)
        array[:] = dims
        return Known.of(array.reshape(shape), np.int64)

    # ---- values -> what a rule asks for

    def as_value(self, value: Value, name: str) -> Value:
        return value

    def as_expr(self, value: Value, name: str) -> Any:
        if isinstance(value, Tensor):
            return value.expr
        if isinstance(value, Known):
            if value.expr is None:
                value.expr = self._materialise(value)
                if not value.is_constant:
                    self._emitted_known.append(value)
            return value.expr
        kind = "an optional value" if isinstance(value, Maybe) else "a sequence"
        raise InvalidModel(f"input '{name}' must be a tensor, not {kind}")

    def as_array(self, value: Value, name: str) -> np.ndarray:
        if isinstance(value, Known) and value.is_constant:
            return value.array
        raise UnsupportedModel(f"input '{name}' must be a constant")

    def as_ints(self, value: Value, name: str) -> list[int]:
        return [int(v) for v in self.as_array(value, name).reshape(-1)]

    def as_axes(self, value: Value, name: str) -> list[int]:
        return self.as_ints(value, name)

    def is_constant(self, value: Value) -> bool:
        return isinstance(value, Known) and value.is_constant

    def as_dims(self, value: Value, name: str) -> list:
        if isinstance(value, Known):
            return self._elements(value)
        return self.run_time_dims(self.as_expr(value, name), name, is_checked=True)

    def as_offsets(self, value: Value, name: str) -> list:
        """Of what is computed from data: a difference of two dimensions, so that no sign is assumed."""
        if isinstance(value, Known):
            return self._elements(value)
        expr = self.as_expr(value, name)
        zero = self.scalar(0, expr)
        above = self.run_time_dims(self.emit(op.maximum(expr, zero)), name)
        below = self.run_time_dims(self.emit(op.maximum(op.negative(expr), zero)), name)
        return [self.scalars.sub(a, b) for a, b in zip(above, below, strict=True)]

    def _elements(self, value: Known) -> list:
        return [self.scalars.simplify(v) for v in value.array.reshape(-1).astype(object)]

    def run_time_dims(self, expr: Any, name: str, is_checked: bool = False) -> list:
        """Dimensions that the model computes from data: read from the tensor while running.

        If `is_checked`, what is below 0 is refused then; otherwise there must be no such number.
        """
        shape = self.shape(expr)
        if len(shape) > 1 or any(is_symbolic(d) for d in shape):
            raise UnsupportedModel(f"input '{name}' must have a known number of elements")
        count = shape[0] if shape else 1
        if self.dtype(expr) != "int64":
            expr = self.emit(op.astype(expr, "int64"))
        if not shape:
            expr = self.emit(op.reshape(expr, [1]))
        dims = [self.dimensions.fresh(f"{name}_{i}") for i in range(count)]
        if not is_checked:
            value = self.emit(op.tensor_to_shape(expr))
            self.builder.match_cast(value, relax.ShapeType(dims), self.hint())
            return dims
        # One cast for both: of one whose sizes nothing uses nothing would be left.
        below = self.emit(op.minimum(expr, self.constant(0, "int64")))
        value = self.emit(op.tensor_to_shape(self.emit(op.concat([expr, below], axis=0))))
        self.builder.match_cast(
            value, relax.ShapeType([*dims, *[0] * count]), f"{name}_must_not_be_negative"
        )
        return dims

    def _materialise(self, value: Known) -> Any:
        if value.is_constant:
            constant = self.constant(value.array)
            if value.array.dtype.kind in "fiub":  # one copy of a weight is enough
                value.array = np.from_dlpack(constant.data)
            return constant
        if value.array.size == 0:
            return self.constant(np.zeros(value.array.shape, value.dtype))
        elements = [self._integer(e) for e in value.array.flat]
        tops, divisors = zip(*(real_parts(e) for e in elements))
        expr = self.emit(op.shape_to_tensor(relax.ShapeExpr(list(tops))))
        if value.dtype != np.int64:
            expr = self.emit(op.astype(expr, value.dtype.name))
        if any(d != 1 for d in divisors):
            expr = self.emit(op.divide(expr, self.constant(divisors, value.dtype)))
        return self.emit(op.reshape(expr, list(value.array.shape)))

    def _integer(self, element: Any) -> Any:
        """Conditions become 0 and 1."""
        if is_symbolic(element) and str(getattr(element, "dtype", "")) == "bool":
            return tirx.Select(element, tirx.IntImm("int64", 1), tirx.IntImm("int64", 0))
        return int(element) if isinstance(element, (bool, np.bool_)) else element

    def to_value(self, result: Any) -> Value:
        """What a rule returned, as a value of the graph."""
        if isinstance(result, (Known, Tensor, Sequence, ItemSequence, Maybe)):
            return result
        if isinstance(result, (np.ndarray, np.generic)):
            return Known.constant(result)
        return Tensor(self.named(result))
