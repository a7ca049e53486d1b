# SPDX-License-Identifier: Apache-2.0
"""Operators on 8-bit integers with zero points, beside ONNX Runtime: the result does not depend on how products are computed."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from relaxvm.inference import InferenceSession

pytestmark = pytest.mark.peer

RNG = np.random.default_rng(0)


def ints(dtype: str, *shape: int) -> np.ndarray:
    limits = np.iinfo(dtype)
    return RNG.integers(limits.min, limits.max + 1, shape).astype(dtype)


def model(nodes, inputs, outputs, weights) -> bytes:
    elem = {"u8": TensorProto.UINT8, "i8": TensorProto.INT8, "f32": TensorProto.FLOAT, "i32": TensorProto.INT32}  # fmt: skip
    value = lambda spec: helper.make_tensor_value_info(spec[0], elem[spec[1]], spec[2])
    initializers = [numpy_helper.from_array(np.asarray(v), k) for k, v in weights.items()]
    graph = helper.make_graph(
        nodes, "g", [value(i) for i in inputs], [value(o) for o in outputs], initializers
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    made.ir_version = 8
    return made.SerializeToString()


def compare(data: bytes, feed: dict[str, np.ndarray], atol: float = 0.0) -> None:
    ort = pytest.importorskip("onnxruntime")
    want = ort.InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, feed)
    got = InferenceSession(data, cache_dir="").run(None, feed)
    for x, y in zip(got, want):
        assert x.dtype == y.dtype
        np.testing.assert_allclose(x.astype("float64"), y.astype("float64"), rtol=1e-5, atol=atol)


node = helper.make_node


@pytest.mark.parametrize("left,right", [("u8", "i8"), ("u8", "u8"), ("i8", "i8")])
@pytest.mark.parametrize("zeros", ["none", "single", "columns"])
def test_matmul_integer(left, right, zeros):
    names = {"u8": "uint8", "i8": "int8"}
    weights = {"w": ints(names[right], 24, 20)}
    inputs = ["x", "w"]
    if zeros != "none":
        columns = () if zeros == "single" else (20,)
        weights |= {"xz": ints(names[left], 1)[0], "wz": ints(names[right], *columns)}
        inputs += ["xz", "wz"]
    data = model(
        [node("MatMulInteger", inputs, ["y"])],
        [("x", left, ["n", 24])], [("y", "i32", ["n", 20])], weights,
    )  # fmt: skip
    compare(data, {"x": ints(names[left], 7, 24)})


@pytest.mark.parametrize("right", ["uint8", "int8"])
@pytest.mark.parametrize("pads", [[0, 0, 0, 0], [1, 0, 2, 1]])
def test_conv_integer(right, pads):
    zero = 128 if right == "uint8" else 0
    weights = {"w": ints(right, 6, 4, 3, 3), "xz": np.uint8(77), "wz": np.array(zero, right)}
    data = model(
        [node("ConvInteger", ["x", "w", "xz", "wz"], ["y"], pads=pads, strides=[1, 2])],
        [("x", "u8", ["n", 4, "h", "w"])], [("y", "i32", ["n", 6, "a", "b"])], weights,
    )  # fmt: skip
    compare(data, {"x": ints("uint8", 2, 4, 9, 8)})


@pytest.mark.parametrize("right", ["uint8", "int8"])
def test_q_linear_operators(right):
    zero = np.array(120 if right == "uint8" else 0, right)
    weights = {
        "w": ints(right, 6, 4, 3, 3), "xz": np.uint8(77), "wz": zero, "xs": np.float32(0.02),
        "ws": np.float32(0.01), "ys": np.float32(0.1), "yz": np.uint8(99),
        "b": RNG.integers(-900, 900, 6).astype("int32"), "m": ints(right, 8, 5),
    }  # fmt: skip
    nodes = [
        node("QLinearConv", ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz", "b"], ["y"], pads=[1, 1, 1, 1]),
        node("QLinearMatMul", ["x", "xs", "xz", "m", "ws", "wz", "ys", "yz"], ["z"]),
    ]  # fmt: skip
    data = model(
        nodes, [("x", "u8", ["n", 4, "h", 8])],
        [("y", "u8", ["n", 6, "h", 8]), ("z", "u8", ["n", 4, "h", 5])], weights,
    )  # fmt: skip
    compare(data, {"x": ints("uint8", 2, 4, 5, 8)}, atol=1)  # halves may round either way


def test_dynamic_quantization():
    weights = {"w": ints("int8", 16, 12), "wz": np.int8(0), "ws": np.float32(0.02)}
    nodes = [
        node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        node("MatMulInteger", ["q", "w", "z", "wz"], ["i"]),
        node("Cast", ["i"], ["f"], to=TensorProto.FLOAT),
        node("Mul", ["s", "ws"], ["t"]),
        node("Mul", ["f", "t"], ["y"]),
    ]
    data = model(nodes, [("x", "f32", ["n", 16])], [("y", "f32", ["n", 12])], weights)
    compare(data, {"x": RNG.standard_normal((9, 16), dtype="float32")}, atol=1e-5)


@pytest.mark.parametrize("activations", ["uint8", "int8"])
@pytest.mark.parametrize("per_channel", [False, True])
def test_products_between_dequantize_and_quantize(activations, per_channel):
    """Conv, MatMul and Gemm as exporters quantize them."""
    scales = lambda n: (RNG.random(n) * 0.02 + 0.01).astype("float32")
    one = lambda values: values if per_channel else values[0]
    weights = {
        "s": np.float32(0.03), "z": np.array(11, activations),
        "cw": ints("int8", 8, 4, 3, 3), "cs": one(scales(8)), "cz": one(np.zeros(8, "int8")),
        "cb": RNG.standard_normal(8, dtype="float32"),
        "mw": ints("int8", 6, 12), "gs": one(scales(6)), "gz": one(np.zeros(6, "int8")),
        "ms": one(scales(12)), "mz": one(np.zeros(12, "int8")),
        "gw": ints("int8", 6, 12), "gb": RNG.standard_normal(6, dtype="float32"),
        "flat": np.array([-1, 12]),
    }  # fmt: skip
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        node("DequantizeLinear", ["cw", "cs", "cz"], ["cd"], axis=0),
        node("Conv", ["d", "cd", "cb"], ["c"], pads=[1, 1, 1, 1]),
        node("Relu", ["c"], ["y"]),
        node("Reshape", ["d", "flat"], ["rows"]),
        node("QuantizeLinear", ["rows", "s", "z"], ["rq"]),
        node("DequantizeLinear", ["rq", "s", "z"], ["r"]),
        node("DequantizeLinear", ["gw", "gs", "gz"], ["gd"], axis=0),
        node("Gemm", ["r", "gd", "gb"], ["g"], transB=1),
        node("DequantizeLinear", ["mw", "ms", "mz"], ["md"], axis=1),
        node("QuantizeLinear", ["g", "s", "z"], ["hq"]),
        node("DequantizeLinear", ["hq", "s", "z"], ["h"]),
        node("MatMul", ["h", "md"], ["o"]),
    ]
    data = model(
        nodes, [("x", "f32", ["n", 4, "h", 6])],
        [("y", "f32", ["n", 8, "h", 6]), ("g", "f32", ["a", 6]), ("o", "f32", ["a", 12])], weights,
    )  # fmt: skip
    # One step of a quantized value between the parts may differ.
    compare(data, {"x": RNG.standard_normal((2, 4, 5, 6), dtype="float32")}, atol=0.2)
