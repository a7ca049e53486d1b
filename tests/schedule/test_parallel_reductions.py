# SPDX-License-Identifier: Apache-2.0
"""Reductions whose results form one run are cut into blocks for threads: the blocks are run by the pool, and every
result comes out once, whatever the sizes."""

from __future__ import annotations

import numpy as np
import pytest

import relaxvm
from relaxvm import relax
from relaxvm.relax import op

RNG = np.random.default_rng(0)
REDUCTIONS = {
    "sum of rows": (lambda x: op.sum(x, -1), lambda x: x.sum(-1)),
    "sum of columns": (lambda x: op.sum(x, 0), lambda x: x.sum(0)),
    "greatest of rows": (lambda x: op.max(x, -1), lambda x: x.max(-1)),
    "place of the greatest of rows": (lambda x: op.argmax(x, -1), lambda x: x.argmax(-1)),
    "place of the least of columns": (lambda x: op.argmin(x, 0), lambda x: x.argmin(0)),
    "sum of all": (op.sum, np.sum),
    "least of all": (op.min, np.min),
    "place of the greatest of all": (op.argmax, np.argmax),
    "product of signs of columns": (
        lambda x: op.prod(op.sign(op.add(x, relax.const(0.5))), 0),
        lambda x: np.prod(np.sign(x + 0.5), 0),
    ),
    "root of the sum of squares": (
        lambda x: op.sqrt(op.sum(op.multiply(x, x), -1)),
        lambda x: np.sqrt((x * x).sum(-1)),
    ),
}


@pytest.mark.parametrize("shape", [(1000, 200), (7, 100_000), (100_001, 3), (300, 1025)])
@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("name", list(REDUCTIONS))
def test_blocks_cover_all_results(name: str, symbolic: bool, shape: tuple[int, int]) -> None:
    ours, theirs = REDUCTIONS[name]
    x = RNG.integers(-3, 4, shape).astype("float32")
    sizes = [relaxvm.tirx.Var(n, "int64") for n in "mn"] if symbolic else list(shape)
    builder = relax.BlockBuilder()
    param = relax.Var("x", relax.TensorType(sizes, "float32"))
    with builder.function("main", [param]):
        with builder.dataflow():
            out = builder.emit_output(ours(param))
        builder.emit_func_output(out)
    vm = relaxvm.VirtualMachine(relaxvm.compile(builder.get()), relaxvm.cpu())
    found = []
    for threads in (1, 3):
        vm.set_num_threads(threads)
        found.append(vm["main"](relaxvm.runtime.tensor(x)).numpy())
    np.testing.assert_allclose(found[0], theirs(x.astype("float64")), rtol=1e-6)
    np.testing.assert_array_equal(found[0], found[1])


@pytest.mark.parametrize("shape", [(1_000_003,), (5, 99_991), (99_991, 5), (300, 2, 701)])
def test_few_results_of_much_are_made_in_parts(shape: tuple[int, ...]) -> None:
    x = RNG.standard_normal(shape, dtype=np.float32)
    axes = list(range(1, len(shape))) if shape[0] == 5 else [a for a in range(len(shape)) if a != 1]
    builder = relax.BlockBuilder()
    param = relax.Var("x", relax.TensorType(list(shape), "float32"))
    with builder.function("main", [param]):
        with builder.dataflow():
            out = builder.emit_output(op.sum(op.exp(param), axes))
        builder.emit_func_output(out)
    executable = relaxvm.compile(builder.get())
    vm = relaxvm.VirtualMachine(executable, relaxvm.cpu())
    found = []
    for threads in (1, 2, 3):
        vm.set_num_threads(threads)
        found.append(vm["main"](relaxvm.runtime.tensor(x)).numpy())
    wanted = np.exp(x.astype("float64")).sum(tuple(axes))
    np.testing.assert_allclose(found[0], wanted, rtol=2e-6)
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])


@pytest.mark.parametrize("sizes", [(1, 1), (3, 5), (37, 40), (112, 113), (0, 7)])
@pytest.mark.parametrize("batch, channels", [(1, 16), (1, 240), (3, 40), (20, 48)])
@pytest.mark.parametrize("symbolic", ["nothing", "size", "all"])
def test_means_of_images_are_made_in_parts(
    symbolic: str, batch: int, channels: int, sizes: tuple[int, int]
) -> None:
    # Numbers of its own: how far float32 sums of 12656 are off depends on them, and which ones a shared generator gives
    # depends on the tests that ran before.
    x = np.random.default_rng(0).standard_normal((batch, *sizes, channels), dtype=np.float32)
    n, h, w = (relaxvm.tirx.Var(name, "int64") for name in "nhw")
    shape = list(x.shape)
    if symbolic != "nothing":
        shape[1:3] = [h, w]
    if symbolic == "all":
        shape[0] = n
    builder = relax.BlockBuilder()
    param = relax.Var("x", relax.TensorType(shape, "float32"))
    with builder.function("main", [param]):
        with builder.dataflow():
            results = [op.sum(param, [1, 2], keepdims=True), op.max(param, [1, 2])]
            out = builder.emit_output(relax.Tuple([builder.emit(r) for r in results]))
        builder.emit_func_output(out)
    vm = relaxvm.VirtualMachine(relaxvm.compile(builder.get()), relaxvm.cpu())
    found = []
    for threads in (1, 2, 3):
        vm.set_num_threads(threads)
        found.append([r.numpy() for r in vm["main"](relaxvm.runtime.tensor(x))])
    wide = x.astype("float64")
    np.testing.assert_allclose(found[0][0], wide.sum((1, 2), keepdims=True), rtol=2e-6, atol=1e-3)
    largest = wide.max((1, 2), initial=-np.inf)
    np.testing.assert_array_equal(found[0][1], largest)
    for other in found[1:]:
        np.testing.assert_array_equal(other[0], found[0][0])
        np.testing.assert_array_equal(other[1], found[0][1])
