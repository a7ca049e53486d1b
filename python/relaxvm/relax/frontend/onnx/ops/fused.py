# SPDX-License-Identifier: Apache-2.0
"""Operators of the domain com.microsoft that exporters and ONNX Runtime's own optimizer write for several of ONNX."""

from __future__ import annotations

from typing import Any

from relaxvm.relax import op

from ..errors import InvalidModel, UnsupportedModel
from ..graph import Graph
from ..registry import Array, Expr, onnx_op
from .activations import elu, softplus, softsign, thresholded_relu
from .convolution import conv
from .creation import range_
from .indexing import gather_nd
from .linear import gemm, inner_agree
from .movement import pad_11, trilu
from .pooling import max_pool

MICROSOFT = "com.microsoft"


def activated(g: Graph, y: Any, name: str, parameters: list[float] | None) -> Any:
    """The activation that a fused operator ends with."""
    p = [*(parameters or []), 0.0, 0.0]
    f = lambda v: g.scalar(v, y)
    table = {
        "": lambda: y,
        "Relu": lambda: op.nn.relu(y),
        "Sigmoid": lambda: op.sigmoid(y),
        "Tanh": lambda: op.tanh(y),
        "LeakyRelu": lambda: op.nn.leakyrelu(y, p[0] if parameters else 0.01),
        "Clip": lambda: op.clip(y, p[0], p[1]),
        "Elu": lambda: elu(g, y, alpha=p[0] if parameters else 1.0),
        "Softplus": lambda: softplus(y),
        "Softsign": lambda: softsign(g, y),
        "ThresholdedRelu": lambda: thresholded_relu(g, y, alpha=p[0] if parameters else 1.0),
        "HardSigmoid": lambda: op.clip(op.add(op.multiply(y, f(p[0])), f(p[1])), 0.0, 1.0),
    }
    if name not in table:
        raise UnsupportedModel(f"activation '{name}' is not supported")
    y = g.emit(y)
    return table[name]()


@onnx_op("FusedMatMul", since=1, domain=MICROSOFT)
@onnx_op("TransposeMatMul", since=1, domain=MICROSOFT)
def fused_matmul(
    g: Graph,
    a: Expr,
    b: Expr,
    *,
    alpha: float = 1.0,
    transA: int = 0,  # noqa: N803: ONNX's names
    transB: int = 0,
    transBatchA: int = 0,
    transBatchB: int = 0,
) -> Expr:
    if transBatchA:
        a = _batch_moved(g, a, bool(transA))
    elif transA:
        a = _last_two_swapped(g, a)
    if transBatchB:
        b = _batch_moved(g, b, bool(transB))
    elif transB:
        b = _last_two_swapped(g, b)
    y = g.emit(op.matmul(*inner_agree(g, a, b)))
    return y if alpha == 1.0 else op.multiply(y, g.scalar(alpha, a))


def _batch_moved(g: Graph, x: Any, swapped: bool) -> Any:
    """[rows, batch.., columns] -> [batch.., rows, columns], or [batch.., columns, rows]."""
    rank = g.rank(x)
    last = [rank - 1, 0] if swapped else [0, rank - 1]
    return g.emit(op.permute_dims(x, [*range(1, rank - 1), *last]))


def _last_two_swapped(g: Graph, x: Any) -> Any:
    rank = g.rank(x)
    return x if rank < 2 else g.emit(op.permute_dims(x, [*range(rank - 2), rank - 1, rank - 2]))


@onnx_op("FusedGemm", since=1, domain=MICROSOFT)
def fused_gemm(
    g: Graph,
    a: Expr,
    b: Expr,
    c: Expr | None = None,
    *,
    activation: str = "",
    activation_alpha: float = 0.0,
    activation_beta: float = 0.0,
    activation_gamma: float = 0.0,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,  # noqa: N803: ONNX's names
    transB: int = 0,
) -> Expr:
    y = gemm(g, a, b, c, alpha=alpha, beta=beta, transA=transA, transB=transB)
    return activated(g, y, activation, [activation_alpha, activation_beta])


@onnx_op("FusedConv", since=1, domain=MICROSOFT)
def fused_conv(
    g: Graph,
    x: Expr,
    weight: Expr,
    bias: Expr | None = None,
    residual: Expr | None = None,
    *,
    activation: str = "",
    activation_params: list[float] | None = None,
    auto_pad: str = "NOTSET",
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Expr:
    y = conv(
        g, x, weight, bias, auto_pad=auto_pad, dilations=dilations, group=group,
        kernel_shape=kernel_shape, pads=pads, strides=strides,
    )  # fmt: skip
    y = y if residual is None else op.add(*g.agree(y, residual))
    return activated(g, y, activation, activation_params)


@onnx_op("NhwcConv", since=1, domain=MICROSOFT)
def nhwc_conv(
    g: Graph,
    x: Expr,
    weight: Expr,
    bias: Expr | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Expr:
    """Channels last, in data and weight."""
    rank = g.rank(x)
    forth, back = [0, rank - 1, *range(1, rank - 1)], [0, *range(2, rank), 1]
    x, weight = g.emit(op.permute_dims(x, forth)), g.emit(op.permute_dims(weight, forth))
    y = conv(
        g, x, weight, bias, auto_pad=auto_pad, dilations=dilations, group=group,
        kernel_shape=kernel_shape, pads=pads, strides=strides,
    )  # fmt: skip
    return op.permute_dims(g.emit(y), back)


@onnx_op("QuickGelu", since=1, domain=MICROSOFT)
def quick_gelu(g: Graph, x: Expr, *, alpha: float = 1.702) -> Expr:
    return op.multiply(x, op.sigmoid(op.multiply(x, g.scalar(alpha, x))))


@onnx_op("BiasAdd", since=1, domain=MICROSOFT)
def bias_add(g: Graph, x: Expr, bias: Expr, skip: Expr) -> Expr:
    return op.add(*g.agree(g.emit(op.add(*g.agree(x, bias))), skip))


@onnx_op("SimplifiedLayerNormalization", since=1, domain="")
@onnx_op("SimplifiedLayerNormalization", since=1, domain=MICROSOFT)
def simplified_layer_normalization(
    g: Graph, x: Expr, scale: Expr, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> tuple:
    axes = list(range(g.axis(axis, g.rank(x)), g.rank(x)))
    x, scale = g.agree(x, scale)
    y = op.nn.rms_norm(x, scale, axes=axes, epsilon=epsilon)
    if not g.wants(1):
        return (y,)
    wide = x if g.dtype(x) == "float32" else g.emit(op.astype(x, "float32"))
    square = op.mean(op.multiply(wide, wide), axis=axes, keepdims=True)
    return y, op.rsqrt(op.add(square, g.scalar(epsilon, wide)))


@onnx_op("BranchwiseRMSNorm", since=1, domain=MICROSOFT)
def branchwise_rms_norm(
    g: Graph, x: Expr, scale: Expr | None = None, *, num_branches: int = 0, epsilon: float = 1e-6
) -> Expr:
    """Each of the branches side by side in the last axis, or in the last but one, has a norm of its own."""
    shape = g.shape(x)
    if num_branches:
        parts = [*shape[:-1], num_branches, g.scalars.floordiv(shape[-1], num_branches)]
        x = g.emit(op.reshape(x, parts))
    parts = g.shape(x)
    y = op.nn.rms_norm(x, op.ones([parts[-1]], g.dtype(x)), axes=[-1], epsilon=epsilon)
    if scale is not None:
        if g.rank(scale) == 1 and not g.scalars.same(g.shape(scale)[0], parts[-1]):
            scale = g.emit(op.reshape(scale, parts[-2:]))
        y = op.multiply(g.emit(y), scale)
    return op.reshape(g.emit(y), shape)


@onnx_op("GatedRMSNorm", since=1, domain=MICROSOFT)
def gated_rms_norm(
    g: Graph, x: Expr, scale: Expr, gate: Expr, *, activation: str = "silu", epsilon: float = 1e-5
) -> Expr:
    """Norms of each group of as many elements as scale has, times the activated gate."""
    if activation not in ("silu", "swish", "sigmoid"):
        raise InvalidModel(f"activation is 'silu', 'swish' or 'sigmoid', not '{activation}'")
    shape, width = g.shape(x), g.shape(scale)[0]
    groups = g.scalars.floordiv(shape[-1], width)
    parts = g.emit(op.reshape(x, [*shape[:-1], groups, width]))
    y = op.nn.rms_norm(parts, scale, axes=[-1], epsilon=epsilon)
    y = g.emit(op.reshape(g.emit(y), shape))
    opened = op.sigmoid(gate)
    return op.multiply(y, opened if activation == "sigmoid" else op.multiply(gate, opened))


@onnx_op("ScaledSiLU", since=1, domain=MICROSOFT)
def scaled_silu(g: Graph, x: Expr, scale: Expr | None = None, *, alpha: float = 1.0) -> Expr:
    factor = g.scalar(alpha, x) if scale is None else op.reshape(scale, [])
    scaled = g.emit(op.multiply(x, factor))
    return op.multiply(scaled, op.sigmoid(scaled))


@onnx_op("CDist", since=1, domain=MICROSOFT)
def distances(g: Graph, a: Expr, b: Expr, *, metric: str = "sqeuclidean") -> Expr:
    """[M, K] and [N, K] -> [M, N]"""
    if metric not in ("sqeuclidean", "euclidean"):
        raise UnsupportedModel(f"metric '{metric}' is not supported")
    squares = lambda x: op.sum(op.multiply(x, x), axis=[1], keepdims=True)
    products = op.matmul(a, op.permute_dims(b, [1, 0]))
    both = op.add(squares(a), op.permute_dims(g.emit(squares(b)), [1, 0]))
    square = op.subtract(both, op.multiply(products, g.scalar(2, a)))
    square = op.maximum(square, g.scalar(0, a))
    return op.sqrt(square) if metric == "euclidean" else square


@onnx_op("SkipSimplifiedLayerNormalization", since=1, domain=MICROSOFT)
def skip_simplified_layer_normalization(
    g: Graph, x: Expr, skip: Expr, gamma: Expr, bias: Expr | None = None, *, epsilon: float = 1e-5
) -> tuple:
    total = g.emit(op.add(*g.agree(x, skip)))
    total = total if bias is None else g.emit(op.add(*g.agree(total, bias)))
    total, gamma = g.agree(total, gamma)
    return op.nn.rms_norm(total, gamma, axes=[-1], epsilon=epsilon), None, None, total


@onnx_op("GatedAdd", since=1, domain=MICROSOFT)
def gated_add(g: Graph, x: Expr, y: Expr, gate: Expr, gate_weight: Expr | None = None) -> Expr:
    if gate_weight is not None:
        raise UnsupportedModel("a gate that is computed from weights is not supported")
    return op.add(*g.agree(x, g.emit(op.multiply(*g.agree(y, gate)))))


@onnx_op("ExpandDims", since=1, domain=MICROSOFT)
def expand_dims(g: Graph, x: Expr, axis: Array) -> Expr:
    return op.expand_dims(x, axis=[g.axis(int(axis.reshape(-1)[0]), g.rank(x) + 1)])


@onnx_op("NhwcMaxPool", since=1, domain=MICROSOFT)
def nhwc_max_pool(
    g: Graph,
    x: Expr,
    *,
    kernel_shape: list[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Expr:
    """Channels last."""
    rank = g.rank(x)
    x = g.emit(op.permute_dims(x, [0, rank - 1, *range(1, rank - 1)]))
    y = max_pool(
        g, x, kernel_shape=kernel_shape, auto_pad=auto_pad, ceil_mode=ceil_mode,
        dilations=dilations, pads=pads, strides=strides,
    )  # fmt: skip
    return op.permute_dims(g.emit(y), [0, *range(2, rank), 1])


onnx_op("GatherND", since=1, domain=MICROSOFT)(gather_nd)
onnx_op("Pad", since=1, domain=MICROSOFT)(pad_11)
onnx_op("Range", since=1, domain=MICROSOFT)(range_)
onnx_op("Trilu", since=1, domain=MICROSOFT)(trilu)
