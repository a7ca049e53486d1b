# SPDX-License-Identifier: Apache-2.0
"""Operators on 8-bit integers with zero points, beside ONNX Runtime: the result does not depend on how products are computed."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from relaxvm.inference import InferenceSession
from relaxvm.relax.frontend.onnx import from_onnx

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
    options = ort.SessionOptions()
    # Without it products of uint8 and int8 saturate on CPUs that have no dot products of bytes.
    options.add_session_config_entry("session.x64quantprecision", "1")
    want = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"]).run(None, feed)
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


@pytest.mark.parametrize("left,right", [("uint8", "int8"), ("uint8", "uint8"), ("int8", "int8")])
@pytest.mark.parametrize("zeros", [False, True])
def test_matmul_integer_of_two_inputs(left, right, zeros):
    """Also sums of unknown length, with and without a rest of a group."""
    names = {"uint8": "u8", "int8": "i8"}
    inputs = [("x", names[left], ["b", "m", "k"]), ("w", names[right], ["b", "k", "n"])]
    if zeros:
        inputs += [("xz", names[left], []), ("wz", names[right], [])]
    nodes = [node("MatMulInteger", [i[0] for i in inputs], ["y"])]
    data = model(nodes, inputs, [("y", "i32", ["b", "m", "n"])], {})
    for b, m, k, n in ((2, 7, 24, 20), (1, 5, 31, 33), (3, 1, 2, 8)):
        feed = {"x": ints(left, b, m, k), "w": ints(right, b, k, n)}
        if zeros:
            feed |= {"xz": np.array(ints(left, 1)[0]), "wz": np.array(ints(right, 1)[0])}
        compare(data, feed)


@pytest.mark.parametrize("activations", ["uint8", "int8"])
def test_products_of_two_quantized_inputs_in_a_batch(activations):
    """As the products of attention in a network that exporters quantize: integers are multiplied."""
    weights = {
        "s": np.float32(0.02), "z": np.array(7, activations), "t": np.float32(0.03),
        "y": np.array(-5 if activations == "int8" else 120, activations),
    }  # fmt: skip
    nodes = [
        node("QuantizeLinear", ["a", "s", "z"], ["aq"]),
        node("DequantizeLinear", ["aq", "s", "z"], ["ad"]),
        node("QuantizeLinear", ["b", "t", "y"], ["bq"]),
        node("DequantizeLinear", ["bq", "t", "y"], ["bd"]),
        node("MatMul", ["ad", "bd"], ["o"]),
    ]
    inputs = [("a", "f32", ["b", "h", "m", "k"]), ("b", "f32", ["b", "h", "k", 12])]
    data = model(nodes, inputs, [("o", "f32", ["b", "h", "m", 12])], weights)
    for b, h, m, k in ((1, 3, 9, 16), (2, 2, 6, 13)):
        feed = {
            "a": RNG.standard_normal((b, h, m, k), dtype="float32"),
            "b": RNG.standard_normal((b, h, k, 12), dtype="float32"),
        }
        compare(data, feed, atol=1e-4)
    text = from_onnx(onnx.load_from_string(data)).script()
    assert text.count("R.matmul") == text.count('out_dtype="int32"') == 1


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
        "mz": zero,
    }  # fmt: skip
    nodes = [
        node("QLinearConv", ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz", "b"], ["y"], pads=[1, 1, 1, 1]),
        node("QLinearMatMul", ["x", "xs", "xz", "m", "ws", "mz", "ys", "yz"], ["z"]),
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


# Channels, outputs, kernel, type of the data, of the weights, their zero points, attributes
CONVS = {
    "three channels": (3, 6, [3, 3], "uint8", "int8", 0, {"pads": [1, 1, 1, 1], "strides": [2, 2]}),
    "four channels, one tap": (4, 18, [1, 1], "uint8", "int8", 0, {}),
    "asymmetric": (8, 20, [3, 3], "uint8", "uint8", 101, {"pads": [1, 0, 2, 1]}),
    "asymmetric, one tap": (12, 7, [1, 1], "uint8", "uint8", 99, {"strides": [2, 1]}),
    "channels of their own": (5, 4, [3, 2], "uint8", "uint8", [3, 128, 250, 0], {"dilations": [2, 1]}),
    "signed data": (10, 9, [3, 3], "int8", "int8", [1, 0, -3, 4, 0, 0, 9, 0, -128], {"auto_pad": "SAME_UPPER"}),
    "depthwise": (6, 6, [3, 3], "uint8", "int8", 0, {"pads": [1, 1, 1, 1], "group": 6}),
    "depthwise, asymmetric": (20, 20, [5, 3], "int8", "uint8", 77, {"pads": [2, 1, 2, 1], "group": 20}),
    "two for each channel": (6, 12, [3, 3], "uint8", "uint8", [7] * 11 + [255], {"group": 6, "strides": [2, 2]}),
    "groups": (8, 6, [3, 3], "uint8", "uint8", 30, {"group": 2}),
    "one dimension": (3, 17, [5], "uint8", "uint8", 5, {"pads": [2, 2], "dilations": [1]}),
}  # fmt: skip


@pytest.mark.parametrize("case", CONVS)
@pytest.mark.parametrize("x_zero", ["zero", "least", "other", "computed"])
def test_conv_of_integers(case, x_zero):
    """Beside the float convolution of the differences, which is exact at these sizes."""
    ort = pytest.importorskip("onnxruntime")
    channels, outputs, kernel, left, right, zero, attrs = CONVS[case]
    x = ints(left, 2, channels, *[9, 8][: len(kernel)])
    w = ints(right, outputs, channels // attrs.get("group", 1), *kernel)
    xz = np.array({"zero": 0, "least": np.iinfo(left).min}.get(x_zero, 13), left)
    wz = np.array(zero, right)
    names = {"uint8": "u8", "int8": "i8"}
    spatial = [None] * len(kernel)
    computed = x_zero == "computed"
    data = model(
        [node("ConvInteger", ["x", "w", "xz", "wz"], ["y"], **attrs)],
        [("x", names[left], [None, channels, *spatial]), *([("xz", names[left], [])] if computed else [])],
        [("y", "i32", [None, outputs, *spatial])], {"w": w, "wz": wz} | ({} if computed else {"xz": xz}),
    )  # fmt: skip
    centred = w.astype("float32") - wz.astype("float32").reshape(-1, *[1] * (w.ndim - 1))
    real = model(
        [node("Conv", ["x", "w"], ["y"], **attrs)], [("x", "f32", [None, channels, *spatial])],
        [("y", "f32", [None, outputs, *spatial])], {"w": centred},
    )  # fmt: skip
    feed = {"x": x.astype("float32") - xz.astype("float32")}
    want = ort.InferenceSession(real, providers=["CPUExecutionProvider"]).run(None, feed)[0]
    got = InferenceSession(data, cache_dir="").run(None, {"x": x} | ({"xz": xz} if computed else {}))[0]  # fmt: skip
    np.testing.assert_array_equal(got, want.astype("int32"))


@pytest.mark.parametrize("depth", [3, 7, 30, 33])
@pytest.mark.parametrize("right", ["uint8", "int8"])
def test_depths_that_are_no_groups(depth, right):
    weights = {"w": ints(right, depth, 20), "xz": np.uint8(7), "wz": np.array(9, right)}
    data = model(
        [node("MatMulInteger", ["x", "w", "xz", "wz"], ["y"])],
        [("x", "u8", ["b", "n", depth])], [("y", "i32", ["b", "n", 20])], weights,
    )  # fmt: skip
    compare(data, {"x": ints("uint8", 2, 5, depth)})


@pytest.mark.parametrize("activations", ["uint8", "int8"])
@pytest.mark.parametrize("weight", ["uint8", "int8"])
def test_networks_between_dequantize_and_quantize(activations, weight):
    """A first layer of three channels, a depthwise one and one of single taps, each quantized behind it."""
    weights, nodes, x = {}, [], "d0"
    weights |= {"s0": np.float32(0.03), "z0": np.array(11, activations)}
    nodes += [node("QuantizeLinear", ["x", "s0", "z0"], ["q0"])]
    nodes += [node("DequantizeLinear", ["q0", "s0", "z0"], ["d0"])]
    layers = [
        ((10, 3, 3, 3), {"pads": [1, 1, 1, 1]}),
        ((10, 1, 3, 3), {"group": 10}),
        ((7, 10, 1, 1), {}),
    ]
    for i, (shape, attrs) in enumerate(layers, 1):
        weights |= {
            f"w{i}": ints(weight, *shape), f"ws{i}": np.float32(0.004), f"wz{i}": np.array(5, weight),
            f"b{i}": RNG.standard_normal(shape[0], dtype="float32"),
            f"s{i}": np.float32(0.05), f"z{i}": np.array(np.iinfo(activations).min, activations),
        }  # fmt: skip
        nodes += [
            node("DequantizeLinear", [f"w{i}", f"ws{i}", f"wz{i}"], [f"wd{i}"]),
            node("Conv", [x, f"wd{i}", f"b{i}"], [f"c{i}"], **attrs),
            node("QuantizeLinear", [f"c{i}", f"s{i}", f"z{i}"], [f"q{i}"]),
            node("DequantizeLinear", [f"q{i}", f"s{i}", f"z{i}"], [f"d{i}"]),
        ]
        x = f"d{i}"
    data = model(nodes, [("x", "f32", ["n", 3, "h", 8])], [(x, "f32", ["n", 7, "a", 6])], weights)
    # A step of one layer, which a half rounded the other way makes, reaches few of the next one's.
    compare(data, {"x": RNG.standard_normal((2, 3, 9, 8), dtype="float32")}, atol=0.101)


def test_channels_counted_while_running_meet_a_scale_for_each():
    weights = {"s": np.float32([0.1, 0.2, 0.3]), "z": np.int8([1, 2, 3])}
    nodes = [
        node("NonZero", ["c"], ["i"]),
        node("Cast", ["i"], ["x"], to=TensorProto.FLOAT),
        node("QuantizeLinear", ["x", "s", "z"], ["q"], axis=1),
        node("DequantizeLinear", ["q", "s", "z"], ["y"], axis=1),
    ]
    data = model(nodes, [("c", "f32", ["n"])], [("y", "f32", [1, "m"])], weights)
    compare(data, {"c": np.float32([0, 1, 2, 0, 0, 3])})


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_what_is_no_number_becomes_the_least_byte(dtype):
    small = {"uint8": "u8", "int8": "i8"}[dtype]
    zero = np.array(120 if dtype == "uint8" else -7, dtype)
    weights = {"s": np.float32(0.1), "z": zero}
    data = model(
        [node("QuantizeLinear", ["x", "s", "z"], ["q"]), node("DequantizeLinear", ["q", "s", "z"], ["y"])],
        [("x", "f32", ["n"])], [("q", small, ["n"]), ("y", "f32", ["n"])], weights,
    )  # fmt: skip
    odd = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e30, 0.35, 0.45], "float32")
    compare(data, {"x": np.resize(odd, 37)})


@pytest.mark.parametrize("zero", [0, -30])
def test_signed_bytes_that_are_read_as_bytes_and_as_numbers(zero):
    weights = {"s": np.float32(0.05), "z": np.int8(zero), "w": ints("int8", 8, 4, 3, 3) // 4,
               "ws": np.float32(0.01), "wz": np.int8(0), "t": np.float32(0.2)}  # fmt: skip
    data = model(
        [node("QuantizeLinear", ["x", "s", "z"], ["a"]), node("DequantizeLinear", ["a", "s", "z"], ["b"]),
         node("DequantizeLinear", ["w", "ws", "wz"], ["v"]), node("Conv", ["b", "v"], ["c"], pads=[1, 1, 1, 1]),
         node("QuantizeLinear", ["c", "t", "z"], ["d"]), node("DequantizeLinear", ["d", "t", "z"], ["e"]),
         node("Transpose", ["e"], ["f"], perm=[0, 2, 3, 1]), node("QuantizeLinear", ["f", "t", "z"], ["y"]),
         node("Cast", ["d"], ["i"], to=TensorProto.INT32)],
        [("x", "f32", ["n", 4, "h", "w"])],
        [("a", "i8", ["n", 4, "h", "w"]), ("y", "i8", ["n", "h", "w", 8]), ("i", "i32", ["n", 8, "h", "w"])], weights,
    )  # fmt: skip
    compare(data, {"x": RNG.standard_normal((2, 4, 9, 8)).astype("float32") * 3}, atol=1)
