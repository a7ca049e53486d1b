# SPDX-License-Identifier: Apache-2.0
"""Products of which two axes of unknown lengths change places (a batch of sequences becomes a sequence of batches): the
longer one gives the rows of tiles, so that a batch of one is as fast as a batch of many.  The columns of a picture are taken to
be many, also where only the number of its rows is known."""

from __future__ import annotations

import re

import numpy as np
import pytest

import relaxvm
from relaxvm import relax
from relaxvm.relax import op

RNG = np.random.default_rng(0)


def module(w: np.ndarray, permuted: bool) -> relaxvm.IRModule:
    sizes = [relaxvm.tirx.Var(name, "int64") for name in "bt"]
    x = relax.Var("x", relax.TensorType([*sizes, w.shape[0]], "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            moved = builder.emit(op.permute_dims(x, [1, 0, 2])) if permuted else x
            out = builder.emit_output(op.matmul(moved, relax.const(w)))
        builder.emit_func_output(out)
    return builder.get()


@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=haswell"])
def test_values(target: str) -> None:
    w = RNG.integers(-3, 4, (24, 150)).astype("float32")
    vm = relaxvm.VirtualMachine(relaxvm.compile(module(w, True), target=target), relaxvm.cpu())
    for batch, steps in [(1, 40), (40, 1), (5, 3), (3, 17), (7, 7), (0, 4), (4, 0)]:
        x = RNG.integers(-3, 4, (batch, steps, 24)).astype("float32")
        for threads in (1, 3):
            vm.set_num_threads(threads)
            result = vm["main"](relaxvm.runtime.tensor(x)).numpy()
            np.testing.assert_array_equal(result, x.transpose(1, 0, 2) @ w)


def test_both_forms_are_there_where_either_axis_may_be_long() -> None:
    w = RNG.standard_normal((24, 150), dtype=np.float32)
    scheduled = [
        relaxvm.compile(module(w, permuted), target="llvm", stop_after="scheduled").script()
        for permuted in (False, True)
    ]
    assert [("if t <= b:" in text or "if b >= t:" in text) for text in scheduled] == [False, True]


def convolution(sizes: list, w: np.ndarray, **how: int) -> relaxvm.IRModule:
    """Of pictures of these sizes (a text: an unknown one), channels last."""
    sizes = [relaxvm.tirx.Var(s, "int64") if isinstance(s, str) else s for s in sizes]
    x = relax.Var("x", relax.TensorType([*sizes, w.shape[2]], "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            call = op.nn.conv2d(x, relax.const(w), **how, data_layout="NHWC", kernel_layout="HWIO")
            out = builder.emit_output(call)
        builder.emit_func_output(out)
    return builder.get()


def test_tiles_go_along_the_columns_of_a_picture() -> None:
    w = RNG.integers(-3, 4, (3, 3, 24, 32)).astype("float32")
    picture = convolution([1, 20, "t"], w, strides=2, padding=1)
    text = relaxvm.compile(picture, stop_after="scheduled").script()
    second = re.findall(r"left_1: T.float32 = \w+\[(.*)\]", text)
    assert second and all(index.endswith(" + 48") for index in second)  # two pixels further
    vm = relaxvm.VirtualMachine(relaxvm.compile(picture), relaxvm.cpu())
    for columns in (1, 2, 9, 40):
        x = RNG.integers(-3, 4, (1, 20, columns, 24)).astype("float32")
        padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))
        want = np.einsum("bhwcij,ijco->bhwo", windows[:, ::2, ::2], w)
        np.testing.assert_array_equal(vm["main"](relaxvm.runtime.tensor(x)).numpy(), want)


def test_tiles_go_along_a_small_picture_and_not_along_the_batch() -> None:
    w = RNG.integers(-3, 4, (3, 3, 24, 32)).astype("float32")
    pictures = convolution(["b", 14, 14], w, padding=12, dilation=12)  # windows reach farther
    text = relaxvm.compile(pictures, stop_after="scheduled").script()
    assert "left_1" in text and not re.search(
        r"left_1: T.float32 = .* \+ 4704\]", text
    )  # a picture further
    vm = relaxvm.VirtualMachine(relaxvm.compile(pictures), relaxvm.cpu())
    for batch in (1, 3):
        x = RNG.integers(-3, 4, (batch, 14, 14, 24)).astype("float32")
        padded = np.pad(x, ((0, 0), (12, 12), (12, 12), (0, 0)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, (25, 25), axis=(1, 2))
        want = np.einsum("bhwcij,ijco->bhwo", windows[..., ::12, ::12], w)
        np.testing.assert_array_equal(vm["main"](relaxvm.runtime.tensor(x)).numpy(), want)
