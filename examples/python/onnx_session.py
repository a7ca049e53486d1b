# SPDX-License-Identifier: Apache-2.0
"""Runs an ONNX model through the session that takes the place of onnxruntime.InferenceSession.

python examples/python/onnx_session.py          (needs the package onnx, here to make a small model)
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from relaxvm.inference import InferenceSession


def model() -> bytes:
    """softmax(relu(x @ w + b)) for a batch of any size."""
    rng = np.random.default_rng(0)
    w = numpy_helper.from_array(rng.standard_normal((8, 3), dtype="float32"), "w")
    b = numpy_helper.from_array(rng.standard_normal(3, dtype="float32"), "b")
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Softmax", ["r"], ["y"], axis=-1),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 3])
    graph = helper.make_graph(nodes, "classifier", [x], [y], [w, b])
    opset = [helper.make_opsetid("", 17)]
    made = helper.make_model(graph, opset_imports=opset, ir_version=8)
    onnx.checker.check_model(made)
    return made.SerializeToString()


def main() -> None:
    session = InferenceSession(model())
    for value in session.get_inputs():
        print("input", value.name, value.shape, value.type)
    for batch in (1, 5, 64):
        x = np.random.default_rng(batch).standard_normal((batch, 8), dtype="float32")
        (y,) = session.run(None, {"x": x})
        print(f"batch {batch}: {y.shape}, rows add up to 1: {np.allclose(y.sum(axis=1), 1)}")


if __name__ == "__main__":
    main()
