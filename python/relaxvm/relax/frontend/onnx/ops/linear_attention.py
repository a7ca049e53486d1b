# SPDX-License-Identifier: Apache-2.0
"""Attention that keeps a state of fixed size instead of all keys, and the short convolution that comes before it."""

from __future__ import annotations

import math
from typing import Any

from relaxvm.relax import op

from .. import loops
from ..broadcasting import fitted
from ..errors import InvalidModel, UnsupportedModel
from ..graph import Graph
from ..registry import Expr, onnx_op
from ..scalars import is_symbolic
from ..slicing import Range, take_ranges
from ..values import Known, Tensor, Value

MICROSOFT = "com.microsoft"

# update_rule -> (the state decays, what the state knows already is taken off the value)
_RULES = {
    "linear": (False, False),
    "gated": (True, False),
    "delta": (False, True),
    "gated_delta": (True, True),
}
_NODES_A_STEP = 8


@onnx_op("LinearAttention", since=27)
def linear_attention(
    g: Graph,
    query: Expr,
    key: Expr,
    value: Expr,
    past_state: Expr | None = None,
    decay: Expr | None = None,
    beta: Expr | None = None,
    *,
    q_num_heads: int,
    kv_num_heads: int,
    chunk_size: int = 64,
    scale: float = 0.0,
    update_rule: str = "gated_delta",
) -> tuple:
    """One step a token, in float32, over a state [B, heads, d_k, d_v]:

    state = exp(decay) * state + key (x) (beta * (value - state^T key));  output = scale * query state
    """
    if update_rule not in _RULES:
        raise InvalidModel(f"update_rule is one of {sorted(_RULES)}, not '{update_rule}'")
    for (name, given), needed in zip((("decay", decay), ("beta", beta)), _RULES[update_rule]):
        if (given is not None) != needed:
            word = "needs" if needed else "has no"
            raise InvalidModel(f"update_rule '{update_rule}' {word} input '{name}'")
    heads = kv_num_heads
    if heads < 1 or q_num_heads < 1 or q_num_heads % heads:
        raise InvalidModel(f"{q_num_heads} heads of queries are no multiple of {heads}")
    q, k, v = (_of_heads(g, x, heads) for x in (query, key, value))
    batch, length, _, d_k, d_v = *g.shape(k), g.shape(v)[3]
    group, dtype = q_num_heads // heads, g.dtype(query)
    q = g.checked(q, [batch, length, heads, g.scalars.mul(group, d_k)])
    q = g.emit(op.reshape(q, [batch, length, heads, group, d_k]))
    # Rows and columns for products: a key is a column of the state, a value a row of it.
    k = g.emit(op.reshape(k, [batch, length, heads, d_k, 1]))
    v = g.emit(
        op.reshape(g.checked(v, [batch, length, heads, d_v]), [batch, length, heads, 1, d_v])
    )
    gates = None if decay is None else _gates(g, decay, [batch, length, heads], d_k)
    rates = None if beta is None else _rates(g, beta, [batch, length, heads])
    size = [batch, heads, d_k, d_v]
    if past_state is None:
        state = g.emit(op.zeros(size, "float32"))
    else:
        state = _wide(g, g.checked(past_state, size))

    def step(number: Value, condition: Value, carried: list[Value]) -> tuple:
        i = number.array.reshape(()).item()
        at = lambda x: _token(g, x, i, length)
        state, key, value = carried[0].expr, at(k), at(v)
        if gates is not None:
            state = g.emit(op.multiply(state, at(gates)))
        if rates is not None:
            seen = op.sum(op.multiply(state, key), axis=[2], keepdims=True)
            value = g.emit(op.multiply(at(rates), op.subtract(value, seen)))
        state = g.emit(op.add(state, op.multiply(key, value)))
        return condition, [Tensor(state)], [Tensor(g.emit(op.matmul(at(q), state)))]

    always = Known.constant(True, bool)
    loop = loops.Loop(length, always, [Tensor(state)], step, _NODES_A_STEP)
    (last,), (outputs,) = loops.run(g, loop)
    factor = scale or _root(g, d_k)
    y = loops.joined(g, outputs, axis=1).expr  # [B, T, heads, group, d_v]
    y = g.emit(op.multiply(y, g.scalar(factor, y) if isinstance(factor, float) else factor))
    width = g.scalars.mul(q_num_heads, d_v)
    y = g.emit(op.reshape(y, [batch, length, width]))
    state_dtype = dtype if past_state is None else g.dtype(past_state)
    return _narrow(g, y, dtype), _narrow(g, last.expr, state_dtype)


@onnx_op("LinearAttention", since=1, domain=MICROSOFT)
def linear_attention_ms(
    g: Graph,
    query: Expr,
    key: Expr,
    value: Expr,
    past_state: Expr | None = None,
    decay: Expr | None = None,
    beta: Expr | None = None,
    *,
    q_num_heads: int,
    kv_num_heads: int,
    chunk_size: int = 64,
    scale: float = 0.0,
    state_window: int = 0,
    update_rule: str = "gated_delta",
) -> tuple:
    """Several heads of values may share one of queries, too."""
    if state_window:
        raise UnsupportedModel("only the state after the last token is supported")
    if 0 < q_num_heads < kv_num_heads and kv_num_heads % q_num_heads == 0:
        heads = _of_heads(g, query, q_num_heads)
        batch, length, _, d_k = g.shape(heads)
        heads = g.emit(op.repeat(heads, kv_num_heads // q_num_heads, axis=2))
        repeated = g.emit(op.reshape(heads, [batch, length, g.scalars.mul(kv_num_heads, d_k)]))
        query, q_num_heads = _narrow(g, repeated, g.dtype(query)), kv_num_heads
    return linear_attention(
        g, query, key, value, past_state, decay, beta, q_num_heads=q_num_heads,
        kv_num_heads=kv_num_heads, chunk_size=chunk_size, scale=scale, update_rule=update_rule,
    )  # fmt: skip


@onnx_op("LinearAttentionGate", since=1, domain=MICROSOFT)
def linear_attention_gate(
    g: Graph, a: Expr, dt_bias: Expr, decay_scale: Expr, b: Expr | None = None
) -> tuple:
    """What LinearAttention takes as decay and beta, in float32."""
    steps = g.emit(op.nn.softplus(g.emit(op.add(*g.agree(_wide(g, a), dt_bias)))))
    decay = g.emit(op.multiply(*g.agree(steps, decay_scale)))
    beta = None if b is None else _narrow(g, g.emit(op.sigmoid(_wide(g, b))), g.dtype(b))
    return _narrow(g, decay, g.dtype(a)), beta


def _of_heads(g: Graph, x: Any, heads: int) -> Any:
    """[B, T, heads * d] as float32 [B, T, heads, d]."""
    if g.rank(x) != 3:
        raise InvalidModel(f"an input has {g.rank(x)} dimensions, 3 are needed")
    batch, length, width = g.shape(x)
    if isinstance(width, int) and width % heads:
        raise InvalidModel(f"a width of {width} is no multiple of {heads} heads")
    size = g.scalars.floordiv(width, heads)
    return g.emit(op.reshape(_wide(g, x), [batch, length, heads, size]))


def _gates(g: Graph, decay: Any, outer: list, d_k: Any) -> Any:
    """What rows of the state are multiplied by: one number a head, or one a row."""
    width, heads = g.shape(decay)[-1], outer[-1]
    if is_symbolic(width):  # one of both
        rows = g.scalars.floordiv(width, heads)
        decay = fitted(g, g.emit(op.reshape(decay, [*outer, rows, 1])), [*outer, d_k, 1])
        return g.emit(op.exp(_wide(g, decay)))
    rows = 1 if width == heads else d_k
    decay = g.checked(decay, [*outer[:2], g.scalars.mul(heads, rows)])
    return g.emit(op.exp(op.reshape(_wide(g, decay), [*outer, rows, 1])))


def _rates(g: Graph, beta: Any, outer: list) -> Any:
    beta = fitted(g, beta, outer)
    return g.emit(op.reshape(_wide(g, beta), [*g.shape(beta), 1, 1]))


def _token(g: Graph, x: Any, i: Any, length: Any) -> Any:
    """Row `i` of axis 1."""
    shape = g.shape(x)
    row = g.emit(take_ranges(g, x, {1: Range(i, g.scalars.add(i, 1), 1)}))
    return g.emit(op.squeeze(g.checked(row, [shape[0], 1, *shape[2:]]), axis=[1]))


def _root(g: Graph, d_k: Any) -> Any:
    """1 / sqrt(d_k), as a number where the size is one."""
    if isinstance(d_k, int):
        return 1.0 / math.sqrt(d_k)
    size = op.astype(g.as_expr(g.dims_value([d_k], ()), "size"), "float32")
    return g.emit(op.rsqrt(g.emit(size)))


def _wide(g: Graph, x: Any) -> Any:
    return x if g.dtype(x) == "float32" else g.emit(op.astype(x, "float32"))


def _narrow(g: Graph, x: Any, dtype: str) -> Any:
    return x if g.dtype(x) == dtype else g.emit(op.astype(x, dtype))


@onnx_op("CausalConvWithState", since=27)
def causal_conv_with_state(
    g: Graph,
    x: Expr,
    weight: Expr,
    bias: Expr | None = None,
    past_state: Expr | None = None,
    *,
    activation: str = "none",
) -> tuple:
    """A depthwise convolution of [B, C, L] over what came before; the state is the last k - 1 columns."""
    if activation not in ("none", "silu", "swish"):
        raise InvalidModel(f"activation is 'silu', 'swish' or 'none', not '{activation}'")
    if g.rank(x) != 3 or g.rank(weight) != 3:
        raise InvalidModel("input and weight must have 3 dimensions")
    (batch, _, length), (channels, _, window) = g.shape(x), g.shape(weight)
    if not isinstance(channels, int):
        raise UnsupportedModel("its number of channels is unknown")
    x, s = g.checked(x, [batch, channels, length]), g.scalars
    before = s.sub(window, 1)
    if past_state is None:
        past_state = op.zeros([batch, channels, before], g.dtype(x))
    else:
        past_state = g.checked(past_state, [batch, channels, before])
    weight = g.checked(weight, [channels, 1, window])
    whole = g.emit(op.concat([past_state, x], axis=2))
    y = g.emit(op.nn.conv1d(whole, weight, groups=channels, data_layout="NCW", kernel_layout="OIW"))
    if bias is not None:
        y = g.emit(op.add(y, op.reshape(bias, [1, channels, 1])))
    if activation != "none":
        wide = _wide(g, y)
        y = _narrow(g, g.emit(op.multiply(wide, op.sigmoid(wide))), g.dtype(x))
    y = g.checked(y, [batch, channels, length])
    state = take_ranges(g, whole, {2: Range(length, s.add(length, before), 1)})
    return y, g.checked(g.emit(state), [batch, channels, before])


@onnx_op("CausalConvWithState", since=1, domain=MICROSOFT)
def causal_conv_with_state_ms(
    g: Graph,
    x: Expr,
    weight: Expr,
    bias: Expr | None = None,
    past_state: Expr | None = None,
    *,
    activation: str = "none",
    channels_last: int = 0,
    dilation: int = 1,
    ndim: int = 1,
    state_window: int = 0,
) -> tuple:
    if channels_last or dilation != 1 or ndim != 1 or state_window:
        raise UnsupportedModel("only one axis, without dilation, channels first, is supported")
    return causal_conv_with_state(g, x, weight, bias, past_state, activation=activation)
