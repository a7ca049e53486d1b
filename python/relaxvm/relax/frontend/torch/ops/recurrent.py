# SPDX-License-Identifier: Apache-2.0
"""LSTM, GRU and RNN: layers of one or both directions, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from relaxvm.relax import op

from ... import recurrent
from ..errors import UnsupportedProgram, refuse_training
from ..graph import Graph
from ..registry import aten_op

# PyTorch's gates in ONNX's order
_LSTM_GATES = (0, 3, 1, 2)  # input, output, forget, cell
_GRU_GATES = (1, 0, 2)  # update, reset, hidden
_RNN_GATES = (0,)

Step = Callable[..., tuple]


def _reordered(g: Graph, x: Any, gates: Sequence[int]) -> Any:
    """[gates * hidden, ...] with the gates in another order."""
    if len(gates) == 1:
        return x
    hidden = g.shape(x)[0] // len(gates)
    cut = lambda i: op.strided_slice(x, [0], [i * hidden], [(i + 1) * hidden], [1])
    return g.emit(op.concat([g.emit(cut(i)) for i in gates], 0))


def _layers(
    g: Graph,
    x: Any,
    states: Sequence[Any],
    weights: Sequence[Any],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
    gates: Sequence[int],
    activation: str | None,
    step: Step,
) -> tuple:
    """The output of the last layer, and the last state of each kind, [layers * directions, batch, hidden]."""
    refuse_training(train and dropout != 0)
    directions = 2 if bidirectional else 1
    each = 4 if has_biases else 2
    if len(weights) != each * directions * num_layers:
        raise UnsupportedProgram("projections of the state")
    single = g.rank(x) == 2
    if single:
        x = g.emit(op.expand_dims(x, [1]))
        states = [g.emit(op.expand_dims(s, [1])) for s in states]
    elif batch_first:
        x = g.emit(op.permute_dims(x, [1, 0, 2]))
    names = None if activation is None else [activation] * directions
    options = recurrent.Options(
        names, None, None, 0.0, "bidirectional" if bidirectional else "forward", 0
    )
    last: list[list[Any]] = [[] for _ in states]
    for layer in range(num_layers):
        parts = [
            weights[(layer * directions + d) * each : (layer * directions + d + 1) * each]
            for d in range(directions)
        ]
        joined = [_joined(g, [_reordered(g, p[i], gates) for p in parts]) for i in range(2)]
        bias = None
        if has_biases:
            rows = [_reordered(g, p[i], gates) for p in parts for i in (2, 3)]
            both = [g.emit(op.concat(rows[2 * d : 2 * d + 2], 0)) for d in range(directions)]
            bias = _joined(g, both)
        first = layer * directions
        now = [_rows(g, s, first, first + directions, num_layers * directions) for s in states]
        y, *ends = step(g, x, *joined, bias, now, options)
        for kept, end in zip(last, ends):
            kept.append(end)
        # [steps, directions, batch, hidden] -> [steps, batch, directions * hidden]
        shape = g.shape(y)
        turned = g.emit(op.permute_dims(y, [0, 2, 1, 3]))
        x = g.emit(op.reshape(turned, [shape[0], shape[2], directions * shape[3]]))
    finals = [kept[0] if num_layers == 1 else g.emit(op.concat(kept, 0)) for kept in last]
    if single:
        return op.squeeze(x, [1]), *(op.squeeze(f, [1]) for f in finals)
    return op.permute_dims(x, [1, 0, 2]) if batch_first else x, *finals


def _joined(g: Graph, parts: list[Any]) -> Any:
    wide = [g.emit(op.expand_dims(p, [0])) for p in parts]
    return wide[0] if len(wide) == 1 else g.emit(op.concat(wide, 0))


def _rows(g: Graph, x: Any, begin: int, end: int, count: int) -> Any:
    if begin == 0 and end == count:
        return x
    return g.emit(op.strided_slice(x, [0], [begin], [end], [1]))


@aten_op("lstm.input")
def lstm(g: Graph, x: Any, states: Sequence[Any], weights: Sequence[Any], *rest: Any) -> tuple:
    def step(g: Graph, x: Any, w: Any, r: Any, bias: Any, now: list, options: Any) -> tuple:
        return recurrent.lstm(g, x, w, r, bias, None, now[0], now[1], None, options)

    return _layers(g, x, states, weights, *rest, _LSTM_GATES, None, step)


@aten_op("gru.input")
def gru(g: Graph, x: Any, state: Any, weights: Sequence[Any], *rest: Any) -> tuple:
    def step(g: Graph, x: Any, w: Any, r: Any, bias: Any, now: list, options: Any) -> tuple:
        return recurrent.gru(g, x, w, r, bias, None, now[0], options, True)

    return _layers(g, x, [state], weights, *rest, _GRU_GATES, None, step)


def _rnn(name: str, activation: str) -> None:
    @aten_op(f"rnn_{name}.input")
    def rnn(g: Graph, x: Any, state: Any, weights: Sequence[Any], *rest: Any) -> tuple:
        def step(g: Graph, x: Any, w: Any, r: Any, bias: Any, now: list, options: Any) -> tuple:
            return recurrent.rnn(g, x, w, r, bias, None, now[0], options)

        return _layers(g, x, [state], weights, *rest, _RNN_GATES, activation, step)


_rnn("tanh", "Tanh")
_rnn("relu", "Relu")
