# SPDX-License-Identifier: Apache-2.0
"""Sizes that the compiler cannot compare are compared when the program runs; nothing reads beyond its arguments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import relax, tirx
from relaxvm.relax import op

N, M, K, J = (tirx.Var(name, "int64") for name in "nmkj")


def compiled(params: list[Any], call: Any, *more: Any) -> Any:
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            value = builder.emit(call)
            for f in more:
                value = builder.emit(f(value))
            result = builder.emit_output(value)
        builder.emit_func_output(result)
    return relax.VirtualMachine(relaxvm.compile(builder.get()), relaxvm.cpu())["main"]


def run(main: Any, *arrays: np.ndarray) -> np.ndarray:
    return main(*[relaxvm.runtime.tensor(a) for a in arrays]).numpy()


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, "float32")


@pytest.mark.parametrize("fused", [False, True])
def test_matmul_compares_the_sizes_it_sums_over(fused: bool) -> None:
    x = relax.Var("x", relax.TensorType((N, K), "float32"))
    y = relax.Var("y", relax.TensorType((J, M), "float32"))
    main = compiled([x, y], op.matmul(x, y), *([op.nn.relu] if fused else []))
    np.testing.assert_array_equal(run(main, ones(3, 5), ones(5, 4)), np.full((3, 4), 5, "float32"))
    with pytest.raises(ValueError, match=r"relax.matmul: k and j must be equal"):
        run(main, ones(3, 5), ones(4, 4))


def test_convolution_compares_channels() -> None:
    x = relax.Var("x", relax.TensorType((1, N, 8, 8), "float32"))
    w = relax.Var("w", relax.TensorType((4, M, 3, 3), "float32"))
    main = compiled([x, w], op.nn.conv2d(x, w))
    assert run(main, ones(1, 3, 8, 8), ones(4, 3, 3, 3))[0, 0, 0, 0] == 27
    with pytest.raises(ValueError, match=r"relax.nn.conv2d: n and m must be equal"):
        run(main, ones(1, 2, 8, 8), ones(4, 3, 3, 3))


def test_squeeze_compares_with_one() -> None:
    x = relax.Var("x", relax.TensorType((N, M), "float32"))
    main = compiled([x], op.squeeze(x, axis=[0]))
    assert run(main, ones(1, 5)).shape == (5,)
    with pytest.raises(ValueError, match=r"relax.squeeze: n and 1 must be equal"):
        run(main, ones(2, 5))


def test_concat_compares_other_dimensions() -> None:
    x = relax.Var("x", relax.TensorType((3, N), "float32"))
    y = relax.Var("y", relax.TensorType((3, M), "float32"))
    main = compiled([x, y], op.concat([x, y], axis=0))
    assert run(main, ones(3, 5), ones(3, 5)).shape == (6, 5)
    with pytest.raises(ValueError, match=r"relax.concat: n and m must be equal"):
        run(main, ones(3, 5), ones(3, 4))


@pytest.mark.parametrize("mode", ["fast", "clip", "wrap"])
def test_take_of_a_wrong_index_stays_inside(mode: str) -> None:
    x = relax.Var("x", relax.TensorType((N,), "float32"))
    i = relax.Var("i", relax.TensorType((M,), "int64"))
    main = compiled([x, i], op.take(x, i, axis=0, mode=mode))
    indices = np.array([0, 1 << 40, -(1 << 40), 3], "int64")
    assert set(run(main, np.arange(5, dtype="float32"), indices)) <= set(range(5))
    assert run(main, ones(0), indices).shape == (4,)


def test_scatter_leaves_out_what_lies_outside() -> None:
    x = relax.Var("x", relax.TensorType((N,), "float32"))
    i = relax.Var("i", relax.TensorType((M,), "int64"))
    u = relax.Var("u", relax.TensorType((M,), "float32"))
    main = compiled([x, i, u], op.scatter_elements(x, i, u, axis=0))
    got = run(main, ones(4), np.array([1, 9, -9], "int64"), np.array([5, 6, 7], "float32"))
    np.testing.assert_array_equal(got, np.array([1, 5, 1, 1], "float32"))


def test_reflection_of_too_little_stays_inside() -> None:
    x = relax.Var("x", relax.TensorType((N,), "float32"))
    main = compiled([x], op.nn.pad(x, pad_width=[3, 3], pad_mode="reflect"))
    np.testing.assert_array_equal(run(main, ones(1)), ones(7))
    assert run(main, ones(0)).shape == (6,)


def test_integer_division_never_traps() -> None:
    x = relax.Var("x", relax.TensorType((N,), "int32"))
    y = relax.Var("y", relax.TensorType((N,), "int32"))
    least = np.iinfo("int32").min
    a = np.array([7, -7, least, least, 5], "int32")
    b = np.array([0, 2, -1, 0, -1], "int32")
    for function, wanted in [
        (op.divide, [0, -3, least, 0, -5]),
        (op.floor_divide, [0, -4, least, 0, -5]),
        (op.mod, [0, -1, 0, 0, 0]),
        (op.floor_mod, [0, 1, 0, 0, 0]),
    ]:
        got = run(compiled([x, y], function(x, y)), a, b)
        np.testing.assert_array_equal(got, np.array(wanted, "int32"))
