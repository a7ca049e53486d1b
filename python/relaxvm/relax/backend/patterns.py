# SPDX-License-Identifier: Apache-2.0
"""Shapes of patterns that several code generators share: the pattern, and its parts by name."""

from __future__ import annotations

from collections.abc import Mapping

from ..dpl.pattern import DFPattern, is_op, wildcard

Annotated = tuple[DFPattern, Mapping[str, DFPattern]]


def _with_fused_bias_activation_pattern(
    out: DFPattern,
    annotations: dict[str, DFPattern],
    with_bias: bool = False,
    activation: str | None = None,
) -> Annotated:
    if with_bias:
        annotations["bias"] = wildcard()
        out = is_op("relax.add")(out, annotations["bias"])
    if activation:
        out = is_op(activation)(out)
    return out, annotations


def make_fused_bias_activation_pattern(
    op_name: str, with_bias: bool = False, activation: str | None = None
) -> Annotated:
    """`op_name` of two arguments with a bias and an activation behind it."""
    lhs, rhs = wildcard(), wildcard()
    out = is_op(op_name)(lhs, rhs)
    return _with_fused_bias_activation_pattern(
        out, {"lhs": lhs, "rhs": rhs, "root": out}, with_bias, activation
    )


def make_matmul_pattern(
    with_bias: bool = False, activation: str | None = None, transposed_rhs: bool = False
) -> Annotated:
    """A matmul; its second operand may be transposed right before it."""
    lhs, rhs = wildcard(), wildcard()
    annotations: dict[str, DFPattern] = {"lhs": lhs, "rhs": rhs}
    operand: DFPattern = rhs
    if transposed_rhs:
        operand = annotations["transpose"] = is_op("relax.permute_dims")(rhs)
    out = annotations["root"] = is_op("relax.matmul")(lhs, operand)
    return _with_fused_bias_activation_pattern(out, annotations, with_bias, activation)


def make_conv2d_pattern(with_bias: bool = False, activation: str | None = None) -> Annotated:
    """A conv2d, perhaps with a bias and an activation behind it."""
    data, weight = wildcard(), wildcard()
    out = is_op("relax.nn.conv2d")(data, weight)
    annotations: dict[str, DFPattern] = {"input": data, "weight": weight, "root": out}
    return _with_fused_bias_activation_pattern(out, annotations, with_bias, activation)


def make_attention_pattern(with_bias: bool = False) -> Annotated:
    """An attention of a query, a key and a value, perhaps with a bias."""
    annotations: dict[str, DFPattern] = {n: wildcard() for n in ("query", "key", "value")}
    if with_bias:
        annotations["bias"] = wildcard()
    name = "relax.nn.attention_bias" if with_bias else "relax.nn.attention"
    return is_op(name)(*annotations.values()), annotations


def make_layer_norm_pattern() -> Annotated:
    """A layer_norm of a tensor with gamma and beta."""
    return is_op("relax.nn.layer_norm")(wildcard(), wildcard(), wildcard()), {}


def make_residual_block_pattern(
    node_output: DFPattern | Annotated,
    binary_op: str = "relax.add",
    activation: str | None = None,
) -> Annotated:
    """What `node_output` gives, combined with a residual on either side."""
    annotations: dict[str, DFPattern] = {}
    if isinstance(node_output, tuple):
        node_output, parts = node_output
        annotations.update(parts)
    residual = annotations["residual"] = wildcard()
    op = is_op(binary_op)
    out: DFPattern = op(node_output, residual) | op(residual, node_output)
    if activation is not None:
        out = is_op(activation)(out)
    return out, annotations
