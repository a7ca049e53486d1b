# SPDX-License-Identifier: Apache-2.0
"""Tensors whose channels are put side by side one by one (ShuffleNet's shuffle behind a concat): by vectors."""

from __future__ import annotations

import numpy as np
import pytest

import relaxvm
from relaxvm import relax, tirx
from relaxvm.relax import op

RNG = np.random.default_rng(0)


def module(parts: int, channels: int, dtype: str, is_open: bool, first_of: int = 0) -> relaxvm.IRModule:  # fmt: skip
    """`first_of`: the first tensor is the first channels of one that has so many."""
    rows = tirx.Var("rows", "int64") if is_open else 7
    widths = [max(first_of, channels), *[channels] * (parts - 1)]
    xs = [relax.Var(f"x{i}", relax.TensorType([rows, w], dtype)) for i, w in enumerate(widths)]
    builder = relax.BlockBuilder()
    with builder.function("main", xs):
        with builder.dataflow():
            first = xs[0]
            if first_of > channels:
                first = builder.emit(op.strided_slice(first, axes=[1], begin=[0], end=[channels]))
            joined = builder.emit(op.concat([first, *xs[1:]], axis=1))
            apart = builder.emit(op.reshape(joined, [rows, parts, channels]))
            turned = builder.emit(op.permute_dims(apart, [0, 2, 1]))
            out = builder.emit_output(op.reshape(turned, [rows, parts * channels]))
        builder.emit_func_output(out)
    return builder.get()


@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=haswell", "llvm -mcpu=x86-64"])
@pytest.mark.parametrize("is_open", [False, True], ids=["known", "open"])
@pytest.mark.parametrize("dtype", ["float32", "uint8", "float16", "int64", "bool"])
@pytest.mark.parametrize(
    ("parts", "channels", "first_of"),
    [
        (2, 58, 0),
        (2, 116, 232),
        (2, 32, 0),
        (3, 33, 0),
        (5, 64, 0),
        (2, 5000, 0),
        (2, 4, 0),
        (2, 17, 40),
    ],
)
def test_values(
    parts: int, channels: int, first_of: int, dtype: str, is_open: bool, target: str
) -> None:
    built = relaxvm.compile(module(parts, channels, dtype, is_open, first_of), target)
    machine = relax.VirtualMachine(built, relaxvm.cpu())
    widths = [max(first_of, channels), *[channels] * (parts - 1)]
    xs = [RNG.integers(0, 2 if dtype == "bool" else 100, (7, w)).astype(dtype) for w in widths]
    got = machine["main"](*map(relaxvm.runtime.tensor, xs)).numpy()
    want = np.stack([x[:, :channels] for x in xs], axis=2).reshape(7, -1)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(("parts", "channels", "first_of"), [(2, 58, 0), (2, 116, 232), (3, 33, 0)])
def test_no_element_is_asked_where_it_comes_from(parts: int, channels: int, first_of: int) -> None:
    built = module(parts, channels, "float32", False, first_of)
    target = "llvm -mcpu=haswell"
    text = relaxvm.compile(built, target, stop_after="scheduled").script()
    assert "T.vectorized" in text and "T.if_then_else" not in text
