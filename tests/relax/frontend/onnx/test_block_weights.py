# SPDX-License-Identifier: Apache-2.0
"""Products with constant matrices that DequantizeLinear makes real: they stay small integers, and the result is exact."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from relaxvm.inference import InferenceSession
from relaxvm.relax.frontend.onnx import from_onnx

node = helper.make_node
LIMITS = {"INT2": (-2, 1), "UINT2": (0, 3), "INT4": (-8, 7), "UINT4": (0, 15), "INT8": (-128, 127), "UINT8": (0, 255)}  # fmt: skip


@dataclasses.dataclass
class Case:
    """A matrix [k, n] of integers, and how the model has it."""

    elem: str
    k: int
    n: int
    block: int = 0  # 0: a scale for each column
    zeros: bool = False
    form: str = "MatMul"  # or "Transpose", "Gemm", with the matrix stored as [n, k]
    dtype: str = "float32"
    single: bool = False  # one scale


CASES = {
    "4 bits": Case("INT4", 512, 160, block=32),
    "4 bits with zeros": Case("UINT4", 512, 150, block=128, zeros=True),
    "4 bits without zeros": Case("UINT4", 512, 160, block=32),
    "4 bits turned": Case("INT4", 256, 300, block=16, form="Transpose"),
    "4 bits of Gemm": Case("UINT4", 256, 300, block=64, zeros=True, form="Gemm"),
    "2 bits": Case("UINT2", 512, 160, block=64, zeros=True),
    "8 bits": Case("INT8", 512, 160, block=32),
    "a last block that is short": Case("INT4", 500, 160, block=32, zeros=True),
    "columns": Case("INT8", 300, 256),
    "columns with zeros": Case("UINT8", 512, 160, zeros=True),
    "columns of 4 bits": Case("INT4", 512, 160),
    "columns turned": Case("INT8", 512, 160, zeros=True, form="Transpose"),
    "columns of Gemm": Case("INT8", 512, 160, form="Gemm"),
    "one scale": Case("INT8", 512, 160, single=True, zeros=True),
    "float16": Case("INT4", 512, 160, block=32, dtype="float16"),
}


def built(case: Case, rng: np.random.Generator) -> tuple:
    """The model, and the matrix that its integers mean."""
    low, high = LIMITS[case.elem]
    blocks = 1 if case.single or not case.block else -(-case.k // case.block)
    columns = 1 if case.single else case.n
    values = rng.integers(low, high + 1, (case.k, case.n))
    scales = rng.uniform(0.01, 0.02, (blocks, columns)).astype(case.dtype)
    points = rng.integers(low, high + 1, (blocks, columns)) if case.zeros else None
    spread = lambda a: np.repeat(a, case.block or case.k, axis=0)[: case.k]
    real = (values - (0 if points is None else spread(points))) * spread(scales).astype("f8")

    turned = case.form != "MatMul"
    stored = lambda a: a.T if turned else a
    parameter = lambda a: stored(a) if case.block else a.reshape(() if case.single else -1)
    elem = getattr(TensorProto, case.elem)
    integers = lambda name, a: helper.make_tensor(name, elem, a.shape, a.ravel().tolist())
    weights = [
        integers("q", stored(values)),
        numpy_helper.from_array(np.ascontiguousarray(parameter(scales)), "s"),
    ]
    if points is not None:
        weights.append(integers("p", np.ascontiguousarray(parameter(points))))
    axis = int(turned) if case.block else 1 - int(turned)
    names = ["q", "s", *(["p"] if case.zeros else [])]
    nodes = [node("DequantizeLinear", names, ["w"], axis=axis, block_size=case.block)]
    if case.form == "Transpose":
        nodes += [node("Transpose", ["w"], ["v"]), node("MatMul", ["x", "v"], ["y"])]
    elif case.form == "Gemm":
        weights.append(numpy_helper.from_array(rng.random(case.n).astype(case.dtype), "b"))
        nodes.append(node("Gemm", ["x", "w", "b"], ["y"], transB=1))
        real = (real, numpy_helper.to_array(weights[-1]))
    else:
        nodes.append(node("MatMul", ["x", "w"], ["y"]))
    dtype = TensorProto.FLOAT if case.dtype == "float32" else TensorProto.FLOAT16
    lead = ["m"] if case.form == "Gemm" else ["b", "m"]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "g", [value("x", dtype, [*lead, "k"])], [value("y", dtype, [*lead, None])], weights
    )
    opset = 25 if "INT2" in case.elem else 21
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)]), real


@pytest.mark.parametrize("name", CASES)
def test_agrees(name: str) -> None:
    case, rng = CASES[name], np.random.default_rng(0)
    model, real = built(case, rng)
    assert "block_matmul" in from_onnx(model)["main"].script()
    session = InferenceSession(model.SerializeToString(), cache_dir="")
    matrix, bias = real if isinstance(real, tuple) else (real, 0)
    for rows in (1, 4, 7, 12, 29):
        lead = [rows] if case.form == "Gemm" else [1, rows]
        x = rng.standard_normal((*lead, case.k)).astype(case.dtype)
        (y,) = session.run(None, {"x": x})
        want = x.astype("f8") @ matrix + bias
        tolerance = 2e-6 if case.dtype == "float32" else 1e-3
        assert y.dtype == case.dtype
        np.testing.assert_allclose(y, want, rtol=0, atol=tolerance * np.abs(want).max())


def test_another_depth_is_refused() -> None:
    model, _ = built(CASES["4 bits"], np.random.default_rng(0))
    session = InferenceSession(model.SerializeToString(), cache_dir="")
    with pytest.raises(Exception, match="512"):
        session.run(None, {"x": np.zeros((1, 2, 511), "float32")})


@pytest.mark.parametrize(
    "why, case", [("small", Case("INT4", 64, 32, block=32)), ("blocks of columns", None)]
)
def test_other_matrices_become_real(why: str, case: Case | None) -> None:
    rng = np.random.default_rng(0)
    if case is None:  # stored as the product wants it, with a scale for each row
        model, real = built(Case("INT8", 300, 300, form="Transpose"), rng)
        del model.graph.node[1]
        model.graph.node[1].input[1] = "w"
        real = real.T
    else:
        model, real = built(case, rng)
    assert "block_matmul" not in from_onnx(model)["main"].script()
    x = rng.standard_normal((1, 3, real.shape[0])).astype("float32")
    (y,) = InferenceSession(model.SerializeToString(), cache_dir="").run(None, {"x": x})
    np.testing.assert_allclose(y, x.astype("f8") @ real, rtol=0, atol=1e-5 * np.abs(y).max())
