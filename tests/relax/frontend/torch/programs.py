# SPDX-License-Identifier: Apache-2.0
"""One small program for each operator of PyTorch that is imported, with inputs that tell its cases apart."""

from __future__ import annotations

import math
import operator
import zlib
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

Program = tuple[Callable | nn.Module, tuple]


def rand(*shape: int, low: float = -2.0, high: float = 2.0, dtype: Any = torch.float32) -> Any:
    """The same numbers in every run: a seed of the shape."""
    generator = torch.Generator().manual_seed(zlib.crc32(repr(shape).encode()))
    return (torch.rand(*shape, generator=generator) * (high - low) + low).to(dtype)


def ints(*shape: int, high: int = 5, low: int = 0, dtype: Any = torch.int64) -> Any:
    generator = torch.Generator().manual_seed(zlib.crc32(repr(shape).encode()))
    return torch.randint(low, high, shape, generator=generator).to(dtype)


X = rand(2, 3, 4)
Y = rand(2, 3, 4, low=-1.0, high=3.0)
P = rand(2, 3, 4, low=0.1, high=3.0)
U = rand(2, 3, 4, low=-0.9, high=0.9)
B = ints(2, 3, 4, high=2, dtype=torch.bool)
I = ints(2, 3, 4, low=-7, high=9)
J = ints(2, 3, 4, low=1, high=6)
IMAGE = rand(2, 3, 10, 12)

UNARY = {
    "abs": X, "acos": U, "acosh": P + 1, "asin": U, "asinh": X, "atan": X, "atanh": U, "ceil": X, "cos": X,
    "cosh": X, "digamma": P, "erf": X, "erfc": X, "erfinv": U, "exp": X, "exp2": X, "expm1": X, "floor": X, "frac": X, "isfinite": X / 0.0 * B,
    "isinf": X / (B * 1.0), "isnan": X / 0.0 * B, "lgamma": X, "log": P, "log10": P, "log1p": P, "log2": P, "logical_not": B,
    "logit": U.abs() * 0.9 + 0.05, "neg": X, "positive": X, "reciprocal": P, "relu": X, "round": X * 3, "rsqrt": P,
    "sigmoid": X, "sign": X, "sin": X, "sinh": X, "sqrt": P, "square": X, "tan": U, "tanh": X, "trunc": X * 3,
    "bitwise_not": I, "signbit": X, "sgn": X, "rad2deg": X, "deg2rad": X, "sinc": X,
}  # fmt: skip
BINARY = {
    "add": (X, Y), "sub": (X, Y), "mul": (X, Y), "div": (X, P), "atan2": (X, Y), "fmod": (X * 3, Y), "logaddexp": (X, Y),
    "remainder": (X * 3, Y), "maximum": (X, Y), "minimum": (X, Y), "max": (X, Y), "min": (X, Y), "pow": (P, Y),
    "eq": (I, J), "ne": (I, J), "lt": (X, Y), "le": (X, Y), "gt": (X, Y), "ge": (X, Y), "floor_divide": (X * 4, P),
    "bitwise_and": (I, J), "bitwise_or": (I, J), "bitwise_xor": (I, J), "bitwise_left_shift": (J, J),
    "bitwise_right_shift": (I, J), "logical_and": (B, X > 0), "logical_or": (B, X > 0), "logical_xor": (B, X > 0),
    "true_divide": (I, J), "hypot": (X, Y), "copysign": (X, Y), "xlogy": (X, P), "fmax": (X, Y), "fmin": (X, Y),
    "rsub": (X, Y), "outer": (X[0, 0], Y[0, 1]), "heaviside": (X, Y), "float_power": (P, Y),
}  # fmt: skip
ACTIVATIONS = (
    "celu", "elu", "gelu", "hardsigmoid", "hardswish", "hardtanh", "hardshrink", "leaky_relu", "logsigmoid", "mish",
    "relu6", "selu", "silu", "softplus", "softshrink", "softsign", "tanhshrink",
)  # fmt: skip

PROGRAMS: dict[str, Program] = {}


def program(name: str, function: Callable | nn.Module, *inputs: Any) -> None:
    assert name not in PROGRAMS, name
    PROGRAMS[name] = (function, inputs)


for name, value in UNARY.items():
    program(name, getattr(torch, name), value)
for name, pair in BINARY.items():
    program(name, getattr(torch, name), *pair)
for name in ACTIVATIONS:
    program(name, getattr(F, name), X * 4)

# ---- scalars, types
program("add_scalar", lambda x: x + 2, X)
program("add_alpha", lambda x, y: torch.add(x, y, alpha=3), X, Y)
program("sub_alpha", lambda x, y: torch.sub(x, y, alpha=0.5), X, Y)
program("rsub_scalar", lambda x: 2 - x, X)
program("mul_scalar_int_tensor", lambda i: i * 2.5, I)
program("mixed_types", lambda x, i: x + i, X, I)
program("int_division", lambda i, j: i / j, I, J)
program("div_floor", lambda x, y: torch.div(x, y, rounding_mode="floor"), X * 4, P)
program("div_trunc", lambda i, j: torch.div(i, j, rounding_mode="trunc"), I, J)
program("floor_divide_ints", lambda i, j: i // j, I, J)
program("remainder_ints", lambda i, j: i % j, I, J)
program("remainder_scalar", lambda x: x % 0.7, X)
program("fmod_scalar", lambda x: torch.fmod(x, 0.7), X)
program("pow_scalar", lambda x: x**3, X)
program("pow_of_scalar", lambda x: 2.0**x, X)
program("pow_half", lambda x: x**0.5, P)
program("comparisons_scalar", lambda x: (x > 0, x >= 0, x < 1, x <= 1, x == 0, x != 0), X)
program("bitwise_scalar", lambda i: (i & 3, i | 4, i ^ 1, i << 1, i >> 1), I)
program("logical_operators", lambda a, b: (a & b, a | b, a ^ b, ~a), B, X > 0)
program("to_types", lambda x: (x.half(), x.double(), x.to(torch.int32), x.bool(), x.long()), X * 3)
program("type_as", lambda x, i: i.type_as(x), X, I)
program("gelu_tanh", lambda x: F.gelu(x, approximate="tanh"), X)
program("elu_alpha", lambda x: F.elu(x, 0.5), X)
program("leaky_relu_slope", lambda x: F.leaky_relu(x, 0.3), X)
program("softplus_beta", lambda x: F.softplus(x, 2.0, 3.0), X * 4)
program("threshold", lambda x: F.threshold(x, 0.5, -1.0), X)
program("hardtanh_limits", lambda x: F.hardtanh(x, -0.5, 1.5), X)
program("prelu", nn.PReLU(3), X)
program("glu", lambda x: F.glu(x, -1), X)
program("clamp", lambda x: torch.clamp(x, -0.5, 0.5), X)
program("clamp_min", lambda x: torch.clamp(x, min=0.1), X)
program("clamp_max", lambda x: torch.clamp(x, max=0.1), X)
program("clamp_tensors", lambda x, y: torch.clamp(x, y - 1, y + 1), X, Y)
program("where", lambda b, x, y: torch.where(b, x, y), B, X, Y)
program("where_scalar", lambda b, x: torch.where(b, x, 0.5), B, X)
program("where_scalars", lambda b: torch.where(b, 1.0, 0.5), B)
program("masked_fill", lambda x, b: x.masked_fill(b, -9.0), X, B)
program("masked_fill_inf", lambda x, b: x.masked_fill(b, float("-inf")), X, B)
program("lerp", lambda x, y: torch.lerp(x, y, 0.3), X, Y)
program("lerp_tensor", lambda x, y, w: torch.lerp(x, y, w), X, Y, P)
program("addcmul", lambda x, y, z: torch.addcmul(x, y, z, value=0.5), X, Y, P)
program("addcdiv", lambda x, y, z: torch.addcdiv(x, y, z, value=0.5), X, Y, P)
program("nan_to_num", lambda x: torch.nan_to_num(x / 0.0), X * B)
program("isin", lambda i: torch.isin(i, torch.tensor([1, 2, 5])), I)
program("bucketize", lambda x: torch.bucketize(x, torch.tensor([-1.0, 0.0, 0.5])), X)
program("polar_parts", lambda x, y: (torch.sqrt(x * x + y * y), torch.atan2(y, x)), X, Y)

# ---- linear algebra
program("matmul", torch.matmul, rand(5, 6), rand(6, 7))
program("matmul_vector", torch.matmul, rand(5, 6), rand(6))
program("matmul_vectors", torch.matmul, rand(6), rand(6, high=1.0))
program("matmul_batched", torch.matmul, rand(2, 1, 5, 6), rand(3, 6, 7))
program("mm", torch.mm, rand(5, 6), rand(6, 7))
program("mv", torch.mv, rand(5, 6), rand(6))
program("dot", torch.dot, rand(6), rand(6, high=1.0))
program("bmm", torch.bmm, rand(3, 5, 6), rand(3, 6, 7))
program(
    "addmm",
    lambda a, b, c: torch.addmm(a, b, c, beta=0.5, alpha=2.0),
    rand(7),
    rand(5, 6),
    rand(6, 7),
)
program("baddbmm", lambda a, b, c: torch.baddbmm(a, b, c, beta=0.5, alpha=2.0), rand(3, 5, 7), rand(3, 5, 6), rand(3, 6, 7))  # fmt: skip
program("addbmm", lambda a, b, c: torch.addbmm(a, b, c, beta=0.5, alpha=2.0), rand(5, 7), rand(3, 5, 6), rand(3, 6, 7))  # fmt: skip
program("baddbmm_plain", torch.baddbmm, rand(3, 5, 7), rand(3, 5, 6), rand(3, 6, 7))
program("linear", nn.Linear(6, 4), rand(2, 5, 6))
program("linear_no_bias", nn.Linear(6, 4, bias=False), rand(5, 6))
program("bilinear", nn.Bilinear(6, 5, 4), rand(3, 6), rand(3, 5))
program("einsum", lambda a, b: torch.einsum("bij,bkj->bik", a, b), rand(2, 3, 4), rand(2, 5, 4))
program("einsum_outer", lambda a, b: torch.einsum("i,j->ij", a, b), rand(3), rand(4))
program("tensordot", lambda a, b: torch.tensordot(a, b, dims=2), rand(3, 4, 5), rand(4, 5, 2))
program("norms_of_halves", lambda x: (torch.linalg.vector_norm(x * 300), torch.linalg.vector_norm(x, 6, 1), torch.linalg.vector_norm(x, 0)), (X * 4).half())  # fmt: skip
program("norm", lambda x: torch.linalg.vector_norm(x, dim=1), X)
program("norm_all", lambda x: x.norm(), X)
program("norm_1", lambda x: torch.linalg.vector_norm(x, 1, dim=(0, 2), keepdim=True), X)
program("norm_inf", lambda x: torch.linalg.vector_norm(x, float("inf"), dim=-1), X)
program("normalize", lambda x: F.normalize(x, dim=-1), X)
program("cosine_similarity", lambda x, y: F.cosine_similarity(x, y, dim=-1), X, Y)
program("cdist", lambda x, y: torch.cdist(x, y), X, rand(2, 5, 4))
program("cross", lambda x, y: torch.linalg.cross(x, y, dim=1), X, Y)
program("tril_triu", lambda x: (torch.tril(x, -1), torch.triu(x, 1)), rand(4, 5))
program("diagonal", lambda x: torch.diagonal(x, 1, 0, 1), rand(4, 5))
program("diag_embed", lambda x: torch.diag_embed(x), rand(2, 3))

# ---- convolutions, pooling, resizing
for d, shape in ((1, (2, 4, 11)), (2, (2, 4, 9, 10)), (3, (1, 4, 6, 7, 5))):
    conv = getattr(nn, f"Conv{d}d")
    program(f"conv{d}d", conv(4, 6, 3), rand(*shape))
    program(f"conv{d}d_options", conv(4, 6, 3, stride=2, padding=2, dilation=2, groups=2, bias=False), rand(*shape))  # fmt: skip
    program(f"conv{d}d_same", conv(4, 6, 3, padding="same"), rand(*shape))
    transposed = getattr(nn, f"ConvTranspose{d}d")
    program(f"conv_transpose{d}d", transposed(4, 6, 3), rand(*shape))
    program(f"conv_transpose{d}d_options", transposed(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2), rand(*shape))  # fmt: skip
    program(f"max_pool{d}d", getattr(nn, f"MaxPool{d}d")(2), rand(*shape))
    program(
        f"max_pool{d}d_options", getattr(nn, f"MaxPool{d}d")(3, 2, 1, ceil_mode=True), rand(*shape)
    )
    program(f"avg_pool{d}d", getattr(nn, f"AvgPool{d}d")(2), rand(*shape))
    program(f"avg_pool{d}d_options", getattr(nn, f"AvgPool{d}d")(3, 2, 1, ceil_mode=True, count_include_pad=False), rand(*shape))  # fmt: skip
    program(
        f"avg_pool{d}d_ceil", getattr(nn, f"AvgPool{d}d")(5, 3, 2, ceil_mode=True), rand(*shape)
    )
    program(f"adaptive_avg_pool{d}d", getattr(nn, f"AdaptiveAvgPool{d}d")(3), rand(*shape))
    program(f"adaptive_avg_pool{d}d_one", getattr(nn, f"AdaptiveAvgPool{d}d")(1), rand(*shape))
    program(f"adaptive_max_pool{d}d", getattr(nn, f"AdaptiveMaxPool{d}d")(2), rand(*shape)[..., :4])
    program(f"batch_norm{d}d", getattr(nn, f"BatchNorm{d}d")(4), rand(*shape))
    program(f"instance_norm{d}d", getattr(nn, f"InstanceNorm{d}d")(4, affine=True), rand(*shape))
program("max_pool_dilated", nn.MaxPool2d(2, 1, dilation=2), IMAGE)
program("max_pool_indices", lambda x: F.max_pool2d(x, 2, return_indices=True), IMAGE)
program("lp_pool", lambda x: F.lp_pool2d(x, 2.0, 2), IMAGE)
program("conv_no_batch", nn.Conv2d(3, 4, 3), IMAGE[0])
for mode in ("nearest", "bilinear", "bicubic"):
    options = {} if mode == "nearest" else {"align_corners": False}
    program(f"interpolate_{mode}", lambda x, m=mode, o=options: F.interpolate(x, scale_factor=2, mode=m, **o), IMAGE)  # fmt: skip
    program(f"interpolate_{mode}_size", lambda x, m=mode, o=options: F.interpolate(x, size=(7, 17), mode=m, **o), IMAGE)  # fmt: skip
program("interpolate_aligned", lambda x: F.interpolate(x, size=(15, 20), mode="bilinear", align_corners=True), IMAGE)  # fmt: skip
program("interpolate_scale", lambda x: F.interpolate(x, scale_factor=1.5, mode="bilinear"), IMAGE)
program("interpolate_linear", lambda x: F.interpolate(x, scale_factor=2, mode="linear"), X)
program("interpolate_nearest1d", lambda x: F.interpolate(x, scale_factor=2), X)
program("interpolate_antialias", lambda x: F.interpolate(x, size=(5, 6), mode="bilinear", antialias=True), IMAGE)  # fmt: skip
program("pixel_shuffle", lambda x: F.pixel_shuffle(x, 2), rand(2, 8, 3, 4))
program("pixel_unshuffle", lambda x: F.pixel_unshuffle(x, 2), rand(2, 3, 4, 6))
program("channel_shuffle", lambda x: F.channel_shuffle(x, 2), rand(2, 4, 3, 4))
program("grid_sample_3d", lambda x, g: F.grid_sample(x, g, align_corners=True), rand(2, 3, 4, 5, 6), rand(2, 2, 3, 4, 3, low=-1.2, high=1.2))  # fmt: skip
program("grid_sample", lambda x, g: F.grid_sample(x, g, align_corners=False), IMAGE, rand(2, 5, 6, 2, low=-1.2, high=1.2))  # fmt: skip
program("affine_grid", lambda t: F.affine_grid(t, [2, 3, 5, 6], align_corners=False), rand(2, 2, 3))
program("unfold", lambda x: F.unfold(x, 3, padding=1, stride=2), IMAGE)
for mode in ("constant", "reflect", "replicate", "circular"):
    program(f"pad_{mode}", lambda x, m=mode: F.pad(x, (1, 2, 3, 1), mode=m), IMAGE)
program("pad_value", lambda x: F.pad(x, (1, 2), value=0.5), X)
program("pad_negative", lambda x: F.pad(x, (-1, 2)), X)
program("reflection_pad1d", nn.ReflectionPad1d(2), X)

# ---- normalisation, softmax, attention, embeddings, losses
program("softmax", lambda x: F.softmax(x, 1), X)
program("log_softmax", lambda x: F.log_softmax(x, -1), X)
program("softmin", lambda x: F.softmin(x, 1), X)
program("softmax_half_to_float", lambda x: F.softmax(x, -1, dtype=torch.float32), X.half())
program("layer_norm", nn.LayerNorm(4), X)
program("layer_norm_two_axes", nn.LayerNorm((3, 4)), X)
program("layer_norm_plain", nn.LayerNorm(4, elementwise_affine=False), X)
program("rms_norm", nn.RMSNorm(4), X)
program("group_norm", nn.GroupNorm(2, 4), rand(2, 4, 5, 6))
program("group_norm_plain", nn.GroupNorm(2, 4, affine=False), rand(2, 4, 5))
program("local_response_norm", nn.LocalResponseNorm(3), IMAGE)
program("dropout", nn.Dropout(0.5), X)
program("embedding", nn.Embedding(10, 4, padding_idx=1), ints(2, 3, high=10))
program("one_hot", lambda i: F.one_hot(i, 6), ints(2, 3, high=6))
Q, K, V = rand(2, 4, 5, 8), rand(2, 4, 7, 8), rand(2, 4, 7, 8, high=1.0)
program("attention", F.scaled_dot_product_attention, Q, K, V)
program("attention_causal", lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), Q)
program("attention_mask", F.scaled_dot_product_attention, Q, K, V, rand(2, 1, 5, 7))
program("attention_bool_mask", lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m), Q, K, V, torch.ones(5, 7).tril(2).bool())  # fmt: skip
program(
    "attention_scale", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=0.5), Q, K, V
)
program(
    "attention_grouped",
    lambda q, k: F.scaled_dot_product_attention(q, k, k, enable_gqa=True),
    Q,
    K[:, :2],
)
program("multihead_attention", nn.MultiheadAttention(8, 2, batch_first=True), *[rand(2, 5, 8)] * 3)
program(
    "transformer_encoder", nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), rand(2, 5, 8)
)
program("transformer_decoder", nn.TransformerDecoderLayer(8, 2, 16, batch_first=True), rand(2, 5, 8), rand(2, 3, 8))  # fmt: skip
program("lstm", nn.LSTM(4, 5, batch_first=True), X)
program("lstm_both_ways", nn.LSTM(4, 5, num_layers=2, bidirectional=True), X)
program("gru", nn.GRU(4, 5, batch_first=True), X)
program("gru_both_ways", nn.GRU(4, 5, num_layers=2, bidirectional=True), X)
program("rnn", nn.RNN(4, 5), X)
program("rnn_relu", nn.RNN(4, 5, nonlinearity="relu", bias=False), X)
program("lstm_states", nn.LSTM(4, 5), X, (rand(1, 3, 5), rand(1, 3, 5, high=1.0)))
program("lstm_cell", nn.LSTMCell(4, 5), rand(2, 4))
program("gru_cell", nn.GRUCell(4, 5), rand(2, 4))
program("cross_entropy", F.cross_entropy, rand(6, 5), ints(6))
program("cross_entropy_options", lambda x, t: F.cross_entropy(x, t, ignore_index=2, reduction="sum"), rand(6, 5), ints(6))  # fmt: skip
program("nll_loss", lambda x, t: F.nll_loss(F.log_softmax(x, 1), t), rand(6, 5), ints(6))
program("mse_loss", F.mse_loss, X, Y)
program("l1_loss", F.l1_loss, X, Y)
program("smooth_l1_loss", F.smooth_l1_loss, X, Y)
program(
    "bce_with_logits", lambda x, y: F.binary_cross_entropy_with_logits(x, torch.sigmoid(y)), X, Y
)
program(
    "kl_div", lambda x, y: F.kl_div(F.log_softmax(x, -1), F.softmax(y, -1), reduction="sum"), X, Y
)

# ---- reductions, sorting
for name in ("sum", "mean", "prod", "amax", "amin", "std", "var", "logsumexp"):
    program(f"{name}_dim", lambda x, n=name: getattr(torch, n)(x, dim=1), X)
    program(f"{name}_keepdim", lambda x, n=name: getattr(torch, n)(x, dim=-1, keepdim=True), X)
for name in (
    "sum",
    "mean",
    "prod",
    "std",
    "var",
    "max",
    "min",
    "median",
    "argmax",
    "argmin",
    "any",
    "all",
):
    program(f"{name}_all", getattr(torch, name), B if name in ("any", "all") else X)
program("sum_dims", lambda x: x.sum((0, 2)), X)
program("sum_type", lambda i: (i.sum(), i.sum(1, dtype=torch.float32), (i > 0).sum(-1)), I)
program("mean_dims", lambda x: x.mean((-1, -2), keepdim=True), X)
program("var_population", lambda x: torch.var(x, dim=1, correction=0), X)
program("var_mean", lambda x: torch.var_mean(x, dim=-1), X)
program("std_mean", lambda x: torch.std_mean(x, dim=-1), X)
program("max_dim", lambda x: torch.max(x, 1), X)
program("min_dim", lambda x: torch.min(x, 1, keepdim=True), X)
program("median_dim", lambda x: torch.median(x, 1), X)
NANS = torch.where(X > 1, math.nan, X)
program("orders_of_nans", lambda x: (*torch.cummax(x, 2), *torch.cummin(x, 2), torch.isin(x, x[1]), torch.sort(x, 1)[0], torch.topk(x, 2)[0]), NANS)  # fmt: skip
program(
    "median_of_nans",
    lambda x: (torch.median(x), torch.median(x[:1]), torch.median(x, 2, True)[0]),
    NANS,
)
program(
    "nanmedian",
    lambda x: (torch.nanmedian(x), *torch.nanmedian(x, 1), torch.nanmedian(x * math.nan)),
    NANS,
)
program("argmax_dim", lambda x: (x.argmax(1), x.argmax(-1, keepdim=True), x.argmin(0)), X)
program("any_dim", lambda b: (b.any(1), b.all(-1, keepdim=True), b.any((0, 1))), B)
program("cumsum", lambda x: torch.cumsum(x, 1), X)
program("cumsum_ints", lambda b: torch.cumsum(b, -1), B)
program("cumprod", lambda x: torch.cumprod(x, 1), X)
program("cummax", lambda x: torch.cummax(x, 1), X)
program("logcumsumexp", lambda x: torch.logcumsumexp(x, 1), X)
program("sort", lambda x: torch.sort(x, 1, descending=True), X)
program("argsort", lambda x: torch.argsort(x, -1), X)
program("topk", lambda x: torch.topk(x, 2, -1), X)
program("topk_smallest", lambda x: torch.topk(x, 2, 1, largest=False), X)
program("kthvalue", lambda x: torch.kthvalue(x, 2, 1), X)
program("count_nonzero", lambda i: torch.count_nonzero(i, 1), I)
program("diff", lambda x: torch.diff(x, dim=1), X)

# ---- shapes, movement, indexing
program("reshape", lambda x: x.reshape(2, -1), X)
program("view", lambda x: x.view(-1, 4), X)
program("view_as", lambda x, y: x.view_as(y), X, rand(6, 4))
program("flatten", lambda x: torch.flatten(x, 1), X)
program("unflatten", lambda x: torch.unflatten(x, 2, (2, 2)), X)
program("permute", lambda x: x.permute(2, 0, 1), X)
program("transpose", lambda x: x.transpose(-1, 0), X)
program("t", lambda x: x.t(), rand(3, 4))
program("movedim", lambda x: torch.movedim(x, 0, 2), X)
program("squeeze", lambda x: (x.squeeze(), x.squeeze(1), x.squeeze((1, 3))), rand(2, 1, 3, 1))
program("unsqueeze", lambda x: (x.unsqueeze(0), x.unsqueeze(-1), x[:, None]), X)
program("expand", lambda x: x.expand(2, 3, -1), rand(3, 1))
program("expand_as", lambda x, y: x.expand_as(y), rand(3, 1), X)
program("broadcast_to", lambda x: torch.broadcast_to(x, (2, 3, 4)), rand(3, 1))
program("repeat", lambda x: x.repeat(2, 1, 3), rand(3, 2))
program("repeat_interleave", lambda x: torch.repeat_interleave(x, 2, dim=1), X)
program("tile", lambda x: torch.tile(x, (2, 3)), X)
program("cat", lambda x, y: torch.cat([x, y], 1), X, Y)
program(
    "stack", lambda x, y: (torch.stack([x, y], 1), torch.hstack([x, y]), torch.vstack([x, y])), X, Y
)
program("split", lambda x: x.split(2, -1), X)
program("split_sizes", lambda x: x.split([1, 3], -1), X)
program("chunk", lambda x: x.chunk(2, 1), X)
program("tensor_split", lambda x: torch.tensor_split(x, 3, -1), X)
program("unbind", lambda x: x.unbind(1), X)
program("narrow", lambda x: x.narrow(1, 1, 2), X)
program("select", lambda x: (x[1], x[:, -1], x[..., 2]), X)
program("slice", lambda x: (x[:, 1:], x[:, :-1], x[..., ::2], x[-1:]), X)
program("flip", lambda x: torch.flip(x, (0, 2)), X)
program(
    "roll", lambda x: (torch.roll(x, 1, 1), torch.roll(x, (1, -1), (0, 2)), torch.roll(x, 5)), X
)
program("rot90", lambda x: torch.rot90(x, 1, (1, 2)), X)
program("gather", lambda x, i: torch.gather(x, 1, i), X, ints(2, 2, 4, high=3))
program("take_along_dim", lambda x, i: torch.take_along_dim(x, i, 1), X, ints(2, 2, 4, high=3))
program("index_select", lambda x, i: torch.index_select(x, 1, i), X, ints(4, high=3))
program("take", lambda x, i: torch.take(x, i), X, ints(4, high=24))
program("index", lambda x, i: x[i], X, ints(4, high=2))
program("index_second", lambda x, i: x[:, i], X, ints(4, high=3))
program("index_pair", lambda x, i, j: x[i, j], X, ints(4, high=2), ints(4, high=3))
program("index_negative", lambda x, i: x[i], X, ints(4, high=2) - 2)
program("index_apart", lambda x, i, j: x[i, :, j], X, ints(4, high=2), ints(4, high=4))
program("index_mask", lambda x, b: x[b], X, B)
program("masked_select", torch.masked_select, X, B)
program("nonzero", torch.nonzero, I)
program("scatter", lambda x, i, s: x.scatter(1, i, s), X, ints(2, 2, 4, high=3).argsort(1), Y)
program("scatter_value", lambda x, i: x.scatter(1, i, 0.5), X, ints(2, 2, 4, high=3))
program("scatter_add", lambda x, i, s: x.scatter_add(1, i, s), X, ints(2, 2, 4, high=3), Y)
program(
    "scatter_reduce", lambda x, i, s: x.scatter_reduce(1, i, s, "amax"), X, ints(2, 2, 4, high=3), Y
)
program("index_put", lambda x, i, v: x.index_put((i,), v), X, torch.tensor([1, 0]), Y)
program(
    "index_put_add",
    lambda x, i, v: x.index_put((i,), v, accumulate=True),
    X,
    torch.tensor([1, 1]),
    Y,
)
program("index_add", lambda x, i, s: x.index_add(1, i, s), X, torch.tensor([0, 2, 0]), Y)
program("index_copy", lambda x, i, s: x.index_copy(1, i, s), X, torch.tensor([2, 0, 1]), Y)
program("index_fill", lambda x, i: x.index_fill(1, i, 0.5), X, torch.tensor([2, 0]))
program("slice_scatter", lambda x, y: torch.slice_scatter(x, y, 1, 0, 2), X, Y[:, :2])
program("select_scatter", lambda x, y: torch.select_scatter(x, y, 1, 0), X, Y[:, 0])
program("masked_scatter", lambda x, b, y: x.masked_scatter(b, y), X, B, Y)
program("meshgrid", lambda x, y: torch.meshgrid(x, y, indexing="ij"), rand(3), rand(4))
program("searchsorted", lambda x: torch.searchsorted(torch.tensor([-1.0, 0.0, 1.0]), x), X)
PAIRS = torch.tensor([[1, 1, 2, 2, 1], [3, 3, 3, 3, 3]])
program("unique_consecutive", lambda i: torch.unique_consecutive(i, True, True), PAIRS)
program("unique_consecutive_dim", lambda i: torch.unique_consecutive(i, True, True, dim=1), PAIRS)
program(
    "unique_consecutive_again",
    lambda i: (torch.unique_consecutive(i) * 2, torch.unique_consecutive(i)),
    PAIRS,
)
program("copies", lambda x: (torch.view_copy(x, [6, 4]), *torch.unbind_copy(x, 1), torch.permute_copy(x, [2, 0, 1]), torch.narrow_copy(x, 1, 0, 2)), X)  # fmt: skip
program("unique", lambda i: torch.unique(i), I)
program("bincount", lambda i: torch.bincount(i, minlength=8), ints(20, high=8))
program("as_strided", lambda x: torch.as_strided(x, (3, 4), (4, 1), 2), X)
program("avg_pool2d_ceil_divisor", nn.AvgPool2d(4, 3, 1, ceil_mode=True, divisor_override=5), IMAGE)
A = torch.eye(4) + rand(3, 4, 4, low=-0.4, high=0.4)
program("linalg_inv", torch.linalg.inv, A)
program("inverse", lambda x: x[0].inverse(), A[:, 1:, 1:].contiguous())
program("linalg_inv_pivots", torch.linalg.inv, torch.eye(4)[[2, 0, 3, 1]].repeat(2, 1, 1) * 2)
program("linalg_det", torch.linalg.det, rand(2, 3, 5, 5))
program("linalg_det_of_one", torch.linalg.det, rand(3, 1, 1))
program("linalg_slogdet", lambda x: tuple(torch.linalg.slogdet(x)), rand(6, 3, 3))
program("linalg_solve", torch.linalg.solve, A, rand(3, 4, 2))
program("linalg_solve_vectors", torch.linalg.solve, A, rand(3, 4))
program("linalg_solve_vector", torch.linalg.solve, A, rand(4))
program("linalg_solve_one", torch.linalg.solve, A[0], rand(5, 4, 3))
program(
    "linalg_solve_triangular",
    lambda a, b: torch.linalg.solve_triangular(a, b, upper=True),
    A,
    rand(4, 2),
)
program("linalg_solve_triangular_right", lambda a, b: torch.linalg.solve_triangular(a, b, upper=False, left=False, unitriangular=True), A, rand(3, 2, 4))  # fmt: skip
program("cholesky", lambda a: (torch.linalg.cholesky(a @ a.mT + torch.eye(4)), torch.linalg.cholesky(a @ a.mT + torch.eye(4), upper=True)), A)  # fmt: skip
program("cholesky_check", lambda a: tuple(torch.linalg.cholesky_ex(a @ a.mT + torch.eye(4))), A)
program("cholesky_of_one", torch.linalg.cholesky, rand(3, 1, 1, low=0.5))
program("qr", lambda a: (*torch.linalg.qr(a), *torch.linalg.qr(a[..., :2]), *torch.linalg.qr(a[..., :3, :], "complete"), *torch.linalg.qr(a[..., :2], "complete"), *torch.linalg.qr(a[..., :1, :]), torch.linalg.qr(a, "r")[1]), A)  # fmt: skip
program(
    "qr_of_zeros",
    lambda a: (
        *torch.linalg.qr(a.triu()),
        *torch.linalg.qr((a * 0)[0]),
        *torch.linalg.qr(-torch.eye(3) + 0 * a[0, 0, 0]),
    ),
    A,
)
program("linalg_solve_right", lambda a, b: torch.linalg.solve(a, b, left=False), A, rand(3, 2, 4))
program("avg_pool2d_of_integers", nn.AvgPool2d(3, 2, 1), ints(1, 2, 9, 9, low=-9, high=9))
program(
    "avg_pool2d_of_integers_divisor",
    nn.AvgPool2d(3, 1, 1, divisor_override=2),
    ints(1, 2, 9, 9, low=-9, high=9),
)
program("squeeze_of_no_axis", lambda x: x.squeeze(()), rand(1, 2, 1))
program("angle", lambda x: x.angle(), X)
program("angle_of_integers", lambda x: x.angle(), I)
program("addmv", lambda x, a, b: torch.addmv(x, a, b, beta=0.5, alpha=2), X[0, :, 0], X[0], Y[0, 0])
program("gather_of_none", lambda x, i: torch.gather(x, 1, i), X, ints(2, 0, 4))
program(
    "of_a_number",
    lambda x: (
        x.topk(1)[0],
        x.cummax(0)[0],
        x.cummin(0)[1],
        x.logsumexp(0),
        x.logcumsumexp(0),
        x.unfold(0, 1, 1),
        x.sum(-1),
        x.masked_select(x < 3),
        x.gather(0, torch.tensor([0, 0])),
        x.softmax(0),
        x.sort()[1],
        x.median(0)[0],
        x.kthvalue(1)[1],
        x.log_softmax(-1),
    ),
    X[0, 0, 0],
)
program("unfold_tensor", lambda x: x.unfold(2, 2, 1), X)
program("in_place", lambda x: (x + 0).add_(1).mul_(2).relu_(), X)
program("in_place_slice", lambda x: _assigned(x), X)
program("clone", lambda x: (x.clone(), x.detach(), x.contiguous()), X)

# ---- creation
program("full", lambda x: x + torch.full((3, 4), 2.5), X)
program("ones_zeros", lambda x: x + torch.ones(4) - torch.zeros(3, 1), X)
program("likes", lambda x: (torch.ones_like(x), torch.zeros_like(x), torch.full_like(x, 3.0)), X)
program("new_values", lambda x: (x.new_ones(2), x.new_zeros(3), x.new_full((2,), 4.0)), X)
program("arange", lambda x: x + torch.arange(4), X)
program("arange_step", lambda x: x + torch.arange(1.0, 3.0, 0.5), X)
program("linspace", lambda x: x + torch.linspace(0, 1, 4), X)
program("eye", lambda x: x @ torch.eye(4), X)
program("scalar_tensor", lambda x: x + torch.tensor(3.0), X)
program("tensor_constant", lambda x: x * torch.tensor([1.0, 2.0, 3.0, 4.0]), X)
program("hamming_window", lambda x: x * torch.hamming_window(4), X)
program("item", lambda x: x * x.sum(), X)


def _assigned(x: Any) -> Any:
    y = x.clone()
    y[:, 1:] = 0.5
    y[0] += 1.0
    y[..., -1] = x[..., 0]
    return y


class Function(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Any) -> Any:
        return self.function(*inputs)


def _assigned_complex(x: Any, y: Any) -> Any:
    x = x.clone()
    x[:, 0] = y.real[:, 1]
    x[1] = 3
    return x


def exported(function: Callable | nn.Module, inputs: tuple, **options: Any) -> Any:
    """The program of a function or module, ready for inference."""
    module = function if isinstance(function, nn.Module) else Function(function)
    return torch.export.export(module.eval(), inputs, **options)


class Branches(nn.Module):
    """One of two functions, as a value says."""

    def forward(self, x):
        return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))


program("cond", Branches(), X)
program("operators", lambda x, y: operator.neg(x) @ y.mT, X, Y)

# ---- bags, groups, scatter of means, other views
# fmt: off
BAGS, STARTS = ints(7, high=6), torch.tensor([0, 2, 2, 5])
for mode in ("sum", "mean", "max"):
    program(f"embedding_bag_{mode}", nn.EmbeddingBag(6, 4, mode=mode), BAGS, STARTS)
    program(f"embedding_bag_padding_{mode}", nn.EmbeddingBag(6, 4, mode=mode, padding_idx=1), BAGS, STARTS)
program("embedding_bag_rows", nn.EmbeddingBag(6, 4), ints(3, 4))
program("embedding_bag_weights", nn.EmbeddingBag(6, 4, mode="sum"), BAGS, STARTS, rand(7))
program("embedding_bag_last", nn.EmbeddingBag(6, 4, include_last_offset=True), BAGS, torch.tensor([0, 3, 7]))
program("scatter_mean", lambda x, i, s: x.scatter_reduce(0, i, s, "mean"), rand(5, 3), ints(7, 3), rand(7, 3))
program("scatter_mean_of_ints", lambda x, i, s: x.scatter_reduce(0, i, s, "mean", include_self=False), I[0], ints(3, 4, high=2), J[1])
program("index_reduce", lambda x, s: [x.index_reduce(0, torch.tensor([0, 2, 0]), s, how) for how in ("prod", "mean", "amax", "amin")], rand(5, 3), rand(3, 3))
program("repeat_interleave_tensor", lambda x, i: torch.repeat_interleave(x, i, dim=1), X, torch.tensor([2, 0, 3]))
program("histc", lambda x: (torch.histc(x, 5, -1, 1), torch.histc(x, 4), torch.histc(x * 0, 3)), X)
program("searchsorted_rows", lambda b, x: (torch.searchsorted(b, x), torch.searchsorted(b, x, right=True, out_int32=True)), X.sort()[0], Y)
program("searchsorted_sorter", lambda b, x: torch.searchsorted(b, x, sorter=b.argsort()), X[0, 0], Y)
program("sort_of_bools", lambda b: (b.sort(1)[0], b.argsort(stable=True, dim=0)), B)
program("any_of_bytes", lambda b: (b.any(), b.all(1), b.any(0, keepdim=True)), B.to(torch.uint8))
program("any_of_none", lambda x: ((x[:0] > 0).any(), (x[:0] > 0).all(), (x[:0] > 0).any(0)), X)
program("ldexp", lambda x, i: torch.ldexp(x, i), X, I)
program("int_mm", lambda a, b: torch._int_mm(a, b), ints(32, 16, low=-9, high=9, dtype=torch.int8), ints(16, 8, low=-9, high=9, dtype=torch.int8))
program("view_of_bytes", lambda x: (x.view(torch.int32), x.view(torch.int16), x.int().view(torch.float32) * 0), X)
program("adaptive_max_pool_one", lambda x: F.adaptive_max_pool2d(x, 1), IMAGE)
program("adaptive_max_pool_places", lambda x: (*F.adaptive_max_pool2d(x, (3, 4), return_indices=True), *F.adaptive_max_pool3d(x.round(), 2, return_indices=True)), IMAGE)
program("put", lambda x, y: (torch.put(x, torch.tensor([[5, -1], [0, 7]]), y[0, 0]), torch.put(x, torch.tensor([3, 3]), y[0, 0, :2], accumulate=True)), X, Y)
program("diagonal_scatter", lambda x, y: (torch.diagonal_scatter(x, y[:, 0, :2], 1, 2, 1), torch.as_strided_scatter(x, y[0, :2, :2], (2, 2), (5, 2), 1)), X, Y)
program("nonzero_static", lambda b: (torch.nonzero_static(b, size=40), torch.nonzero_static(b, size=2), torch.nonzero_static(b[0, 0], size=9, fill_value=7)), B)
program("mode", lambda i, x: (torch.mode(i, 1)[0], *torch.mode(x.round(), keepdim=True)), I, torch.tensor([[1.0, 2, 3, 2, 1], [0, 4, 4, 4, 0]]))
program("dist", lambda x, y: (torch.dist(x, y), torch.dist(x, y[0], 3), torch.dist(x, y, float("inf"))), X, Y)
program("gcd", lambda i, j: (torch.gcd(i, j), torch.lcm(i, j), torch.gcd(i.int(), j.int() * 12), torch.lcm(i.to(torch.int8), j.to(torch.int8))), ints(5, 6, low=-12, high=13), ints(5, 6, low=-12, high=13))
program("index_reduce_scalar", lambda x: torch.index_reduce(x[0, 0, 0], 0, torch.tensor([0]), x[0, 0, 1], "amax"), X)
program("native_norms", lambda x: (*torch.native_layer_norm(x, [10, 12], None, None, 1e-5), *torch.native_group_norm(x, None, None, 2, 3, 120, 3, 1e-5), *torch.native_layer_norm(x[0], [12], None, None, 1e-3)[1:]), IMAGE)

# ---- complex tensors between views as real ones
real, complex_of, Z, W = torch.view_as_real, torch.view_as_complex, rand(3, 4, 2), rand(3, 4, 2, low=0.5)
of_two = lambda f: lambda a, b: f(complex_of(a), complex_of(b))
program("complex_arithmetic", of_two(lambda x, y: [real(v) for v in (x * y, x / y, x + 2 * y, x - y * 1j, 1 / y, x @ y.mT, x * x.abs(), -x)]), Z, W)
program("complex_parts", of_two(lambda x, y: (x.real, y.imag, x.abs(), x.angle(), real(x.conj() * y), real(torch.complex(x.real, y.imag)))), Z, W)
program("complex_functions", of_two(lambda x, y: (real(x.exp()), real(y**2), real(x.square()), real(torch.polar(x.abs(), y.angle())))), Z, W)
program("complex_waves", of_two(lambda x, y: [real(v) for v in (x.log(), x.sqrt(), y.rsqrt(), x.sin(), x.cos(), x.sinh(), x.cosh(), x.tanh(), x.tan(), (x * 40).tanh(), (-y).sqrt(), x.sgn(), (x * 0).sgn())]), Z, W)
program("complex_products", of_two(lambda x, y: [real(v) for v in (torch.addmm(x[:, :3], x, y.mT, beta=0.5, alpha=2j), torch.mv(x, y[0]), torch.dot(x[0], y[0]), torch.vdot(x[0], y[1]), torch.outer(x[0], y[0]), x.cumsum(1), x.tril())]), Z, W)
program("products_of_real_ones", lambda a, b: (torch.dot(a[0, :, 0], b[0, :, 0]), torch.mv(a[..., 0], b[0, :, 0][[0, 1, 2, 3]]), torch.vdot(a[0, :, 0], b[1, :, 0]), a.sgn(), real(torch.mv(complex_of(a), complex_of(b)[0]))), Z, W)
program("complex_choice", of_two(lambda x, y: [real(torch.where(x.abs() > 1, x, v)) for v in (y, y.real, 2, y.real.int())] + [real(x.masked_fill(y.real > 1, 1j)), x == y, x != x.real, x.isfinite(), (x / 0).isnan(), torch.linalg.vector_norm(x, dim=1)]), Z, W)
program("complex_writes", of_two(lambda x, y: [real(v) for v in (torch.select_scatter(x, y[:, 1], 1, 0), torch.slice_scatter(x, y[:, 1:], 1, 1), x.index_put((torch.tensor([1, 0]),), y[:2]), _assigned_complex(x, y), torch.ones_like(x) * 2 + torch.full_like(y, 1 + 2j))]), Z, W)
program("complex_moves", of_two(lambda x, y: [real(v) for v in (torch.cat([x, y]), torch.stack([x, y]), x[:, 1:], x.T.reshape(-1), x.sum(0), x.unsqueeze(0).expand(2, 3, 4), x.to(torch.complex128), torch.where(x.abs() > 1, x, y), *x.split(2, 1))]), Z, W)
program("complex_constant", lambda x: real(complex_of(x) * torch.polar(torch.ones(4), torch.arange(4.0))), Z)
program("fft", lambda x: (real(torch.fft.fft(x)), real(torch.fft.ifft(x).resolve_conj()), real(torch.fft.fft2(x, norm="ortho"))), X)
program("rfft", lambda x: (real(torch.fft.rfft(x, dim=1)), real(torch.fft.rfftn(x)), torch.fft.rfft(x, n=7).abs()), X)
program("irfft", lambda x: [torch.fft.irfft(torch.fft.rfft(x, dim=d), n=n, dim=d) for d, n in ((1, 3), (2, 4), (2, 5))], X)
program("fft_of_many", lambda x: (torch.fft.fft(x).real, torch.fft.rfft(x).abs()), rand(1, 2310))
program("stft", lambda x: torch.stft(x, 16, 4, window=torch.hann_window(16), return_complex=True).abs(), rand(2, 64))
program("istft", lambda x: torch.istft(torch.stft(x, 16, 4, window=torch.hann_window(16), return_complex=True), 16, 4, window=torch.hann_window(16)), rand(2, 64))

# ---- quantised programs, with scales that no tie depends on
import torch.ao.quantization.fx._decomposed  # noqa: E402  registers the operators

Q, S8, SCALES = torch.ops.quantized_decomposed, torch.int8, torch.tensor([0.03, 0.11, 0.2])
program("quantize", lambda x: [Q.quantize_per_tensor(x, 0.0313, 3, low, high, dtype) for low, high, dtype in ((-128, 127, S8), (0, 127, torch.uint8))], X)
program("dequantize", lambda i: Q.dequantize_per_tensor(i, 0.0313, 3, -128, 127, S8), I.to(S8))
program("quantize_channels", lambda x: Q.quantize_per_channel(x, SCALES, torch.tensor([0, 3, -2]), 1, -128, 127, S8), X)
program("dequantize_channels", lambda i: Q.dequantize_per_channel(i, SCALES, torch.tensor([0, 3, -2]), 1, -128, 127, S8), I.to(S8))
program("choose_scale", lambda x: [Q.choose_qparams(x, low, high, 1e-5, dtype) for low, high, dtype in ((-128, 127, S8), (0, 255, torch.uint8))], X)
program("choose_symmetric_scale", lambda x: Q.choose_qparams_symmetric(x, -127, 127, 1e-5, S8), X)
program("quantize_by_tensors", lambda x: Q.quantize_per_tensor(x, *Q.choose_qparams(x, 0, 255, 1e-5, torch.uint8), 0, 255, torch.uint8).int() // 4, X)
program("fake_quantize", lambda x: (torch.fake_quantize_per_tensor_affine(x, 0.0313, 3, -20, 17), torch.fake_quantize_per_channel_affine(x, SCALES, torch.tensor([0, 3, -2], dtype=torch.int32), 1, -20, 17)), X)

# ---- attention that sees nothing
NO_ROW = torch.tensor([[1, 0, 1], [0, 0, 0], [1, 1, 1]]) > 0
program("attention_of_masked_rows", lambda q, m: (F.scaled_dot_product_attention(q, q, q, m), F.scaled_dot_product_attention(q, q, q, torch.zeros(3, 3).masked_fill(~m, float("-inf")))), rand(2, 4, 3, 8), NO_ROW)
program("attention_of_one_batch", lambda q, k: F.scaled_dot_product_attention(q, k[:1], k[:, :1]), rand(2, 4, 3, 8), rand(2, 4, 5, 8))
# fmt: on
