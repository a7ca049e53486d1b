# SPDX-License-Identifier: Apache-2.0
"""Softmax, norms and the like of rows shorter than a vector: as many rows as there are lanes go together, one in each lane."""

from __future__ import annotations

import numpy as np
import pytest

import relaxvm
from relaxvm import relax
from relaxvm.relax import op

RNG = np.random.default_rng(0)
TARGETS = ["llvm", "llvm -mcpu=haswell", "llvm -mcpu=x86-64"]


def compiled(make, shapes, dtype="float32", target="llvm", **how):
    builder = relax.BlockBuilder()
    params = [relax.Var(f"x{i}", relax.TensorType(s, dtype)) for i, s in enumerate(shapes)]
    with builder.function("main", params):
        builder.emit_func_output(builder.emit(make(*params)))
    return relaxvm.compile(builder.get(), target=target, **how)


def machine(*args, **how):
    return relaxvm.VirtualMachine(compiled(*args, **how), relaxvm.cpu())


def run(vm, *arrays):
    results = []
    for threads in (1, 3):
        vm.set_num_threads(threads)
        results.append(vm["main"](*map(relaxvm.runtime.tensor, arrays)).numpy())
    np.testing.assert_array_equal(*results)
    return results[0]


def softmax(x):
    e = np.exp(x.astype("float64") - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17])
def test_softmax_of_any_number_of_rows(length, target):
    n = relaxvm.tirx.Var("n", "int64")
    vm = machine(lambda x: op.nn.softmax(x, axis=-1), [(n, length)], target=target)
    for rows in (0, 1, 5, 16, 33, 200):
        x = RNG.standard_normal((rows, length)).astype("float32") * 3
        np.testing.assert_allclose(run(vm, x), softmax(x), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("dtype", ["float16", "float64"])
@pytest.mark.parametrize("length", [3, 7, 8])
def test_other_types(dtype, length):
    vm = machine(lambda x: op.nn.log_softmax(x, axis=-1), [(45, length)], dtype)
    x = RNG.standard_normal((45, length)).astype(dtype)
    tolerance = 2e-3 if dtype == "float16" else 1e-12
    np.testing.assert_allclose(run(vm, x), np.log(softmax(x)), rtol=tolerance, atol=tolerance)


def test_rows_past_the_end_are_not_touched_and_places_do_not_matter():
    vm = machine(lambda x: op.nn.softmax(x, axis=-1), [(37, 11)])
    x = np.tile(RNG.standard_normal((1, 11)).astype("float32"), (37, 1))
    got = run(vm, x)
    np.testing.assert_array_equal(got, np.tile(got[:1], (37, 1)))


@pytest.mark.parametrize("target", TARGETS)
def test_only_rows_that_memory_walks_evenly_go_together(target):
    """A mask for each batch: rows of one batch go together, batches do not."""
    make = lambda x, mask: op.nn.softmax(op.add(x, mask), axis=-1)
    vm = machine(make, [(3, 4, 21, 6), (3, 1, 1, 6)], target=target)
    x = RNG.standard_normal((3, 4, 21, 6)).astype("float32")
    mask = RNG.standard_normal((3, 1, 1, 6)).astype("float32")
    np.testing.assert_allclose(run(vm, x, mask), softmax(x + mask), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("keepdims", [False, True])
def test_argmax(target, keepdims):
    for ours, theirs in ((op.argmax, np.argmax), (op.argmin, np.argmin)):
        vm = machine(lambda x, f=ours: f(x, axis=-1, keepdims=keepdims), [(83, 5)], target=target)
        x = RNG.integers(0, 4, (83, 5)).astype("float32")
        x[7, 2] = np.nan
        np.testing.assert_array_equal(run(vm, x), theirs(x, axis=-1, keepdims=keepdims))


@pytest.mark.parametrize("target", TARGETS)
def test_norms_read_one_scale_for_all_rows(target):
    make = lambda x, scale, bias: op.nn.layer_norm(x, scale, bias, axes=[-1])
    vm = machine(make, [(2, 3, 19, 7), (7,), (7,)], target=target)
    x = RNG.standard_normal((2, 3, 19, 7)).astype("float32")
    scale, bias = RNG.standard_normal((2, 7)).astype("float32")
    centred = x - x.mean(-1, keepdims=True)
    want = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * scale + bias
    np.testing.assert_allclose(run(vm, x, scale, bias), want, rtol=1e-4, atol=1e-5)


def test_rows_are_turned_round():
    text = compiled(
        lambda x: op.nn.softmax(x, axis=-1), [(500, 7)], target="llvm", stop_after="scheduled"
    ).script()
    assert "T.Shuffle" in text
    text = compiled(
        lambda x: op.nn.softmax(x, axis=-1), [(500, 70)], target="llvm", stop_after="scheduled"
    ).script()
    assert "T.Shuffle" not in text


@pytest.mark.parametrize("target", TARGETS)
def test_places_that_a_row_makes_itself_are_read_one_row_after_the_other(target):
    """y[i, j] = e[i, floor(5 e[i, j])], with a quotient e that is computed once for both."""

    def picked(x, scale):
        e = builder.emit(op.divide(x, scale))
        wide = builder.emit(op.multiply(e, relax.const(5.0, "float32")))
        place = builder.emit(op.astype(builder.emit(op.floor(wide)), "int64"))
        return builder.emit_output(op.gather_elements(e, place, axis=1))

    builder = relax.BlockBuilder()
    n = relaxvm.tirx.Var("n", "int64")
    params = [
        relax.Var("x", relax.TensorType([n, 5], "float32")),
        relax.Var("s", relax.TensorType([5], "float32")),
    ]
    with builder.function("main", params):
        with builder.dataflow():
            out = picked(*params)
        builder.emit_func_output(out)
    vm = relaxvm.VirtualMachine(relaxvm.compile(builder.get(), target=target), relaxvm.cpu())
    scale = RNG.uniform(1, 2, 5).astype("float32")
    for rows in (1, 16, 39):
        x = (RNG.random((rows, 5)) * scale * 0.99).astype("float32")
        e = x / scale
        want = np.take_along_axis(e, np.floor(e * np.float32(5)).astype("int64"), 1)
        np.testing.assert_allclose(run(vm, x, scale), want, rtol=1e-6)
