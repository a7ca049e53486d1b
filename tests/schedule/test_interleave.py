# SPDX-License-Identifier: Apache-2.0
"""Planes put together to pixels and taken apart: any number of channels, any size, with formulas around."""

from __future__ import annotations

import numpy as np
import pytest

import relaxvm
from relaxvm import relax

op = relax.op
RNG = np.random.default_rng(0)
TARGETS = ["llvm", "llvm -mcpu=haswell", "llvm -mcpu=x86-64"]
TO_PIXELS, TO_PLANES = [0, 2, 3, 1], [0, 3, 1, 2]


def values(shape, dtype):
    if np.dtype(dtype).kind == "f":
        return RNG.standard_normal(shape).astype(dtype)
    return RNG.integers(0, 100, shape).astype(dtype)


def module(make, args, shapes):
    bb = relax.BlockBuilder()
    params = [
        relax.Var(f"x{i}", relax.TensorType(s, str(a.dtype)))
        for i, (a, s) in enumerate(zip(args, shapes))
    ]
    with bb.function("main", params):
        with bb.dataflow():
            out = bb.emit_output(bb.emit(make(*params)))
        bb.emit_func_output(out)
    return bb.get()


def run(make, args, symbolic=False, target="llvm"):
    n, h, w = (relaxvm.tirx.Var(name, "int64") for name in "nhw")

    def unknown(shape):
        planes = shape[1] < 8
        return (n, shape[1], h, w) if planes else (n, h, w, shape[3])

    shapes = [unknown(a.shape) if symbolic and a.ndim == 4 else a.shape for a in args]
    mod = module(make, args, shapes)
    vm = relax.VirtualMachine(relaxvm.compile(mod, target=target), relaxvm.cpu())
    return vm["main"](*(relaxvm.runtime.tensor(a) for a in args)).numpy()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["float32", "uint8", "float64", "int16", "float16"])
@pytest.mark.parametrize("channels", [2, 3, 4, 5, 7])
def test_both_ways(target, dtype, channels):
    for symbolic, (h, w) in ((False, (9, 23)), (True, (8, 16)), (True, (67, 65)), (True, (8, 1))):
        x = values((2, channels, h, w), dtype)
        got = run(lambda a: op.permute_dims(a, TO_PIXELS), [x], symbolic, target)
        np.testing.assert_array_equal(got, x.transpose(TO_PIXELS))
        y = np.ascontiguousarray(x.transpose(TO_PIXELS))
        got = run(lambda a: op.permute_dims(a, TO_PLANES), [y], symbolic and h >= 8, target)
        np.testing.assert_array_equal(got, x)


@pytest.mark.parametrize("symbolic", [False, True])
def test_no_elements(symbolic):
    x = np.zeros((0, 3, 8, 40), "float32")
    assert run(lambda a: op.permute_dims(a, TO_PIXELS), [x], symbolic).shape == (0, 8, 40, 3)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("symbolic", [False, True])
def test_pictures_of_bytes_become_normalised_planes(target, symbolic):
    x = values((2, 37, 41, 3), "uint8")
    mean, scale = values((3,), "float32"), values((3,), "float32")

    def normalised(a, m, s):
        return op.permute_dims((op.astype(a, "float32") - m) * s, TO_PLANES)

    got = run(normalised, [x, mean, scale], symbolic, target)
    wanted = ((x.astype("float32") - mean) * scale).transpose(TO_PLANES)
    np.testing.assert_allclose(got, wanted, rtol=1e-6)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("symbolic", [False, True])
def test_planes_become_pixels_with_a_formula(target, symbolic):
    x, y = values((2, 3, 19, 21), "float32"), values((2, 19, 21, 3), "float32")
    bias = values((3, 1, 1), "float32")

    def formula(a, b, c):
        return op.permute_dims(a + c, TO_PIXELS) * b

    got = run(formula, [x, y, bias], symbolic, target)
    np.testing.assert_allclose(got, (x + bias).transpose(TO_PIXELS) * y, rtol=1e-6)


def test_threads_share_the_blocks():
    x = values((1, 3, 300, 301), "float32")
    vm = relax.VirtualMachine(
        relaxvm.compile(module(lambda a: op.permute_dims(a, TO_PIXELS), [x], [x.shape])),
        relaxvm.cpu(),
    )
    for threads in (1, 2):
        vm.set_num_threads(threads)
        got = vm["main"](relaxvm.runtime.tensor(x)).numpy()
        np.testing.assert_array_equal(got, x.transpose(TO_PIXELS))


@pytest.mark.parametrize("axes", [TO_PIXELS, TO_PLANES])
def test_goes_by_shuffles(axes):
    x = np.zeros((1, 3, 32, 64) if axes == TO_PIXELS else (1, 32, 64, 3), "float32")
    mod = module(lambda a: op.permute_dims(a, axes), [x], [x.shape])
    text = relaxvm.compile(mod, target="llvm -mcpu=haswell", stop_after="scheduled").script()
    assert text.count("T.Shuffle") == 6
