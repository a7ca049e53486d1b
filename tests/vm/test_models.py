# SPDX-License-Identifier: Apache-2.0
"""Whole models as bytecode and as native code: the kernels are the same, so the results are equal to the last bit."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper, numpy_helper, parser

import relaxvm
from relaxvm.relax.frontend.onnx import from_onnx

RNG = np.random.default_rng(7)


def weights(*shape: int) -> np.ndarray:
    return (RNG.standard_normal(shape) / np.sqrt(np.prod(shape[1:]) + 1)).astype("float32")


# Name -> text, initializers, shapes of the inputs for several sizes.
MODELS: dict[str, tuple[str, dict[str, np.ndarray], list[list[tuple[int, ...]]]]] = {
    "convolutions": (
        """convolutions (float[N, 3, H, 16] x) => (float[N, 5] y) {
            a = Conv <pads = [1, 1, 1, 1]> (x, w1, b1)
            b = BatchNormalization (a, scale, shift, mean, var)
            c = Relu (b)
            d = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (c)
            e = Conv <pads = [1, 1, 1, 1], group = 8> (d, w2)
            f = Add (d, e)
            g = GlobalAveragePool (f)
            h = Flatten (g)
            i = Gemm <transB = 1> (h, w3, b3)
            y = Softmax (i)
        }""",
        {
            "w1": weights(8, 3, 3, 3),
            "b1": weights(8),
            "scale": np.ones(8, "float32"),
            "shift": weights(8),
            "mean": weights(8),
            "var": np.full(8, 0.5, "float32"),
            "w2": weights(8, 1, 3, 3),
            "w3": weights(5, 8),
            "b3": weights(5),
        },
        [[(1, 3, 8, 16)], [(3, 3, 12, 16)]],
    ),
    "attention": (
        """attention (float[S, 16] x) => (float[S, 16] y, float[S, S] p) {
            q = MatMul (x, wq)
            k = MatMul (x, wk)
            v = MatMul (x, wv)
            kt = Transpose <perm = [1, 0]> (k)
            s = MatMul (q, kt)
            p = Softmax (s)
            o = MatMul (p, v)
            r = Add (o, x)
            n = LayerNormalization (r, scale, shift)
            u = MatMul (n, w1)
            t = Tanh (u)
            m = MatMul (t, w2)
            y = Add (m, n)
        }""",
        {
            **{name: weights(16, 16) for name in ("wq", "wk", "wv")},
            "w1": weights(16, 32),
            "w2": weights(32, 16),
            "scale": np.ones(16, "float32"),
            "shift": weights(16),
        },
        [[(1, 16)], [(9, 16)], [(33, 16)]],
    ),
    "recurrent": (
        """recurrent (float[T, 2, 4] x) => (float[T, 1, 2, 3] y, float[1, 2, 3] h, float[1, 2, 3] c) {
            y, h, c = LSTM <hidden_size = 3> (x, w, r, b)
        }""",
        {"w": weights(1, 12, 4), "r": weights(1, 12, 3), "b": weights(1, 24)},
        [[(1, 2, 4)], [(6, 2, 4)]],
    ),
    "branches": (
        """branches (float[N] x) => (float[N] y) {
            total = ReduceSum <keepdims = 0> (x)
            is_positive = Greater (total, zero)
            y = If (is_positive) <
                then_branch = grow () => (float[N] a) { a = Mul (x, two) },
                else_branch = flip () => (float[N] b) { c = Neg (x)  b = Sqrt (c) }
            >
        }""",
        {"zero": np.array(0, "float32"), "two": np.array(2, "float32")},
        [[(4,)], [(7,)]],
    ),
}


def model_of(name: str) -> relaxvm.IRModule:
    text, initializers, _ = MODELS[name]
    graph = parser.parse_graph(text)
    for key, array in initializers.items():
        graph.initializer.append(numpy_helper.from_array(array, key))
    opsets = [helper.make_opsetid("", 17)]
    return from_onnx(helper.make_model(graph, opset_imports=opsets, ir_version=8))


def flat(value: object) -> list[np.ndarray]:
    if isinstance(value, relaxvm.runtime.Tensor):
        return [value.numpy()]
    return [array for element in value for array in flat(element)]


@pytest.mark.parametrize("name", MODELS)
def test_a_model_gives_the_same_in_both_modes(name: str) -> None:
    machines = {
        mode: relaxvm.VirtualMachine(relaxvm.compile(model_of(name), exec_mode=mode), relaxvm.cpu())
        for mode in ("bytecode", "compiled")
    }
    for sign in (1, -1):
        for shapes in MODELS[name][2]:
            inputs = [
                sign * np.abs(RNG.standard_normal(shape)).astype("float32") for shape in shapes
            ]
            tensors = [relaxvm.runtime.tensor(array) for array in inputs]
            results = {mode: vm["main"](*tensors) for mode, vm in machines.items()}
            mine, others = flat(results["compiled"]), flat(results["bytecode"])
            assert len(mine) == len(others) > 0
            for a, b in zip(mine, others):
                assert np.isfinite(a).all()
                np.testing.assert_array_equal(a, b)
