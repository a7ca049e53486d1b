# SPDX-License-Identifier: Apache-2.0
"""Shapes of patterns that several code generators share: the pattern, and its parts by name."""

from __future__ import annotations

from collections.abc import Mapping

from ..dpl.pattern import (
    DFPattern,
    GlobalVarPattern,
    TuplePattern,
    is_const,
    is_op,
    is_tuple_get_item,
    wildcard,
)

Annotated = tuple[DFPattern, Mapping[str, DFPattern]]


def _with_fused_bias_activation_pattern(
    out: DFPattern,
    annotations: dict[str, DFPattern],
    with_bias: bool = False,
    activation: str | None = None,
    allow_reshape: bool = False,
) -> Annotated:
    if with_bias:
        bias: DFPattern = wildcard()
        annotations["bias"] = bias
        if allow_reshape:
            bias = is_op("relax.reshape")(bias, wildcard())
        out = is_op("relax.add")(out, bias)
    if activation:
        out = is_op(activation)(out)
    return out, annotations


def make_fused_bias_activation_pattern(
    op_name: str,
    with_bias: bool = False,
    activation: str | None = None,
    allow_reshape: bool = False,
) -> Annotated:
    """`op_name` of two arguments with a bias, perhaps reshaped, and an activation behind it."""
    lhs, rhs = wildcard(), wildcard()
    out = is_op(op_name)(lhs, rhs)
    return _with_fused_bias_activation_pattern(
        out, {"lhs": lhs, "rhs": rhs, "root": out}, with_bias, activation, allow_reshape
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


def make_rms_norm_pattern() -> Annotated:
    """A call of a tensor program with a tensor and a weight: the check looks at what the program is."""
    parts: dict[str, DFPattern] = {"gv": GlobalVarPattern(), "inp": wildcard()}
    out = is_op("relax.call_tir")(parts["gv"], TuplePattern([parts["inp"], wildcard()]))
    return out, {**parts, "rms_norm": out}


def make_matmul_dequantize_pattern(transposed_rhs: bool = False) -> Annotated:
    """A matmul whose result is dequantized by constants; its second operand may be transposed right before it."""
    out, annotations = make_matmul_pattern(transposed_rhs=transposed_rhs)
    scale, zero_point = is_const(), is_const()
    out = is_op("relax.dequantize")(out, scale, zero_point)
    return out, {**annotations, "root": annotations["root"], "scale": scale, "zp": zero_point}


def make_matmul_multiply_pattern(transposed_rhs: bool = False) -> Annotated:
    """A matmul scaled by the product of two factors of one element, then cast."""
    out, annotations = make_matmul_pattern(transposed_rhs=transposed_rhs)
    first, second = wildcard().has_shape((1,)), wildcard().has_shape((1,))
    factor = is_op("relax.multiply")(first, second)
    out = is_op("relax.astype")(is_op("relax.multiply")(out, factor))
    return out, {**annotations, "scaleA": first, "scaleB": second}


def make_stacked_attention_pattern(
    start_op: str, with_bias: bool = False, layout: str = "BS3NH"
) -> Annotated:
    """An attention whose query, key and value are parts of one tensor: taken by "split" or "strided_slice", and
    reshaped (layout BS3NH) or permuted (SBN3H).  ValueError for another start or layout."""
    if start_op not in ("split", "strided_slice"):
        raise ValueError(f"start_op is 'split' or 'strided_slice', not {start_op!r}")
    if layout not in ("BS3NH", "SBN3H"):
        raise ValueError(f"layout is 'BS3NH' or 'SBN3H', not {layout!r}")
    stacked = wildcard()
    annotations: dict[str, DFPattern] = {"stacked_qkv": stacked}
    names = ("query", "key", "value")
    parts: list[DFPattern]
    if start_op == "split":
        annotations["split"] = pieces = is_op("relax.split")(stacked)
        parts = [is_tuple_get_item(pieces, i) for i in range(3)]
    else:
        parts = [is_op("relax.strided_slice")(stacked, varg_default_wildcard=True) for _ in names]
        annotations.update({f"strided_slice_{n}": p for n, p in zip(names, parts)})
    for i, name in enumerate(names):
        if layout == "BS3NH":
            shape = annotations[f"{name}_reshape_list"] = wildcard()
            parts[i] = is_op("relax.reshape")(parts[i], shape)
        else:
            parts[i] = annotations[f"{name[0]}_transpose"] = is_op("relax.permute_dims")(parts[i])
    if with_bias:
        annotations["bias"] = wildcard()
        parts.append(annotations["bias"])
    out: DFPattern = is_op("relax.nn.attention_bias" if with_bias else "relax.nn.attention")(*parts)
    annotations["attention"] = out
    return (out if layout == "BS3NH" else is_op("relax.permute_dims")(out)), annotations


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
