# SPDX-License-Identifier: Apache-2.0
"""Conversions that are left in whole compiled networks: of the image, of an image that comes out, and where channels move."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import relax, tirx
from relaxvm.relax import op

Value = relax.Var


class Net:
    """Layers with random weights, channels first, over images of any size."""

    def __init__(self, builder: relax.BlockBuilder) -> None:
        self.emit = builder.emit
        self.rng = np.random.default_rng(0)

    def weights(self, *shape: int) -> relax.Constant:
        return relax.const((self.rng.random(shape, dtype="float32") - 0.5) * 0.3)

    def conv(self, x: Value, out: int, size: int = 3, stride: int = 1, groups: int = 1) -> Value:
        channels = int(x.ty.shape[1])
        weight = self.weights(out, channels // groups, size, size)
        y = op.nn.conv2d(x, weight, strides=stride, padding=size // 2, groups=groups)
        return self.emit(op.add(self.emit(y), self.weights(1, out, 1, 1)))

    def block(self, x: Value, out: int, *args: int) -> Value:
        return self.emit(op.nn.relu(self.conv(x, out, *args)))

    def head(self, x: Value) -> Value:
        """Mean over the image, flattened, into 5 classes."""
        channels = int(x.ty.shape[1])
        pooled = self.emit(op.nn.adaptive_avg_pool2d(x, [1, 1]))
        flat = self.emit(op.reshape(pooled, [x.ty.shape[0], channels]))
        return self.emit(op.matmul(flat, self.weights(channels, 5)))

    def joined(self, *values: Value) -> Value:
        return self.emit(op.concat(list(values), axis=1))

    def doubled(self, x: Value) -> Value:
        size = [x.ty.shape[2] * 2, x.ty.shape[3] * 2]
        return self.emit(op.image.resize2d(x, relax.ShapeExpr(size), method="nearest_neighbor"))


def residual(net: Net, x: Value) -> Value:
    x = net.emit(op.nn.max_pool2d(net.block(x, 16, 7, 2), pool_size=3, strides=2, padding=1))
    for stride in (1, 2):
        y = net.conv(net.block(net.block(x, 8, 1), 8, 3, stride), 32, 1)
        x = net.emit(op.nn.relu(net.emit(op.add(y, net.conv(x, 32, 1, stride)))))
    return net.head(x)


def excited(net: Net, x: Value) -> Value:
    """Inverted bottlenecks with squeeze and excitation, as in MobileNetV3 and EfficientNet."""
    x = net.block(x, 8, 3, 2)
    for _ in range(2):
        y = net.block(net.block(x, 16, 1), 16, 3, 1, 16)
        s = net.emit(op.mean(y, [2, 3], keepdims=True))
        s = net.emit(op.sigmoid(net.conv(net.block(s, 4, 1), 16, 1)))
        y = net.conv(net.emit(op.multiply(y, s)), 8, 1)
        x = net.emit(op.add(x, y))
    return net.head(x)


def dense(net: Net, x: Value) -> Value:
    x = net.block(x, 8, 3, 2)
    for _ in range(3):
        x = net.joined(x, net.block(net.block(x, 12, 1), 4))
    x = net.emit(op.nn.avg_pool2d(net.block(x, 10, 1), pool_size=2, strides=2))
    return net.head(x)


def shuffled(net: Net, x: Value) -> Value:
    x = net.block(x, 16, 3, 2)
    for _ in range(2):
        n, c, h, w = x.ty.shape
        halves = net.emit(op.split(x, 2, axis=1))
        a, b = net.emit(halves[0]), net.emit(halves[1])
        x = net.joined(a, net.block(net.conv(net.block(b, 8, 1), 8, 3, 1, 8), 8, 1))
        x = net.emit(op.reshape(x, [n, 2, 8, h, w]))
        x = net.emit(op.permute_dims(x, [0, 2, 1, 3, 4]))
        x = net.emit(op.reshape(x, [n, 16, h, w]))
    return net.head(x)


def detector(net: Net, x: Value) -> Value:
    """A focus, pooling at several sizes, a neck that goes up and down, boxes as rows."""
    corners = []
    for a in (0, 1):
        for b in (0, 1):
            part = op.strided_slice(x, [2, 3], [a, b], [32, 32], [2, 2], assume_inbound=False)
            corners.append(net.emit(part))
    fine = net.block(net.joined(*corners), 8)
    coarse = net.block(fine, 16, 3, 2)
    pooled = [net.emit(op.nn.max_pool2d(coarse, pool_size=k, padding=k // 2)) for k in (3, 5)]
    coarse = net.block(net.joined(coarse, *pooled), 16, 1)
    fine = net.block(net.joined(net.doubled(coarse), fine), 8)
    rows = []
    for level in (fine, coarse):
        out = net.conv(level, 12, 1)
        n, c, h, w = out.ty.shape
        rows.append(net.emit(op.reshape(out, [n, c, h * w])))
    boxes = net.emit(op.permute_dims(net.emit(op.concat(rows, axis=2)), [0, 2, 1]))
    return net.emit(op.sigmoid(boxes))


def segmenter(net: Net, x: Value) -> Value:
    """A U-Net with transposed convolutions and batch norms; a map comes out."""
    skip = net.block(x, 8)
    y = net.block(net.emit(op.nn.max_pool2d(skip, pool_size=2, strides=2)), 16)
    y = net.emit(op.nn.conv2d_transpose(y, net.weights(16, 8, 2, 2), strides=2))
    ones = relax.const(np.ones(8, "float32"))
    y = net.emit(net.emit(op.nn.batch_norm(y, ones, ones, ones, ones, axis=1))[0])
    return net.conv(net.block(net.joined(y, skip), 8), 4, 1)


def sharpened(net: Net, x: Value) -> Value:
    """Super-resolution: channels become finer pixels of an image."""
    y = net.conv(net.block(x, 8), 12)
    n, _, h, w = y.ty.shape
    y = net.emit(op.reshape(y, [n, 3, 2, 2, h, w]))
    y = net.emit(op.permute_dims(y, [0, 1, 4, 2, 5, 3]))
    return net.emit(op.reshape(y, [n, 3, h * 2, w * 2]))


def tokenized(net: Net, x: Value) -> Value:
    """Patches as tokens, as in vision transformers."""
    y = net.conv(x, 8, 5, 4)
    n, c, h, w = y.ty.shape
    y = net.emit(op.permute_dims(net.emit(op.reshape(y, [n, c, h * w])), [0, 2, 1]))
    ones = relax.const(np.ones(8, "float32"))
    y = net.emit(op.nn.layer_norm(y, ones, ones, axes=[-1]))
    return net.emit(op.matmul(y, net.weights(8, 8)))


# The network, and its conversions beside that of the image that goes in.
NETWORKS: list[tuple[Callable[[Net, Any], Any], int]] = [
    (residual, 0),
    (excited, 0),
    (dense, 0),
    (shuffled, 2),
    (detector, 0),
    (segmenter, 1),
    (sharpened, 1),
    (tokenized, 0),
]


def module(network: Callable[[Net, Any], Any]) -> relaxvm.IRModule:
    n = tirx.Var("n", "int64")
    h, w = (32, 32) if network is detector else (tirx.Var(name, "int64") for name in "hw")
    x = relax.Var("x", relax.TensorType([n, 3, h, w], "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(network(Net(builder), x))
        builder.emit_func_output(out)
    return builder.get()


@pytest.mark.parametrize(("network", "conversions"), NETWORKS)
def test_what_is_left_to_convert(network: Callable[[Net, Any], Any], conversions: int) -> None:
    compiled = relaxvm.compile(module(network), stop_after="FuseTIR")
    calls = re.findall(r'call_tir\(I.GlobalVar\("(\w+)"\)', compiled["main"].script())
    assert any("conv2d" in name for name in calls)
    moves = [name for name in calls if 'T.sblock("permute_dims' in compiled[name].script()]
    assert len(moves) == 1 + conversions, moves


@pytest.mark.parametrize("network", [shuffled, detector, sharpened])
def test_the_same_comes_out(network: Callable[[Net, Any], Any]) -> None:
    mod = module(network)
    x = np.random.default_rng(1).random((2, 3, 32, 32), dtype="float32")
    results = []
    for pipeline in ("default", "zero"):
        vm = relax.VirtualMachine(relaxvm.compile(mod, relax_pipeline=pipeline), relaxvm.cpu())
        results.append(vm["main"](relaxvm.runtime.tensor(x)).numpy())
    np.testing.assert_allclose(results[0], results[1], rtol=1e-4, atol=1e-5)
