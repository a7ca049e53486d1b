# SPDX-License-Identifier: Apache-2.0
"""Between DequantizeLinear and QuantizeLinear, operators that only move elements move the integers."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from relaxvm.inference import InferenceSession
from relaxvm.relax import transform
from relaxvm.relax.frontend.onnx import from_onnx

node = helper.make_node
RNG = np.random.default_rng(0)
NUMBERS = {
    "s": np.float32(0.03), "z": np.uint8(7), "t": np.float32(0.05), "w": np.uint8(130),
    "shape": np.array([2, -1]), "from": np.array([1]), "to": np.array([3]), "axis": np.array([1]),
    "scales": np.array([1, 1, 2, 2], "float32"), "seven": np.array([[0, 2], [1, 1]]),
}  # fmt: skip
MOVES = {
    "a pool": [node("MaxPool", ["d"], ["m"], kernel_shape=[3, 3], pads=[1, 1, 1, 1])],
    "a shape": [node("Reshape", ["d", "shape"], ["m"])],
    "an order": [node("Transpose", ["d"], ["m"], perm=[0, 2, 3, 1])],
    "a slice": [node("Slice", ["d", "from", "to", "axis"], ["m"])],
    "choices": [node("Gather", ["d", "seven"], ["m"], axis=2)],
    "a size": [node("Resize", ["d", "", "scales"], ["m"], mode="nearest")],
    "the same": [
        node("Identity", ["d"], ["e"]),
        node("Transpose", ["e"], ["m"], perm=[0, 2, 3, 1]),
    ],
    "parts": [
        node("Split", ["d"], ["p", "q"], axis=1, num_outputs=2),
        node("Concat", ["q", "p"], ["m"], axis=1),
    ],
    "two moves": [
        node("Flatten", ["d"], ["f"]),
        node("Unsqueeze", ["f", "axis"], ["m"]),
    ],
}


def model(moves, *, scale: str = "s", zero: str = "z"):
    """quantize(moves(dequantize(x)))"""
    nodes = [
        node("DequantizeLinear", ["x", "s", "z"], ["d"]),
        *moves,
        node("QuantizeLinear", ["m", scale, zero], ["y"]),
    ]
    rank = {"Gather": 5}.get(moves[-1].op_type)
    value = lambda name, shape: helper.make_tensor_value_info(name, TensorProto.UINT8, shape)
    graph = helper.make_graph(
        nodes, "g", [value("x", ["n", 4, 6, 5])], [value("y", rank and [None] * rank)],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in NUMBERS.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def feed() -> dict[str, np.ndarray]:
    return {"x": RNG.integers(0, 256, (2, 4, 6, 5)).astype("uint8")}


@pytest.mark.parametrize("moves", MOVES.values(), ids=MOVES)
def test_what_is_quantized_as_before_was_never_real(moves):
    module = transform.DeadCodeElimination()(from_onnx(model(moves)))
    # Factors of a size are numbers of their own.
    lines = [line for line in module["main"].script().splitlines() if "= R." in line]
    assert lines and not any("float32" in line.split("R.const")[0] for line in lines)


@pytest.mark.peer
@pytest.mark.parametrize("other", [False, True])
@pytest.mark.parametrize("moves", MOVES.values(), ids=MOVES)
def test_moved_integers_are_those_of_real_numbers(moves, other):
    ort = pytest.importorskip("onnxruntime")
    data = model(moves, **({"scale": "t", "zero": "w"} if other else {})).SerializeToString()
    x = feed()
    want = ort.InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, x)
    got = InferenceSession(data, cache_dir="").run(None, x)
    np.testing.assert_array_equal(got[0], want[0])
