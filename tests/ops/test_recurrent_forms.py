# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers take other forms for other batches, numbers of threads and registers: all are right, a row's bits never change."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ops_references_recurrent import gru, lstm, rnn

import relaxvm
from relaxvm import relax
from relaxvm.relax import op

STEPS = 5
BATCHES = (1, 2, 3, 5, 8, 9, 12, 13, 17)
THREADS = (1, 2, 3, 8)
# name -> gates, width of a block, hidden size (no whole number of blocks), states
CELLS: dict[str, tuple[int, int, int, int]] = {
    "lstm": (4, 16, 72, 2),
    "gru": (3, 16, 72, 1),
    "gru, reset first": (3, 16, 72, 1),
    "rnn": (1, 64, 150, 1),
}


def layer(name: str, args: list[Any], lengths: Any, direction: str) -> Any:
    """The call of the operator, on variables."""
    keywords: dict[str, Any] = {"lengths": lengths, "direction": direction}
    if name.startswith("gru"):
        return op.rvm.gru(*args, **keywords, linear_before_reset=name == "gru")
    return op.rvm.lstm(*args, **keywords) if name == "lstm" else op.rvm.rnn(*args, **keywords)


def expected(name: str, args: list[np.ndarray], lengths: Any, direction: str) -> Any:
    wide = [a.astype(np.float64) for a in args]
    usual: tuple[Any, ...] = ((), (), 0.0, direction)
    if name.startswith("gru"):
        return gru(*wide, lengths, "Sigmoid Tanh", *usual, name == "gru")
    if name == "lstm":
        return lstm(*wide, lengths, None, "Sigmoid Tanh Tanh", *usual, False)
    return rnn(*wide, lengths, "Tanh", *usual)


def arrays(name: str, batch: int, directions: int) -> list[np.ndarray]:
    gates, width, hidden, states = CELLS[name]
    blocks = -(-hidden // width)
    rng = np.random.default_rng(batch)
    shapes = [(STEPS, batch, directions, blocks, gates, width)]
    shapes += [(directions, blocks, hidden, gates, width)]
    shapes += [(directions, batch, hidden)] * states
    shapes += [(directions, blocks, width)] if name.startswith("gru") else []
    scales = [1.0, 0.2, 1.0, 1.0]
    return [
        (rng.standard_normal(shape) * scale).astype(np.float32)
        for shape, scale in zip(shapes, scales, strict=False)
    ]


def compiled(name: str, like: list[np.ndarray], direction: str, known: bool, has_lengths: bool, target: str) -> Any:  # fmt: skip
    batch: Any = like[0].shape[1] if known else relaxvm.tirx.Var("n", "int64")
    axes = {0: 1, 2: 1} | ({3: 1} if name == "lstm" else {})
    params = []
    for i, array in enumerate(like):
        shape = [batch if axes.get(i) == axis else d for axis, d in enumerate(array.shape)]
        params.append(relax.Var(f"p{i}", relax.TensorType(shape, "float32")))
    lengths = relax.Var("lengths", relax.TensorType([batch], "int32")) if has_lengths else None
    bb = relax.BlockBuilder()
    with bb.function("main", params + ([lengths] if has_lengths else [])):
        with bb.dataflow():
            result = bb.emit_output(layer(name, params, lengths, direction))
        bb.emit_func_output(result)
    return relaxvm.compile(bb.get(), target=target)


def check(name: str, executable: Any, args: list[np.ndarray], lengths: Any, direction: str) -> None:
    want = expected(name, args, lengths, direction)
    given = [relaxvm.runtime.tensor(a) for a in args]
    given += [] if lengths is None else [relaxvm.runtime.tensor(lengths)]
    first: list[bytes] = []
    for threads in THREADS:
        vm = relax.VirtualMachine(executable, relaxvm.cpu(), num_threads=threads)
        results = [r.numpy() for r in vm["main"](*given)]
        for result, value in zip(results, want, strict=True):
            np.testing.assert_allclose(result, value, atol=2e-5)
        bits = [r.tobytes() for r in results]
        first = first or bits
        assert bits == first, f"{threads} threads"


@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=haswell"])
@pytest.mark.parametrize("has_lengths", [False, True], ids=["", "lengths"])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("name", CELLS)
def test_any_batch(name: str, direction: str, has_lengths: bool, target: str) -> None:
    directions = 2 if direction == "bidirectional" else 1
    executable = compiled(name, arrays(name, 1, directions), direction, False, has_lengths, target)
    for batch in BATCHES:
        rng = np.random.default_rng(batch)
        lengths = rng.integers(0, STEPS + 1, batch).astype("int32") if has_lengths else None
        check(name, executable, arrays(name, batch, directions), lengths, direction)


@pytest.mark.parametrize("batch", [1, 3, 8, 13])
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
@pytest.mark.parametrize("name", CELLS)
def test_known_batch(name: str, direction: str, batch: int) -> None:
    args = arrays(name, batch, 2 if direction == "bidirectional" else 1)
    executable = compiled(name, args, direction, True, False, "llvm")
    check(name, executable, args, None, direction)
