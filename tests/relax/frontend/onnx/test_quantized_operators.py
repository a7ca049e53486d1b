# SPDX-License-Identifier: Apache-2.0
"""Operators on quantized tensors that are no products, beside ONNX Runtime, value for value."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper, numpy_helper

from relaxvm.inference import InferenceSession

pytestmark = pytest.mark.peer

MICROSOFT = "com.microsoft"


def agrees(node, weights, feed, dims=None) -> None:
    """One node; sizes of `dims` (name of an input to names of its sizes) are known while running only."""
    ort = pytest.importorskip("onnxruntime")
    of = helper.np_dtype_to_tensor_dtype
    dtype = feed["a"].dtype
    value = lambda k, v: helper.make_tensor_value_info(k, of(v.dtype), (dims or {}).get(k, v.shape))
    graph = helper.make_graph(
        [node], "g", [value(*i) for i in feed.items()],
        [helper.make_tensor_value_info("y", of(dtype), None)],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in weights.items()],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(MICROSOFT, 1)]
    data = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    (want,) = ort.InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, feed)
    (have,) = InferenceSession(data, cache_dir="").run(None, feed)
    assert have.dtype == want.dtype and have.shape == want.shape
    assert want.min() != want.max()
    np.testing.assert_array_equal(have, want)


def bytes_of(rng, dtype, *shape):
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max + 1, shape).astype(dtype)


BYTES = pytest.mark.parametrize("dtype", ["uint8", "int8"])


@BYTES
@pytest.mark.parametrize("right", [(4, 9, 33), (1,)])
@pytest.mark.parametrize("zeros", [(3, 1, 7), (0, 0, 1)])
def test_sums_that_end_between_two_steps(dtype, right, zeros):
    """Scales of powers of two: many sums are halves."""
    rng = np.random.default_rng(0)
    weights = {"sa": np.float32(1 / 32), "sb": np.float32(1 / 64), "sy": np.float32(1 / 16)}
    weights |= {k: np.array(z, dtype) for k, z in zip(("za", "zb", "zy"), zeros)}
    inputs = ["a", "sa", "za", "b", "sb", "zb", "sy", "zy"]
    feed = {"a": bytes_of(rng, dtype, 4, 9, 33), "b": bytes_of(rng, dtype, *right)}
    agrees(
        helper.make_node("QLinearAdd", inputs, ["y"], domain=MICROSOFT), weights, feed,
        {"a": ["n", 9, "m"], "b": ["n", 9, "m"] if len(right) > 1 else [1]},
    )  # fmt: skip


def test_a_choice_between_tensors_of_different_scales():
    rng = np.random.default_rng(1)
    zeros = {"za": np.uint8(3), "zb": np.uint8(100), "zy": np.uint8(60)}
    scales = {"sa": np.float32(0.02), "sb": np.float32(0.03), "sy": np.float32(0.05)}
    feed = {"a": bytes_of(rng, "uint8", 4, 5, 6), "b": bytes_of(rng, "uint8", 5, 6),
            "c": rng.integers(0, 2, (4, 1, 6)).astype(bool)}  # fmt: skip
    inputs = ["c", "a", "sa", "za", "b", "sb", "zb", "sy", "zy"]
    agrees(helper.make_node("QLinearWhere", inputs, ["y"], domain=MICROSOFT), zeros | scales, feed)


@BYTES
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("attributes", [
    {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]},
    {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "count_include_pad": 1},
    {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1},
    {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1, "count_include_pad": 1},
    {"kernel_shape": [2, 3], "channels_last": 1},
])  # fmt: skip
def test_average_pools(dtype, attributes, known):
    rng = np.random.default_rng(2)
    weights = {"sa": np.float32(0.03), "za": np.array(9, dtype),
               "sy": np.float32(0.017), "zy": np.array(30, dtype)}  # fmt: skip
    inputs = ["a", "sa", "za", "sy", "zy"]
    agrees(
        helper.make_node("QLinearAveragePool", inputs, ["y"], domain=MICROSOFT, **attributes),
        weights, {"a": bytes_of(rng, dtype, 2, 8, 11, 9)},
        None if known else {"a": ["n", 8, "h", 9]},
    )  # fmt: skip


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("group", [1, 4])
def test_convolutions_with_channels_last(group, known):
    """As ONNX Runtime writes optimised models; small weights, for it saturates sums of large ones."""
    rng = np.random.default_rng(3)
    weights = {"sa": np.float32(0.03), "za": np.uint8(9), "sw": np.float32(0.02), "zw": np.int8(0),
               "sy": np.float32(0.05), "zy": np.uint8(30),
               "w": rng.integers(-60, 61, (8, 4 // group, 3, 3)).astype("int8"),
               "b": rng.integers(-900, 900, 8).astype("int32")}  # fmt: skip
    inputs = ["a", "sa", "za", "w", "sw", "zw", "sy", "zy", "b"]
    agrees(
        helper.make_node("QLinearConv", inputs, ["y"], domain=MICROSOFT, channels_last=1, group=group,
                         pads=[1, 1, 1, 1], strides=[2, 1]),
        weights, {"a": bytes_of(rng, "uint8", 2, 11, 9, 4)},
        None if known else {"a": ["n", "h", 9, 4]},
    )  # fmt: skip


@pytest.mark.parametrize("axis,opset", [(1, 11), (2, 11), (-1, 13)])
def test_softmax_of_all_axes_behind_one(axis, opset):
    weights = {
        "sa": np.float32(0.05),
        "za": np.uint8(9),
        "sy": np.float32(1 / 256),
        "zy": np.uint8(0),
    }
    inputs = ["a", "sa", "za", "sy", "zy"]
    node = helper.make_node(
        "QLinearSoftmax", inputs, ["y"], domain=MICROSOFT, axis=axis, opset=opset
    )
    agrees(node, weights, {"a": bytes_of(np.random.default_rng(3), "uint8", 2, 3, 4, 5)})


@BYTES
@pytest.mark.parametrize("factors", [(2, 2), (2.3, 2), (1.5, 0.7), (4, 1)])
def test_linear_resizing_drops_the_fraction(dtype, factors):
    node = helper.make_node("Resize", ["a", "", "s"], ["y"], mode="linear")
    scales = {"s": np.array([1, 1, *factors], "float32")}
    # Multiples of 64: no result lies so near to an integer that the last bit of a position decides.
    values = np.random.default_rng(4).integers(0, 2, (2, 3, 7, 6)) * 64
    agrees(node, scales, {"a": values.astype(dtype)}, {"a": ["n", 3, "h", 6]})


def test_sums_that_no_float16_holds_are_scaled_first(make_model, run_model_once):
    text = "g (uint8[2, 768] a, float16 s, float16 t) => (float16[2, 4] y) { y = com.microsoft.MatMulIntegerToFloat(a, b, s, t) }"
    b = np.full((768, 4), 100, np.uint8)
    feed = {"a": np.full((2, 768), 200, np.uint8), "s": np.float16(0.01), "t": np.float16(0.001)}
    y = run_model_once(make_model(text, initializers={"b": b}))(feed)[0]
    np.testing.assert_allclose(y, np.full((2, 4), 153.6), rtol=3e-3)
