# SPDX-License-Identifier: Apache-2.0
"""Modules around one operator, and patterns that find them."""

from __future__ import annotations

import numpy as np
import pytest

import relaxvm
from relaxvm import relax
from relaxvm.relax import op
from relaxvm.relax.backend import patterns
from relaxvm.relax.testing import (
    get_relax_attention_module,
    get_relax_matmul_module,
    get_relax_stacked_attention_module,
)
from relaxvm.relax.transform import FuseOpsByPattern


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(3).uniform(-1, 1, shape).astype("float32")


def run(mod: relaxvm.IRModule, *args: np.ndarray) -> np.ndarray:
    vm = relax.VirtualMachine(relaxvm.compile(mod), relaxvm.cpu())
    return vm["main"](*[relaxvm.runtime.tensor(a) for a in args]).numpy()


def is_found(mod: relaxvm.IRModule, pattern: patterns.Annotated) -> bool:
    fused = FuseOpsByPattern([("test.found", *pattern)])(mod)
    return any("fused" in str(v.name_hint) for v in fused.get_global_vars())


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, bias: np.ndarray) -> np.ndarray:
    q, k, v = (t.transpose(0, 2, 1, 3) for t in (q, k, v))
    scores = q @ k.swapaxes(2, 3) / np.sqrt(q.shape[-1]) + bias
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return (weights / weights.sum(-1, keepdims=True) @ v).transpose(0, 2, 1, 3)


def test_matmul_with_all_steps() -> None:
    mod = get_relax_matmul_module(
        (4, 8),
        (8, 8),
        "float32",
        transposed_y=True,
        bias_shape=(8,),
        activation=op.nn.relu,
        residual_bin_op=op.multiply,
        residual_activation=op.tanh,
    )
    x, y, bias = numbers(4, 8), numbers(8, 8), numbers(8)
    expected = np.tanh(np.maximum(x @ y.T + bias, 0) * x)
    np.testing.assert_allclose(run(mod, x, y, bias), expected, rtol=1e-4, atol=1e-5)


def test_attention_with_a_bias() -> None:
    mod = get_relax_attention_module(*[(1, 6, 2, 8)] * 3, dtype="float32", bias_shape=(1, 2, 6, 6))
    x, bias = numbers(1, 6, 2, 8), numbers(1, 2, 6, 6)
    expected = attention(x, x, x, bias)
    np.testing.assert_allclose(run(mod, x, x, x, bias), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("way", ["split", "strided_slice"])
@pytest.mark.parametrize("layout", ["BS3NH", "SBN3H"])
def test_stacked_attention(way: str, layout: str) -> None:
    stacked = numbers(1, 6, 3, 2, 8)
    q, k, v = (stacked[:, :, i] for i in range(3))
    expected = attention(q, k, v, np.zeros((1, 2, 6, 6), "float32"))
    qkv = stacked.reshape(1, 6, 48)
    if layout == "SBN3H":
        qkv = stacked.transpose(1, 0, 3, 2, 4).reshape(6, 1, 2, 24)
        expected = expected.transpose(1, 0, 2, 3)
    mod = get_relax_stacked_attention_module(qkv, 1, 6, 2, 8, 8, way, layout=layout)
    np.testing.assert_allclose(run(mod, qkv), expected, rtol=1e-4, atol=1e-5)
    assert is_found(mod, patterns.make_stacked_attention_pattern(way, layout=layout))
    other = "strided_slice" if way == "split" else "split"
    assert not is_found(mod, patterns.make_stacked_attention_pattern(other, layout=layout))


def test_a_bias_that_is_reshaped_is_found_when_allowed() -> None:
    builder = relax.BlockBuilder()
    x, y = (relax.Var(n, relax.TensorType((4, 4), "float32")) for n in "xy")
    bias = relax.Var("bias", relax.TensorType((1, 4), "float32"))
    with builder.function("main", [x, y, bias]):
        with builder.dataflow():
            product = builder.emit(op.matmul(x, y))
            flat = builder.emit(op.reshape(bias, (4,)))
            out = builder.emit_output(op.add(product, flat))
        builder.emit_func_output(out)
    mod = builder.finalize()
    make = patterns.make_fused_bias_activation_pattern
    assert is_found(mod, make("relax.matmul", with_bias=True, allow_reshape=True))
    product = get_relax_matmul_module((4, 4), (4, 4), "float32", bias_shape=(4,))
    assert not is_found(product, make("relax.matmul", with_bias=True, allow_reshape=True))


def test_scaled_products_are_found() -> None:
    builder = relax.BlockBuilder()
    x, y = (relax.Var(n, relax.TensorType((4, 4), "float32")) for n in "xy")
    a, b = (relax.Var(n, relax.TensorType((1,), "float32")) for n in "ab")
    with builder.function("main", [x, y, a, b]):
        with builder.dataflow():
            product = builder.emit(op.matmul(x, y))
            factor = builder.emit(op.multiply(a, b))
            scaled = builder.emit(op.multiply(product, factor))
            out = builder.emit_output(op.astype(scaled, "float16"))
        builder.emit_func_output(out)
    mod = builder.finalize()
    assert is_found(mod, patterns.make_matmul_multiply_pattern())
    assert not is_found(mod, patterns.make_matmul_dequantize_pattern())


def test_unknown_ways_are_errors() -> None:
    with pytest.raises(ValueError, match="op is 'split' or 'strided_slice', not 'take'"):
        get_relax_stacked_attention_module(numbers(1, 6, 48), 1, 6, 2, 8, 8, "take")
    with pytest.raises(ValueError, match="layout is 'BS3NH' or 'SBN3H', not 'BNSH'"):
        patterns.make_stacked_attention_pattern("split", layout="BNSH")
