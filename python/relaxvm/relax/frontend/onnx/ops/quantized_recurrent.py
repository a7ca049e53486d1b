# SPDX-License-Identifier: Apache-2.0
"""DynamicQuantizeLSTM: an LSTM whose weights are bytes; input and state become bytes before each product.

The input is quantized as a whole, the state of all sequences once a step.  The loop over time is a loop
of the module: its products read a quarter of the memory that float weights take."""

from __future__ import annotations

from typing import Any

from relaxvm.relax import op

from .. import byte_products, loops
from ..errors import InvalidModel, UnsupportedModel
from ..graph import Graph
from ..registry import Expr, onnx_op
from ..scalars import is_symbolic
from ..values import Known, Value
from .quantization import dynamic_quantize_linear

_ACTIVATIONS = {"Sigmoid": op.sigmoid, "Tanh": op.tanh, "Relu": op.nn.relu}
_USUAL = ["Sigmoid", "Tanh", "Tanh"]
_GATES = 4  # input, output, forget, cell
_NODES = 40  # of a step, about


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
    unknown = sorted({name for name in names if name not in _ACTIVATIONS})
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
    weights = (w, r, w_scale, r_scale, w_zero, r_zero, bias, peepholes, initial_h, initial_c)
    all_h, last_h, last_c = [], [], []
    for d, backwards in enumerate(reverse):
        parts = [None if v is None else _part(g, v, d) for v in weights]
        chosen = [_ACTIVATIONS[name] for name in names[3 * d : 3 * d + 3]]
        layer = _Direction(g, parts, chosen, clip, bool(input_forget), batch, hidden)
        outputs = layer.run(x, length, lengths, bool(backwards))
        for into, value, axis in zip((all_h, last_h, last_c), outputs, (1, 0, 0)):
            into.append(g.emit(op.expand_dims(value, axis=[axis])))
    join = lambda values, axis: (
        values[0] if len(values) == 1 else g.emit(op.concat(values, axis=axis))
    )
    return join(all_h, 1), join(last_h, 0), join(last_c, 0)


def _part(g: Graph, value: Any, d: int) -> Any:
    """What belongs to one direction."""
    known = byte_products.known(value)
    if known is not None:
        return g.constant(known[d], known.dtype)
    cut = g.emit(op.strided_slice(value, axes=[0], begin=[d], end=[d + 1]))
    return g.emit(op.squeeze(cut, axis=[0]))


class _Direction:
    """One direction of a layer."""

    def __init__(self, g, parts, activations, clip, input_forget, batch, hidden) -> None:
        self.g, self.batch, self.hidden = g, batch, hidden
        self.w, self.r, self.w_scale, self.r_scale, self.w_zero, self.r_zero = parts[:6]
        bias, peepholes, *states = parts[6:]
        self.bias = None if bias is None else self._sum_of_halves(bias)
        self.peepholes = None if peepholes is None else self._units(peepholes, 3)
        zeros = lambda: g.emit(op.zeros([batch, hidden], "float32"))
        self.states = [
            zeros() if s is None else g.checked(g.emit(s), [batch, hidden]) for s in states
        ]
        self.activations, self.clip, self.input_forget = activations, clip, input_forget

    def run(self, x: Any, length: Any, lengths: Any | None, reverse: bool) -> tuple:
        """Every state, the last one, the last cell."""
        g = self.g
        gates = self._product(x, self.w, self.w_scale, self.w_zero)
        if self.bias is not None:
            gates = g.emit(op.add(gates, self.bias))
        if reverse:
            gates = self._reversed(gates, lengths)
        ends = None
        if lengths is not None:
            ends = g.emit(op.expand_dims(g.emit(op.astype(lengths, "int64")), axis=[1]))

        def step(number: Value, condition: Value, carried: list[Value]) -> tuple:
            at = number.array.reshape(()).item()
            h, c, *last = (g.as_expr(value, "state") for value in carried)
            row = op.take(gates, g.as_expr(g.dims_value([at], (1,)), "step"), axis=0)
            row = g.emit(op.squeeze(g.emit(row), axis=[0]))
            new_h, new_c = self._cell(row, h, c)
            if ends is not None:
                # What has ended is 0 from then on, also for the range of the state.
                inside = g.emit(op.less(g.as_expr(g.dims_value([at], (1, 1)), "step"), ends))
                keep = lambda new, old: g.emit(op.where(inside, new, old))
                last = [keep(new_h, last[0])]
                new_h, new_c = keep(new_h, g.constant(0, "float32")), keep(new_c, c)
            return condition, [g.to_value(v) for v in (new_h, new_c, *last)], [g.to_value(new_h)]

        states = self.states if ends is None else [*self.states, self.states[0]]
        values = [g.to_value(s) for s in states]
        loop = loops.Loop(length, Known.constant(True, bool), values, step, _NODES)
        (h, c, *last), gathered = loops.run(g, loop)
        every = g.as_expr(loops.joined(g, gathered[0], 0), "states")
        every = self._reversed(every, lengths) if reverse else every
        return every, g.as_expr(last[0] if last else h, "state"), g.as_expr(c, "cell")

    def _reversed(self, v: Any, lengths: Any | None) -> Any:
        if lengths is None:
            return self.g.emit(op.flip(v, axis=0))
        return self.g.emit(op.reverse_sequence(v, lengths, seq_axis=0, batch_axis=1))

    def _cell(self, row: Any, h: Any, c: Any) -> tuple:
        g = self.g
        f, g_, h_ = self.activations
        rest = self._product(h, self.r, self.r_scale, self.r_zero)
        sums = self._units(g.emit(op.add(row, rest)), _GATES)
        i, o, forget, cell = (g.emit(s) for s in sums)
        peep = lambda v, which, state: (
            v
            if self.peepholes is None
            else g.emit(op.add(v, g.emit(op.multiply(self.peepholes[which], state))))
        )
        gate = lambda v, act: g.emit(act(self._clipped(v)))
        i = gate(peep(i, 0, c), f)
        if self.input_forget:
            forget = g.emit(op.subtract(g.constant(1, "float32"), i))
        else:
            forget = gate(peep(forget, 2, c), f)
        added = g.emit(op.multiply(i, gate(cell, g_)))
        c = g.emit(op.add(g.emit(op.multiply(forget, c)), added))
        o = gate(peep(o, 1, c), f)
        # The clip is that of the gates: the cell itself is not bounded.
        return g.emit(op.multiply(o, g.emit(h_(c)))), c

    def _clipped(self, v: Any) -> Any:
        return self.g.emit(op.clip(v, -self.clip, self.clip)) if self.clip > 0 else v

    def _product(self, a: Any, weight: Any, w_scale: Any, w_zero: Any) -> Any:
        g = self.g
        small, scale, zero = dynamic_quantize_linear(g, a)
        y = byte_products.matmul(g, g.emit(small), weight, zero, w_zero)
        if y is None:
            raise UnsupportedModel("its weights are no bytes with one zero point for each column")
        scale = g.emit(op.multiply(scale, w_scale))
        return g.emit(op.multiply(g.emit(op.astype(y, "float32")), scale))

    def _units(self, v: Any, count: int) -> list:
        """The parts of the last axis, one for each gate."""
        axis, n = self.g.rank(v) - 1, self.hidden
        cut = lambda k: op.strided_slice(v, axes=[axis], begin=[k * n], end=[(k + 1) * n])
        return [self.g.emit(cut(k)) for k in range(count)]

    def _sum_of_halves(self, bias: Any) -> Any:
        n = _GATES * self.hidden
        cut = lambda a, b: op.strided_slice(bias, axes=[0], begin=[a], end=[b])
        return self.g.emit(op.add(self.g.emit(cut(0, n)), self.g.emit(cut(n, 2 * n))))
