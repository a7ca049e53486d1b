# SPDX-License-Identifier: Apache-2.0
"""DynamicQuantizeLSTM: an LSTM whose weights are bytes; input and state become bytes before each product.

The input is quantized as a whole, the state of all sequences once a step.  Columns of both weights stand as
the loop over time reads them: units in blocks of 16, all gates of a block side by side."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from relaxvm.relax import TupleGetItem, op

from .. import byte_products
from ..errors import InvalidModel, UnsupportedModel
from ..graph import Graph
from ..registry import Expr, onnx_op
from ..scalars import is_symbolic
from .quantization import dynamic_quantize_linear

_ACTIVATIONS = {"Sigmoid", "Tanh", "Relu"}
_USUAL = ["Sigmoid", "Tanh", "Tanh"]
_GATES = 4  # input, output, forget, cell
_WIDTH = 16


@onnx_op("DynamicQuantizeLSTM", since=1, domain="com.microsoft")
def dynamic_quantize_lstm(
    g: Graph,
    x: Expr,
    w: Expr,
    r: Expr,
    bias: Expr | None = None,
    lengths: Expr | None = None,
    initial_h: Expr | None = None,
    initial_c: Expr | None = None,
    peepholes: Expr | None = None,
    w_scale: Expr | None = None,
    w_zero: Expr | None = None,
    r_scale: Expr | None = None,
    r_zero: Expr | None = None,
    *,
    activation_alpha: list[float] | None = None,
    activation_beta: list[float] | None = None,
    activations: list[str] | None = None,
    clip: float = 0.0,
    direction: str = "forward",
    hidden_size: int = 0,
    input_forget: int = 0,
) -> tuple:
    if w_scale is None or r_scale is None:
        raise InvalidModel("it needs the scales of its weights")
    reverse = {"forward": [0], "reverse": [1], "bidirectional": [0, 1]}.get(direction)
    if reverse is None:
        raise InvalidModel(f"direction is '{direction}'")
    names = activations or _USUAL * len(reverse)
    unknown = sorted(set(names) - _ACTIVATIONS)
    if unknown:
        raise UnsupportedModel(f"activations {', '.join(unknown)} are not supported")
    if len(names) != 3 * len(reverse):
        raise InvalidModel(f"it has {len(names)} activations, {3 * len(reverse)} are needed")
    depth, hidden = g.shape(w)[1], g.shape(r)[1]
    if is_symbolic(depth) or is_symbolic(hidden):
        raise UnsupportedModel("its weights have symbolic sizes")
    length, batch, _ = g.shape(x)
    x = g.checked(x, [length, batch, depth])
    if lengths is not None:  # what lies behind all ends has no part in the range
        steps = g.emit(op.reshape(g.emit(op.arange(0, length, 1, "int64")), [length, 1, 1]))
        longest = g.emit(op.max(g.emit(op.astype(lengths, "int64"))))
        x = g.emit(op.where(g.emit(op.less(steps, longest)), x, g.constant(0, "float32")))
    inputs = (w, w_scale, w_zero, r, r_scale, r_zero, bias, peepholes, initial_h, initial_c)
    chosen = [" ".join(names[3 * d : 3 * d + 3]) for d in range(len(reverse))]
    # One loop makes both directions, unless they differ.
    apart = len(set(chosen)) > 1
    parts = []
    for d in range(len(reverse) if apart else 1):
        own = [None if v is None else _direction(g, v, d) for v in inputs] if apart else inputs
        layer = _Layer(g, *own, directions=1 if apart else len(reverse), hidden=hidden)
        way = ("forward", "reverse")[d] if apart else direction
        parts.append(layer.run(x, lengths, chosen[d], clip, way, bool(input_forget)))
    if not apart:
        return tuple(parts[0])
    join = lambda values, axis: g.emit(op.concat(list(values), axis=axis))
    return tuple(join(v, axis) for v, axis in zip(zip(*parts, strict=True), (1, 0, 0), strict=True))


def _direction(g: Graph, value: Any, d: int) -> Any:
    known = byte_products.known(value)
    if known is not None:
        return g.constant(known[d : d + 1], known.dtype)
    return g.emit(op.strided_slice(value, axes=[0], begin=[d], end=[d + 1]))


def _known(value: Any, what: str) -> np.ndarray:
    array = byte_products.known(value)
    if array is None:
        raise UnsupportedModel(f"its {what} must be constants")
    return array


@dataclasses.dataclass
class _Bytes:
    """A weight [D, depth, 4 hidden] of signed bytes; scales and zero points [D, 1 or 4 hidden]."""

    values: np.ndarray
    scales: np.ndarray
    zeros: np.ndarray

    @classmethod
    def of(cls, weight: Any, scale: Any, zero: Any) -> _Bytes:
        values = _known(weight, "weights")
        if values.dtype not in (np.int8, np.uint8) or values.ndim != 3:
            raise UnsupportedModel("its weights are no bytes")
        scales = _known(scale, "scales").reshape(len(values), -1)
        zeros = np.zeros_like(scales) if zero is None else _known(zero, "zero points")
        zeros = zeros.reshape(len(values), -1).astype(np.int32)
        moved = 128 if values.dtype == np.uint8 else 0
        if {scales.shape[1], zeros.shape[1]} - {1, values.shape[2]}:
            raise InvalidModel("it has no scale or zero point for each column")
        return cls((values.astype(np.int16) - moved).astype(np.int8), scales, zeros - moved)


@dataclasses.dataclass
class _Layer:
    g: Graph
    w: Any
    w_scale: Any
    w_zero: Any
    r: Any
    r_scale: Any
    r_zero: Any
    bias: Any | None
    peepholes: Any | None
    initial_h: Any | None
    initial_c: Any | None
    directions: int
    hidden: int

    def run(
        self, x: Any, lengths: Any | None, names: str, clip: float, way: str, tied: bool
    ) -> list:
        """All states, the last one, the last cell; `tied`: the forget gate is 1 - the input gate."""
        g = self.g
        steps, batch = g.shape(x)[:2]
        dims = [self.directions, batch, self.hidden]
        state = lambda s: (
            g.emit(op.zeros(dims, "float32")) if s is None else g.checked(g.emit(s), dims)
        )
        rest = [] if lengths is None else [lengths]
        if self.peepholes is not None:
            if not rest:
                full = g.as_expr(g.dims_value([steps], (1,)), "lengths")
                rest = [g.emit(op.broadcast_to(full, [batch]))]
            values = _known(self.peepholes, "peepholes").reshape(self.directions, 1, -1)
            rest.append(g.constant(self.columns(values, 3)[:, :, 0]))
        weights = self.words(_Bytes.of(self.r, self.r_scale, self.r_zero))
        result = g.emit(
            op.rvm.quantized_lstm(
                self.projected(x), *[g.constant(v) for v in weights], state(self.initial_h),
                state(self.initial_c), *rest, activations=names, clip=clip, direction=way,
                input_forget=tied,
            )
        )  # fmt: skip
        return [g.emit(TupleGetItem(result, i)) for i in range(3)]

    @property
    def blocks(self) -> int:
        return -(-self.hidden // _WIDTH)

    def columns(self, values: np.ndarray, gates: int = _GATES) -> np.ndarray:
        """[D, depth, gates * hidden] -> [D, blocks, depth, gates, width], zeros past the last unit."""
        split = values.reshape(self.directions, values.shape[1], gates, self.hidden)
        missing = self.blocks * _WIDTH - self.hidden
        split = np.pad(split, [(0, 0), (0, 0), (0, 0), (0, missing)])
        split = split.reshape(*split.shape[:3], self.blocks, _WIDTH)
        return np.ascontiguousarray(split.transpose(0, 3, 1, 2, 4))

    def each(self, values: np.ndarray) -> np.ndarray:
        """One number for each column or for all of them: [D, blocks, gates, width]."""
        wide = np.broadcast_to(values, (self.directions, _GATES * self.hidden))
        return self.columns(wide[:, None])[:, :, 0]

    def projected(self, x: Any) -> Any:
        """x w + bias for all steps: [T, B, D, blocks, gates, width]."""
        g, weight = self.g, _Bytes.of(self.w, self.w_scale, self.w_zero)
        small, scale, zero = dynamic_quantize_linear(g, x)
        packed = self.columns(weight.values)
        flat = packed.transpose(2, 0, 1, 3, 4).reshape(packed.shape[2], -1)
        zeros = self.each(weight.zeros).reshape(-1)
        w_zero = g.constant(zeros, "int32") if zeros.any() else None
        sums = byte_products.matmul(g, g.emit(small), g.constant(flat), zero, w_zero)
        scale = g.emit(op.multiply(scale, g.constant(self.each(weight.scales).reshape(-1))))
        y = g.emit(op.multiply(g.emit(op.astype(sums.total(g), "float32")), scale))
        if self.bias is not None:
            halves = _known(self.bias, "biases").reshape(self.directions, 2, -1)
            both = self.columns(halves.sum(1, keepdims=True))
            y = g.emit(op.add(y, g.constant(both.reshape(-1))))
        steps, batch = g.shape(x)[:2]
        dims = [self.directions, self.blocks, _GATES, _WIDTH]
        return g.emit(op.reshape(y, [steps, batch, *dims]))

    def words(self, weight: _Bytes) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """What rvm.quantized_lstm reads: words, their sums, scales and zero points."""
        packed = self.columns(weight.values)
        sums = packed.sum(2, dtype=np.int32)
        missing = self.blocks * _WIDTH - self.hidden
        packed = np.pad(packed, [(0, 0), (0, 0), (0, missing), (0, 0), (0, 0)])
        words = self.blocks * _WIDTH // 4
        parts = packed.reshape(*packed.shape[:2], 4, words, _GATES, _WIDTH)
        packed = np.ascontiguousarray(parts.transpose(0, 1, 3, 4, 5, 2)).view("<i4")[..., 0]
        return packed, sums, self.each(weight.scales), self.each(weight.zeros)
