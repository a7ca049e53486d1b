# SPDX-License-Identifier: Apache-2.0
"""DynamicQuantizeLSTM beside ONNX Runtime: what is quantized together decides about the ranges."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from relaxvm.inference import InferenceSession

pytestmark = pytest.mark.peer

STEPS, DEPTH, HIDDEN = 6, 10, 12
# Sequences, direction, type of the weights, scales for columns, further inputs and attributes
CASES = {
    "one sequence": (1, "forward", "int8", False, [], {}),
    "several sequences share a range": (3, "forward", "uint8", False, ["b"], {}),
    "states": (4, "bidirectional", "int8", False, ["b", "h", "c"], {}),
    "columns": (2, "reverse", "int8", True, ["b"], {}),
    "ends": (5, "bidirectional", "uint8", False, ["b", "l", "h", "c"], {}),
    "ends before the last step": (1, "bidirectional", "int8", False, ["b", "l"], {}),
    "peepholes": (3, "forward", "int8", False, ["b", "p"], {}),
    "clip": (2, "forward", "int8", False, ["b"], {"clip": 0.4}),
    "activations of directions": (
        2,
        "bidirectional",
        "int8",
        True,
        ["b", "h"],
        {"activations": ["Sigmoid", "Tanh", "Tanh", "Sigmoid", "Relu", "Tanh"]},
    ),
    "activations": (2, "forward", "int8", False, [], {"activations": ["Sigmoid", "Relu", "Tanh"]}),
}


def model(case: str, rng: np.random.Generator) -> bytes:
    batch, direction, dtype, columns, further, attrs = CASES[case]
    directions = 2 if direction == "bidirectional" else 1
    limits, parts = np.iinfo(dtype), (directions, 4 * HIDDEN) if columns else (directions,)
    real = lambda *shape: rng.standard_normal((directions, *shape), dtype="float32") * 0.4
    ints = lambda n: rng.integers(limits.min, limits.max + 1, (directions, n, 4 * HIDDEN))
    scales = lambda: (rng.random(parts) * 0.004 + 0.002).astype("float32")
    zeros = lambda: (
        np.zeros(parts, dtype) if dtype == "int8" else rng.integers(100, 150, parts).astype(dtype)
    )
    weights = {
        "w": ints(DEPTH).astype(dtype), "r": ints(HIDDEN).astype(dtype),
        "b": real(8 * HIDDEN), "l": rng.integers(1, STEPS - 1, batch).astype("int32"),
        "h": real(batch, HIDDEN), "c": real(batch, HIDDEN), "p": real(3 * HIDDEN),
        "ws": scales(), "wz": zeros(), "rs": scales(), "rz": zeros(),
    }  # fmt: skip
    optional = [name if name in further else "" for name in "blhcp"]
    inputs = ["x", "w", "r", *optional, "ws", "wz", "rs", "rz"]
    node = helper.make_node(
        "DynamicQuantizeLSTM", inputs, ["y", "yh", "yc"], domain="com.microsoft",
        direction=direction, hidden_size=HIDDEN, **attrs,
    )  # fmt: skip
    value = lambda name, shape: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
    sequences = batch if set(further) & set("lhc") else "sequences"
    graph = helper.make_graph(
        [node], "g", [value("x", ["steps", sequences, DEPTH])],
        [value(name, None) for name in ("y", "yh", "yc")],
        [numpy_helper.from_array(weights[name], name) for name in inputs[1:] if name],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 14), helper.make_opsetid("com.microsoft", 1)]
    made = helper.make_model(graph, opset_imports=opsets)
    made.ir_version = 8
    return made.SerializeToString()


@pytest.mark.parametrize("case", CASES)
def test_dynamic_quantize_lstm(case):
    ort = pytest.importorskip("onnxruntime")
    rng = np.random.default_rng(3)
    data, x = model(case, rng), rng.standard_normal((STEPS, CASES[case][0], DEPTH), dtype="float32")
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1  # more of them divide the sequences
    # Without it products of uint8 and int8 saturate on CPUs that have no dot products of bytes.
    options.add_session_config_entry("session.x64quantprecision", "1")
    peer = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    got = InferenceSession(data, cache_dir="").run(None, {"x": x})
    for mine, theirs in zip(got, peer.run(None, {"x": x}), strict=True):
        assert mine.dtype == theirs.dtype
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=2e-6)


def test_what_is_missing_is_said():
    rng = np.random.default_rng(3)
    wrong = onnx.load_from_string(model("one sequence", rng))
    wrong.graph.node[0].attribute.append(
        helper.make_attribute("activations", ["Sigmoid", "Softsign", "Tanh"])
    )
    with pytest.raises(Exception, match="activations Softsign are not supported"):
        InferenceSession(wrong.SerializeToString(), cache_dir="")
