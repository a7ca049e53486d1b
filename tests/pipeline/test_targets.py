# SPDX-License-Identifier: Apache-2.0
"""Code for CPUs with fewer features than this machine's gives the same results."""

from __future__ import annotations

import platform
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import relax

rng = np.random.default_rng(0)
TARGETS = ["llvm", "llvm -mcpu=haswell", "llvm -mcpu=x86-64"]

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="names x86 CPUs")


def array(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape, dtype="float32")


def run(target: str, make: Any, *inputs: np.ndarray) -> np.ndarray:
    builder = relax.BlockBuilder()
    params = [
        relax.Var(f"x{i}", relax.TensorType(list(x.shape), "float32")) for i, x in enumerate(inputs)
    ]
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(make(*params))
        builder.emit_func_output(out)
    vm = relaxvm.VirtualMachine(relaxvm.compile(builder.get(), target=target), relaxvm.cpu())
    return vm["main"](*[relaxvm.runtime.tensor(x) for x in inputs]).numpy()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("shape", [(1, 100, 40), (7, 70, 33), (50, 200, 130)], ids=str)
def test_matmul(target: str, shape: tuple[int, int, int]):
    m, n, k = shape
    a, b = array(m, k), array(k, n)
    weight = relax.const(b)
    bias = relax.const(array(n))

    def layer(x: Any) -> Any:
        return relax.op.nn.relu(relax.op.add(relax.op.matmul(x, weight), bias))

    want = np.maximum(a @ b + bias.data.numpy(), 0)
    np.testing.assert_allclose(run(target, layer, a), want, rtol=1e-4, atol=1e-4)
    turned = lambda x, y: relax.op.matmul(x, relax.op.permute_dims(y))
    have = run(target, turned, a, np.ascontiguousarray(b.T))
    np.testing.assert_allclose(have, a @ b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("groups", [1, 2, 24])
@pytest.mark.parametrize("stride", [1, 2])
def test_convolution(target: str, groups: int, stride: int):
    x, w = array(1, 9, 11, 24), array(3, 3, 24 // groups, 24)

    def layer(data: Any) -> Any:
        return relax.op.nn.conv2d(
            data,
            relax.const(w),
            strides=[stride, stride],
            padding=[1, 1],
            groups=groups,
            data_layout="NHWC",
            kernel_layout="HWIO",
        )

    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    per_group = 24 // groups
    want = np.zeros((1, (9 - 1) // stride + 1, (11 - 1) // stride + 1, 24), "float32")
    for i in range(3):
        for j in range(3):
            window = padded[:, i : i + 9 : stride, j : j + 11 : stride]
            for g in range(groups):
                part = slice(g * per_group, (g + 1) * per_group)
                want[..., part] += window[..., part] @ w[i, j][:, part]
    np.testing.assert_allclose(run(target, layer, x), want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("target", TARGETS)
def test_rows_and_windows(target: str):
    x = array(1, 8, 9, 20)

    def layers(data: Any) -> Any:
        pooled = relax.op.nn.max_pool2d(
            data, pool_size=[3, 3], strides=[2, 2], padding=[1, 1], layout="NHWC"
        )
        return relax.op.nn.softmax(pooled, axis=-1)

    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=-np.inf)
    views = [padded[:, i : i + 8 : 2, j : j + 9 : 2] for i in range(3) for j in range(3)]
    top = np.maximum.reduce(views)
    want = np.exp(top - top.max(-1, keepdims=True))
    want /= want.sum(-1, keepdims=True)
    np.testing.assert_allclose(run(target, layers, x), want, rtol=1e-5, atol=1e-6)
