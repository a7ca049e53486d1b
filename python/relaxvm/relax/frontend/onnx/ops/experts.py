# SPDX-License-Identifier: Apache-2.0
"""Mixtures of experts (com.microsoft): each token goes through the few networks that its router prefers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from relaxvm import relax
from relaxvm.relax import op

from ..block_weights import STRIP, BlockWeight, product
from ..errors import InvalidModel, UnsupportedModel
from ..graph import Graph
from ..registry import Array, Expr, onnx_op
from .block_quantized import unpacked

MICROSOFT = "com.microsoft"

# (rows, expert) -> rows: one layer
Layer = Callable[[Any, int], Any]


@dataclasses.dataclass
class Activation:
    """What stands between the layers of an expert."""

    name: str
    alpha: float
    beta: float
    limit: float | None
    fusion: int  # of swiglu: 0 apart, 1 gate and value by turns in one row, 2 one after the other

    def __post_init__(self) -> None:
        if self.name not in ("relu", "gelu", "silu", "swiglu", "identity"):
            raise UnsupportedModel(f"activation_type '{self.name}' is not supported")
        if self.fusion not in (0, 1, 2):
            raise InvalidModel(f"swiglu_fusion is 0, 1 or 2, not {self.fusion}")

    @property
    def is_gated(self) -> bool:
        return self.name == "swiglu"

    def of(self, g: Graph, x: Any, value: Any | None) -> Any:
        """`value`: what a third layer made of the same rows."""
        if not self.is_gated:
            y = {
                "relu": op.nn.relu,
                "gelu": op.nn.gelu_tanh,
                "silu": op.nn.silu,
                "identity": lambda x: x,
            }[self.name](x)
            return g.emit(y if value is None else op.multiply(g.emit(y), value))
        gate = x
        if value is None:
            gate, value = self._halves(g, x)
        if self.limit is not None:
            limit = g.scalar(self.limit, x)
            gate = g.emit(op.minimum(gate, limit))
            value = g.emit(op.maximum(op.minimum(value, limit), g.scalar(-self.limit, x)))
        opened = op.sigmoid(g.emit(op.multiply(gate, g.scalar(self.alpha, x))))
        gate = g.emit(op.multiply(gate, g.emit(opened)))
        return g.emit(op.multiply(gate, g.emit(op.add(value, g.scalar(self.beta, x)))))

    def _halves(self, g: Graph, x: Any) -> tuple:
        rows, width = g.shape(x)
        if self.fusion == 0 or width % 2:
            raise InvalidModel("swiglu needs a third layer, or a first one with twice as many rows")
        begin, step = ([0, 1], 2) if self.fusion == 1 else ([0, width // 2], 1)
        end = [width, width] if self.fusion == 1 else [width // 2, width]
        return tuple(
            g.emit(op.strided_slice(x, axes=[1], begin=[a], end=[b], strides=[step]))
            for a, b in zip(begin, end)
        )


@onnx_op("MoE", since=1, domain=MICROSOFT)
def mixture_of_experts(
    g: Graph,
    x: Expr,
    router: Expr,
    fc1: Array,
    fc1_bias: Array | None = None,
    fc2: Array | None = None,
    fc2_bias: Array | None = None,
    fc3: Array | None = None,
    fc3_bias: Array | None = None,
    *,
    activation_alpha: float = 1.0,
    activation_beta: float = 0.0,
    activation_type: str = "relu",
    k: int = 1,
    normalize_routing_weights: int = 0,
    swiglu_fusion: int = 0,
    swiglu_limit: float | None = None,
    swiglu_limit_after_activation: int = 0,
    use_sparse_mixer: int = 0,
) -> Expr:
    if fc2 is None:
        raise InvalidModel("its second layer is missing")
    _refuse(use_sparse_mixer, swiglu_limit_after_activation)
    activation = Activation(
        activation_type, activation_alpha, activation_beta, swiglu_limit, swiglu_fusion
    )

    def layer(weights: np.ndarray, bias: np.ndarray | None) -> Layer:
        def of(rows: Any, expert: int) -> Any:
            turned = np.ascontiguousarray(weights[expert].T)
            y = g.emit(op.matmul(rows, g.constant(turned, g.dtype(rows))))
            return _with_bias(g, y, bias, expert)

        return of

    layers = [layer(fc1, fc1_bias), layer(fc2, fc2_bias)]
    if fc3 is not None:
        layers.append(layer(fc3, fc3_bias))
    weights = _Routing(k, bool(normalize_routing_weights)).weights
    return _mixture(g, x, router, len(fc1), k, weights, activation, layers)


@onnx_op("QMoE", since=1, domain=MICROSOFT)
def quantized_mixture_of_experts(
    g: Graph,
    x: Expr,
    router: Expr,
    fc1: Array,
    fc1_scales: Array | None = None,
    fc1_bias: Array | None = None,
    fc2: Array | None = None,
    fc2_scales: Array | None = None,
    fc2_bias: Array | None = None,
    fc3: Array | None = None,
    fc3_scales: Array | None = None,
    fc3_bias: Array | None = None,
    fc1_zeros: Array | None = None,
    fc2_zeros: Array | None = None,
    fc3_zeros: Array | None = None,
    router_weights: Expr | None = None,
    *,
    accuracy_level: int = 0,
    activation_alpha: float = 1.0,
    activation_beta: float = 0.0,
    activation_type: str = "relu",
    block_size: int = 0,
    expert_weight_bits: int = 4,
    fc1_expert_weight_bits: int = 0,
    fc2_expert_weight_bits: int = 0,
    fc3_expert_weight_bits: int = 0,
    k: int = 1,
    normalize_routing_weights: int = 0,
    quant_type: str = "int",
    swiglu_fusion: int = 0,
    swiglu_limit: float | None = None,
    swiglu_limit_after_activation: int = 0,
    use_sparse_mixer: int = 0,
    weights_prepacked: int = -1,
) -> Expr:
    """Weights are small integers in blocks along the sum, which stay as small in memory."""
    if fc2 is None:
        raise InvalidModel("its second layer is missing")
    _refuse(use_sparse_mixer, swiglu_limit_after_activation)
    if quant_type != "int" or weights_prepacked == 1:
        raise UnsupportedModel("only plain blocks of integers are supported")
    activation = Activation(
        activation_type, activation_alpha, activation_beta, swiglu_limit, swiglu_fusion
    )

    def layer(codes: Any, scales: Any, zeros: Any, bias: Any, bits: int) -> Layer:
        bits = bits or expert_weight_bits
        if bits not in (2, 4, 8) or scales is None:
            raise UnsupportedModel("only weights of 2, 4 or 8 bits with scales are supported")
        experts, n = codes.shape[:2]
        columns = codes.shape[2] * 8 // bits
        block = block_size or -(-columns // STRIP) * STRIP
        blocks = -(-columns // block)
        if block % STRIP:
            raise InvalidModel(f"block_size is a power of 2 from {STRIP} on, not {block_size}")

        def of(rows: Any, expert: int) -> Any:
            points = None
            if zeros is not None:
                packed = zeros[expert].reshape(n if block_size else 1, -1)
                points = unpacked(packed, bits).reshape(-1)[: n * blocks]
                if block_size:
                    points = unpacked(packed, bits)[:, :blocks]
                points = points.reshape(n, blocks)
            weight = BlockWeight(
                unpacked(codes[expert], bits),
                bits,
                block,
                scales[expert].reshape(n, blocks),
                points,
            )
            y = product(g, rows, weight, rounds=accuracy_level == 4 and bits != 2)
            return _with_bias(g, g.emit(y), bias, expert)

        return of

    layers = [
        layer(fc1, fc1_scales, fc1_zeros, fc1_bias, fc1_expert_weight_bits),
        layer(fc2, fc2_scales, fc2_zeros, fc2_bias, fc2_expert_weight_bits),
    ]
    if fc3 is not None:
        layers.append(layer(fc3, fc3_scales, fc3_zeros, fc3_bias, fc3_expert_weight_bits))
    routing = _Routing(k, bool(normalize_routing_weights), router_weights)
    return _mixture(g, x, router, len(fc1), k, routing.weights, activation, layers)


def _refuse(use_sparse_mixer: int, swiglu_limit_after_activation: int) -> None:
    if use_sparse_mixer or swiglu_limit_after_activation:
        raise UnsupportedModel("sparse mixers, and limits after an activation, are not supported")


@dataclasses.dataclass
class _Routing:
    """What the results of a token's experts are multiplied by."""

    k: int
    is_normalized: bool
    other: Any | None = None  # router_weights: they count instead of the router's own

    def weights(self, g: Graph, router: Any, values: Any, experts: Any) -> Any:
        """[tokens, k], of the greatest `values` of the router and the `experts` that have them."""
        if self.other is not None:
            chosen = g.emit(op.gather_elements(g.as_type(self.other, "float32"), experts, axis=1))
            if not self.is_normalized:
                return chosen
            return g.emit(op.divide(chosen, g.emit(op.sum(chosen, axis=[1], keepdims=True))))
        if self.is_normalized:
            return g.emit(op.nn.softmax(values, axis=-1))
        return g.emit(op.gather_elements(g.emit(op.nn.softmax(router, axis=-1)), experts, axis=1))


def _with_bias(g: Graph, y: Any, bias: np.ndarray | None, expert: int) -> Any:
    if bias is None:
        return y
    return g.emit(op.add(y, g.constant(np.ascontiguousarray(bias[expert]), g.dtype(y))))


def _mixture(
    g: Graph,
    x: Any,
    router: Any,
    count: int,
    k: int,
    weights: Callable,
    activation: Activation,
    layers: list[Layer],
) -> Any:
    """In float32.  The tokens of each expert are made neighbours, so that each layer is one product of an expert."""
    if not 1 <= k <= count:
        raise InvalidModel(f"k is from 1 to the {count} experts, not {k}")
    shape, dtype = g.shape(x), g.dtype(x)
    width, tokens = shape[-1], g.product(shape[:-1])
    x = g.as_type(g.emit(op.reshape(x, [tokens, width])), "float32")
    router = g.as_type(g.checked(router, [tokens, count]), "float32")
    best = g.emit(op.topk(router, k=k, axis=-1, ret_type="both", largest=True, dtype="int64"))
    values, experts = (g.emit(relax.TupleGetItem(best, i)) for i in (0, 1))
    shares = weights(g, router, values, experts)
    choices = g.scalars.mul(tokens, k)
    experts = g.emit(op.reshape(experts, [choices]))
    order = g.emit(op.argsort(experts, axis=-1, dtype="int64"))
    rows = g.emit(op.take(x, g.emit(op.floor_divide(order, g.constant(k, "int64"))), axis=0))
    parts = [
        _expert(g, part, i, activation, layers)
        for i, part in enumerate(_parts(g, rows, experts, count))
    ]
    y = g.match_cast(g.emit(op.concat(parts, axis=0)), [choices, width])
    y = g.emit(op.take(y, g.emit(op.argsort(order, axis=-1, dtype="int64")), axis=0))
    y = g.emit(op.reshape(y, [tokens, k, width]))
    y = op.multiply(y, g.emit(op.reshape(shares, [tokens, k, 1])))
    y = g.emit(op.sum(g.emit(y), axis=[1]))
    return op.reshape(g.as_type(y, dtype), shape)


def _parts(g: Graph, rows: Any, experts: Any, count: int) -> list:
    """The neighbouring rows of each expert."""
    numbers = g.constant(np.arange(count), "int64")
    upto = op.less_equal(g.emit(op.expand_dims(experts, axis=[1])), numbers)
    ends = g.emit(op.sum(g.emit(op.astype(g.emit(upto), "int64")), axis=[0]))
    names = [g.dimensions.fresh("end") for _ in range(count)]
    g.builder.match_cast(g.emit(op.tensor_to_shape(ends)), relax.ShapeType(names))
    cut = lambda a, b: op.strided_slice(rows, [0], [a], [b], [1], assume_inbound=True)
    return [g.emit(cut(first, last)) for first, last in zip([0, *names[:-1]], names)]


def _expert(g: Graph, rows: Any, expert: int, activation: Activation, layers: list[Layer]) -> Any:
    first = layers[0](rows, expert)
    value = layers[2](rows, expert) if len(layers) > 2 else None
    return layers[1](activation.of(g, first, value), expert)
