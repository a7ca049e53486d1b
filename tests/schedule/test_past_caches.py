# SPDX-License-Identifier: Apache-2.0
"""Results of unknown size that go past the caches where they are large: the same code stores both ways."""

from __future__ import annotations

import numpy as np
import pytest

import relaxvm
from relaxvm import relax, tirx

op = relax.op
RNG = np.random.default_rng(0)
# Results above 8 and 16 MiB go past the caches of these.
TARGETS = ["llvm -mcpu=haswell", "llvm -mcpu=skylake-avx512", "llvm -mcpu=x86-64"]
WINDOWS = [(1, 300, 500, 32), (2, 290, 301, 32), (1, 9, 7, 32), (1, 2, 3, 32)]
SQUARES = [
    (1, 2100, 2096),
    (1, 2101, 2107),
    (2, 1503, 1600),
    (3, 37, 53),
    (1, 5, 640),
    (1, 16, 16),
    (2, 3, 2),
]


def sizes(*names: str) -> list:
    return [tirx.Var(name, "int64") for name in names]


def compiled(x: relax.Var, body, target: str, stop_after: str | None = None):
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(body(x))
        builder.emit_func_output(out)
    return relaxvm.compile(builder.get(), target=target, stop_after=stop_after)


def run(executable, x: np.ndarray) -> np.ndarray:
    return relax.VirtualMachine(executable, relaxvm.cpu())["main"](
        relaxvm.runtime.tensor(x)
    ).numpy()


@pytest.mark.parametrize("target", TARGETS)
def test_windows(target: str) -> None:
    w = RNG.standard_normal((3, 3, 1, 32), dtype="float32")
    bias = RNG.standard_normal(32, dtype="float32")

    def body(x):
        conv = op.nn.conv2d(
            x, relax.const(w), padding=[1] * 4, groups=32, data_layout="NHWC", kernel_layout="HWIO"
        )
        return op.nn.relu(op.add(conv, relax.const(bias)))

    executable = compiled(
        relax.Var("x", relax.TensorType([*sizes("n", "h", "w"), 32], "float32")), body, target
    )
    for shape in WINDOWS:
        x = RNG.standard_normal(shape, dtype="float32")
        padded, want = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0))), np.zeros(shape, "float32")
        for i in range(3):
            for j in range(3):
                want += padded[:, i : i + shape[1], j : j + shape[2]] * w[i, j, 0]
        np.testing.assert_allclose(
            run(executable, x), np.maximum(want + bias, 0), rtol=1e-4, atol=1e-4
        )


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["float32", "int16"])
def test_squares_that_are_turned_round(dtype: str, target: str) -> None:
    x = relax.Var("x", relax.TensorType(sizes("n", "a", "b"), dtype))
    executable = compiled(
        x, lambda x: op.multiply(op.permute_dims(x, [0, 2, 1]), relax.const(3, dtype)), target
    )
    for shape in SQUARES:
        data = RNG.integers(-99, 99, shape).astype(dtype)
        np.testing.assert_array_equal(
            run(executable, data), data.transpose(0, 2, 1) * np.array(3, dtype)
        )


def test_one_loop_for_small_and_large_results() -> None:
    """Blocks have another shape where results go past the caches, their code is the same; rows at the edge are one loop."""
    x = relax.Var("x", relax.TensorType(sizes("n", "a", "b"), "float32"))
    mod = compiled(
        x,
        lambda x: op.permute_dims(x, [0, 2, 1]),
        "llvm -mcpu=skylake-avx512",
        stop_after="scheduled",
    )
    text = mod.script()
    assert text.count("T.parallel") == 1 and text.count('"stream_if"') == 1
    assert text.count('"stores"') == 2 and text.count("T.Shuffle") == 2 * 64


@pytest.mark.parametrize("times", [3, 5])
@pytest.mark.parametrize("target", TARGETS)
def test_repeated_elements(target: str, times: int) -> None:
    """Several registers at once, whose stores are as aligned as one register's."""

    def body(x):
        return op.repeat(x, times, axis=1)

    executable = compiled(relax.Var("x", relax.TensorType([2000, 736], "float32")), body, target)
    x = RNG.standard_normal((2000, 736), dtype="float32")
    np.testing.assert_array_equal(run(executable, x), x.repeat(times, axis=1))
