# SPDX-License-Identifier: Apache-2.0
"""Programs that check sizes before they start (two of which nobody could say whether they are equal) are scheduled like all
others."""

from __future__ import annotations

import re

import numpy as np
import pytest

import relaxvm
from relaxvm import relax
from relaxvm.relax import op

RNG = np.random.default_rng(0)
CHANNELS = 12
WEIGHTS = [RNG.standard_normal(CHANNELS).astype("float32") for _ in range(2)]


def module(make, rank: int) -> relaxvm.IRModule:
    """make(x, scale, bias): all sizes of x are unknown, scale and bias are constants."""
    sizes = [relaxvm.tirx.Var(name, "int64") for name in "nchw"[:rank]]
    x = relax.Var("x", relax.TensorType(sizes, "float32"))
    weights = [relax.const(w) for w in WEIGHTS]
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(make(x, *weights)))
    return builder.get()


def instance_norm(x, scale, bias):
    return op.nn.instance_norm(x, scale, bias, channel_axis=1, axes=[2, 3], epsilon=1e-5)


def group_norm(x, scale, bias):
    return op.nn.group_norm(x, scale, bias, num_groups=4, channel_axis=1, axes=[2, 3])


def normalised(x: np.ndarray, groups: int) -> np.ndarray:
    if x.size == 0:
        return x
    rows = x.astype("float64").reshape(len(x), groups, -1)
    centred = rows - rows.mean(-1, keepdims=True)
    y = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
    scale, bias = (w.reshape(1, -1, 1, 1) for w in WEIGHTS)
    return y.reshape(x.shape) * scale + bias


@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=haswell"])
@pytest.mark.parametrize("norm, groups", [(instance_norm, CHANNELS), (group_norm, 4)])
def test_values(norm, groups: int, target: str) -> None:
    vm = relaxvm.VirtualMachine(relaxvm.compile(module(norm, 4), target=target), relaxvm.cpu())
    for n, h, w in [(1, 1, 1), (2, 7, 7), (3, 5, 16), (2, 33, 31), (0, 4, 4), (2, 0, 3)]:
        x = RNG.standard_normal((n, CHANNELS, h, w)).astype("float32")
        results = []
        for threads in (1, 3):
            vm.set_num_threads(threads)
            results.append(vm["main"](relaxvm.runtime.tensor(x)).numpy())
        np.testing.assert_allclose(results[0], normalised(x, groups), rtol=2e-5, atol=2e-5)
        np.testing.assert_array_equal(*results)


@pytest.mark.parametrize("norm", [instance_norm, group_norm])
def test_they_have_vectors_and_the_check_stands_in_front(norm) -> None:
    text = relaxvm.compile(module(norm, 4), target="llvm", stop_after="scheduled").script()
    assert "T.vectorized" in text and "T.sblock" not in text
    check = re.search(r"assert \w+ == 12", text)
    assert check and check.start() < text.index("T.vectorized")


def test_other_sizes_are_an_error() -> None:
    vm = relaxvm.VirtualMachine(relaxvm.compile(module(instance_norm, 4)), relaxvm.cpu())
    with pytest.raises(ValueError, match="must be equal in the shapes of its arguments"):
        vm["main"](relaxvm.runtime.tensor(np.zeros((1, CHANNELS + 1, 2, 2), "float32")))


def test_a_convolution_packs_its_weights_behind_a_check() -> None:
    w = RNG.integers(-3, 4, (32, 32, 3, 3)).astype("float32")
    sizes = [relaxvm.tirx.Var(name, "int64") for name in "nchw"]
    x = relax.Var("x", relax.TensorType(sizes, "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(op.nn.conv2d(x, relax.const(w), padding=1))
        builder.emit_func_output(out)
    vm = relaxvm.VirtualMachine(relaxvm.compile(builder.get()), relaxvm.cpu())
    for n, height, width in [(1, 14, 14), (2, 5, 33), (1, 1, 1)]:
        data = RNG.integers(-3, 4, (n, 32, height, width)).astype("float32")
        padded = np.pad(data, ((0, 0), (0, 0), (1, 1), (1, 1)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
        want = np.einsum("nchwij,ocij->nohw", windows, w)
        got = vm["main"](relaxvm.runtime.tensor(data)).numpy()
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-2)
    with pytest.raises(ValueError, match="must be equal in the shapes"):
        vm["main"](relaxvm.runtime.tensor(np.zeros((1, 31, 4, 4), "float32")))
