# SPDX-License-Identifier: Apache-2.0
"""LSTM, GRU and RNN."""

from __future__ import annotations

from ... import recurrent
from ..graph import Graph
from ..registry import Expr, onnx_op


@onnx_op("LSTM", since=7)
def lstm(
    g: Graph,
    x: Expr,
    w: Expr,
    r: Expr,
    bias: Expr | None = None,
    lengths: Expr | None = None,
    initial_h: Expr | None = None,
    initial_c: Expr | None = None,
    peepholes: Expr | None = None,
    *,
    activation_alpha: list[float] | None = None,
    activation_beta: list[float] | None = None,
    activations: list[str] | None = None,
    clip: float = 0.0,
    direction: str = "forward",
    hidden_size: int = 0,
    input_forget: int = 0,
    layout: int = 0,
) -> tuple:
    options = recurrent.Options(
        activations, activation_alpha, activation_beta, clip, direction, layout
    )
    return recurrent.lstm(
        g, x, w, r, bias, lengths, initial_h, initial_c, peepholes, options, bool(input_forget)
    )


@onnx_op("GRU", since=7)
def gru(
    g: Graph,
    x: Expr,
    w: Expr,
    r: Expr,
    bias: Expr | None = None,
    lengths: Expr | None = None,
    initial_h: Expr | None = None,
    *,
    activation_alpha: list[float] | None = None,
    activation_beta: list[float] | None = None,
    activations: list[str] | None = None,
    clip: float = 0.0,
    direction: str = "forward",
    hidden_size: int = 0,
    layout: int = 0,
    linear_before_reset: int = 0,
) -> tuple:
    options = recurrent.Options(
        activations, activation_alpha, activation_beta, clip, direction, layout
    )
    return recurrent.gru(g, x, w, r, bias, lengths, initial_h, options, bool(linear_before_reset))


@onnx_op("RNN", since=7)
def rnn(
    g: Graph,
    x: Expr,
    w: Expr,
    r: Expr,
    bias: Expr | None = None,
    lengths: Expr | None = None,
    initial_h: Expr | None = None,
    *,
    activation_alpha: list[float] | None = None,
    activation_beta: list[float] | None = None,
    activations: list[str] | None = None,
    clip: float = 0.0,
    direction: str = "forward",
    hidden_size: int = 0,
    layout: int = 0,
) -> tuple:
    options = recurrent.Options(
        activations, activation_alpha, activation_beta, clip, direction, layout
    )
    return recurrent.rnn(g, x, w, r, bias, lengths, initial_h, options)
