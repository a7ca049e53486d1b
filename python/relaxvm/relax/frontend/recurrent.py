# SPDX-License-Identifier: Apache-2.0
"""LSTM, GRU and RNN of all front ends, in the terms of ONNX: orders of gates, axes and directions are its.

The projection of the whole input is one matmul before the loop over time. Gates are packed for the loop:
units in blocks of a fixed width, all gates of a block side by side.  `g` is the graph of the front end; it
has `emit`, `shape`, `dtype` and `checked`.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from relaxvm import relax
from relaxvm.relax import TupleGetItem, op

# name -> how many parameters it takes
_ACTIVATIONS = {
    "Affine": 2, "Elu": 1, "HardSigmoid": 2, "LeakyRelu": 1, "Relu": 0, "ScaledTanh": 2, "Sigmoid": 0,
    "Softplus": 0, "Softsign": 0, "Tanh": 0, "ThresholdedRelu": 1,
}  # fmt: skip
_DEFAULTS = {
    "Affine": (1.0, 0.0), "Elu": (1.0, 0.0), "HardSigmoid": (0.2, 0.5), "LeakyRelu": (0.01, 0.0),
    "ScaledTanh": (1.0, 1.0), "ThresholdedRelu": (1.0, 0.0),
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Cell:
    """What the three kinds differ in."""

    function: Any
    gates: int
    states: int
    activations: tuple[str, ...]
    width: int  # units of a block: its gates fill a tile of registers


LSTM = Cell(op.rvm.lstm, 4, 2, ("Sigmoid", "Tanh", "Tanh"), 16)
GRU = Cell(op.rvm.gru, 3, 1, ("Sigmoid", "Tanh"), 16)
RNN = Cell(op.rvm.rnn, 1, 1, ("Tanh",), 64)


@dataclasses.dataclass
class Options:
    """Attributes that all three have."""

    activations: list[str] | None
    alpha: list[float] | None
    beta: list[float] | None
    clip: float
    direction: str
    layout: int


class Layer:
    """One node: its weights by direction, ready for the loop."""

    def __init__(
        self, g: Any, cell: Cell, x: Any, w: Any, r: Any, options: Options, *states: Any | None
    ) -> None:
        self.g, self.cell, self.options = g, cell, options
        if options.direction not in ("forward", "reverse", "bidirectional"):
            raise ValueError(f"direction '{options.direction}' is unknown")
        x = g.emit(op.permute_dims(x, [1, 0, 2]) if options.layout else x)
        self.directions = 2 if options.direction == "bidirectional" else 1
        shape = g.shape(r)
        if len(shape) != 3 or not all(isinstance(d, int) for d in shape[1:]):
            raise NotImplementedError("its recurrent weights must have a known shape")
        self.hidden = shape[2]
        rows = cell.gates * self.hidden
        r = g.checked(r, [self.directions, rows, self.hidden])
        w = g.checked(w, [self.directions, rows, g.shape(w)[2]])
        # A kernel with a known depth is several times as fast as one for any.
        steps, batch = g.shape(x)[:2]
        self.x = g.checked(x, [steps, self._known_batch(states, batch), g.shape(w)[2]])
        self.blocks = -(-self.hidden // cell.width)
        packed = self._packed(w)  # [D, blocks, input, gates, width]
        self.width = self.directions * self.blocks * cell.gates * cell.width
        self.w = op.reshape(op.permute_dims(packed, [2, 0, 1, 3, 4]), [g.shape(w)[2], self.width])
        self.r = g.emit(self._packed(r))
        self.steps, self.batch = g.shape(self.x)[:2]

    def _known_batch(self, states: tuple, batch: Any) -> Any:
        """The batch of the input, as a number where only the initial states say it."""
        axis = 0 if self.options.layout else 1
        known = [self.g.shape(s)[axis] for s in states if s is not None and self.g.rank(s) == 3]
        return next((n for n in known if isinstance(n, int)), batch)

    def _packed(self, weight: Any) -> Any:
        """[D, gates * hidden, K] -> [D, blocks, K, gates, width], zeros past the last unit."""
        units = self._units(weight, self.cell.gates)
        return op.permute_dims(units, [0, 2, 4, 1, 3])

    def _units(self, weight: Any, gates: int) -> Any:
        """[D, gates * hidden, K] -> [D, gates, blocks, width, K]"""
        last = self.g.shape(weight)[2]
        split = op.reshape(weight, [self.directions, gates, self.hidden, last])
        missing = self.blocks * self.cell.width - self.hidden
        if missing:
            split = op.nn.pad(split, pad_width=[0, 0, 0, 0, 0, missing, 0, 0], pad_value=0.0)
        return op.reshape(split, [self.directions, gates, self.blocks, self.cell.width, last])

    def vector(self, v: Any, gates: int) -> Any:
        """[D, gates * hidden] -> [D, blocks, gates, width]"""
        deep = op.reshape(v, [self.directions, gates * self.hidden, 1])
        units = self.g.emit(self._units(self.g.emit(deep), gates))
        units = op.reshape(units, [self.directions, gates, self.blocks, self.cell.width])
        return self.g.emit(op.permute_dims(units, [0, 2, 1, 3]))

    def halves(self, bias: Any) -> tuple[Any, Any]:
        """The biases of the input and of the state, [D, gates * hidden] each."""
        rows = self.cell.gates * self.hidden
        bias = self.g.checked(bias, [self.directions, 2 * rows])
        parts = self.g.emit(op.split(bias, 2, axis=1))
        return self.g.emit(TupleGetItem(parts, 0)), self.g.emit(TupleGetItem(parts, 1))

    def projected(self, bias: Any | None) -> Any:
        """x w + bias for all steps: [T, B, D, blocks, gates, width]."""
        g = self.g
        y = op.matmul(self.x, g.emit(self.w))
        if bias is not None:
            y = op.add(g.emit(y), op.reshape(self.vector(bias, self.cell.gates), [self.width]))
        dims = [self.directions, self.blocks, self.cell.gates, self.cell.width]
        return g.emit(op.reshape(g.emit(y), [self.steps, self.batch, *dims]))

    def state(self, given: Any | None) -> Any:
        g, dims = self.g, [self.directions, self.batch, self.hidden]
        if given is None:
            return g.emit(op.zeros(dims, g.dtype(self.x)))
        given = op.permute_dims(given, [1, 0, 2]) if self.options.layout else given
        return g.checked(g.emit(given), dims)

    def full_lengths(self) -> Any:
        if isinstance(self.steps, int):
            steps = relax.const([self.steps], "int64")
        else:
            steps = self.g.emit(op.shape_to_tensor(relax.ShapeExpr([self.steps])))
        return self.g.emit(op.broadcast_to(steps, [self.batch]))

    def run(self, x: Any, states: list, rest: list, extra: dict[str, Any]) -> tuple:
        """All states [T, D, B, hidden], and the last of each kind [D, B, hidden]."""
        g, lists = self.g, self._activations()
        if len(lists) == 1 or lists[0] == lists[1]:
            return self._outputs(
                self._call(x, self.r, states, rest, lists[0], self.options.direction, extra)
            )
        if rest:
            raise NotImplementedError(
                "its directions have different activations and sequence lengths"
            )
        parts = []
        for d, direction in enumerate(("forward", "reverse")):
            one = lambda v, axis, d=d: g.emit(
                op.strided_slice(v, axes=[axis], begin=[d], end=[d + 1])
            )
            inputs = [one(x, 2), one(self.r, 0), [one(s, 0) for s in states]]
            parts.append(self._call(*inputs, [], lists[d], direction, extra))
        joined = [op.concat([p[0] for p in parts], axis=1)]
        joined += [op.concat([p[i] for p in parts], axis=0) for i in range(1, len(parts[0]))]
        return self._outputs([g.emit(j) for j in joined])

    def _call(self, x, r, states, rest, activations, direction, extra) -> list:
        names, alpha, beta = activations
        value = self.g.emit(
            self.cell.function(
                x, r, *states, *rest, activations=names, alpha=alpha, beta=beta,
                clip=self.options.clip, direction=direction, **extra,
            )
        )  # fmt: skip
        return [self.g.emit(TupleGetItem(value, i)) for i in range(1 + self.cell.states)]

    def _outputs(self, values: list) -> tuple:
        if not self.options.layout:
            return tuple(values)
        y, *last = values
        orders = [(y, [2, 0, 1, 3])] + [(v, [1, 0, 2]) for v in last]
        return tuple(self.g.emit(op.permute_dims(v, order)) for v, order in orders)

    def _activations(self) -> list[tuple[str, list[float], list[float]]]:
        """For each direction: names, alphas and betas.  Values are used up in the order of the names."""
        count, o = len(self.cell.activations), self.options
        names = list(o.activations or self.cell.activations * self.directions)
        by_lower = {n.lower(): n for n in _ACTIVATIONS}
        if unknown := [n for n in names if n.lower() not in by_lower]:
            raise NotImplementedError(f"activation '{unknown[0]}' is unknown")
        names = [by_lower[n.lower()] for n in names]
        if len(names) != count * self.directions:
            raise ValueError(
                f"activations has {len(names)} names, {count * self.directions} are needed"
            )
        alphas, betas = iter(o.alpha or ()), iter(o.beta or ())
        alpha, beta = [], []
        for name in names:
            a, b = _DEFAULTS.get(name, (0.0, 0.0))
            alpha.append(next(alphas, a) if _ACTIVATIONS[name] > 0 else a)
            beta.append(next(betas, b) if _ACTIVATIONS[name] > 1 else b)
        parts = [slice(d * count, (d + 1) * count) for d in range(self.directions)]
        return [(" ".join(names[p]), alpha[p], beta[p]) for p in parts]


def _sum_of_biases(layer: Layer, bias: Any | None) -> Any | None:
    return None if bias is None else layer.g.emit(op.add(*layer.halves(bias)))


def lstm(
    g: Any,
    x: Any,
    w: Any,
    r: Any,
    bias: Any | None,
    lengths: Any | None,
    initial_h: Any | None,
    initial_c: Any | None,
    peepholes: Any | None,
    options: Options,
    input_forget: bool = False,
) -> tuple:
    layer = Layer(g, LSTM, x, w, r, options, initial_h, initial_c)
    rest = [] if lengths is None else [lengths]
    if peepholes is not None:
        peepholes = g.checked(peepholes, [layer.directions, 3 * layer.hidden])
        rest = [*(rest or [layer.full_lengths()]), layer.vector(peepholes, 3)]
    states = [layer.state(initial_h), layer.state(initial_c)]
    projected = layer.projected(_sum_of_biases(layer, bias))
    return layer.run(projected, states, rest, {"input_forget": input_forget})


def gru(
    g: Any,
    x: Any,
    w: Any,
    r: Any,
    bias: Any | None,
    lengths: Any | None,
    initial_h: Any | None,
    options: Options,
    linear_before_reset: bool = False,
) -> tuple:
    layer = Layer(g, GRU, x, w, r, options, initial_h)
    added = _sum_of_biases(layer, bias)
    dims = [layer.directions, layer.hidden]
    hidden_bias = g.emit(op.zeros(dims, g.dtype(x)))
    if linear_before_reset and bias is not None:
        # The hidden gate's recurrent bias is added inside of the loop.
        wide, recurrent = layer.halves(bias)
        end = 2 * layer.hidden
        cut = lambda v, a, b: g.emit(op.strided_slice(v, axes=[1], begin=[a], end=[b]))
        hidden_bias = cut(recurrent, end, end + layer.hidden)
        added = g.emit(op.concat([cut(added, 0, end), cut(wide, end, end + layer.hidden)], axis=1))
    shape = [layer.directions, layer.blocks, GRU.width]
    packed = g.emit(op.reshape(layer.vector(hidden_bias, 1), shape))
    rest = [] if lengths is None else [lengths]
    extra = {"linear_before_reset": linear_before_reset}
    return layer.run(layer.projected(added), [layer.state(initial_h), packed], rest, extra)


def rnn(
    g: Any,
    x: Any,
    w: Any,
    r: Any,
    bias: Any | None,
    lengths: Any | None,
    initial_h: Any | None,
    options: Options,
) -> tuple:
    layer = Layer(g, RNN, x, w, r, options, initial_h)
    rest = [] if lengths is None else [lengths]
    projected = layer.projected(_sum_of_biases(layer, bias))
    return layer.run(projected, [layer.state(initial_h)], rest, {})
