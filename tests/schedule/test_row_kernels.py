# SPDX-License-Identifier: Apache-2.0
"""Schedules that read along one axis and write along another, and cut concatenations: right results at sizes that fit
vectors and tiles and at sizes that do not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import relaxvm
from relaxvm import relax
from relaxvm.relax import op

Shape = tuple[int, ...]


def compiled(
    args: list[tuple[Shape, str]], body: Callable[..., relax.Expr], symbolic: bool, target: str
) -> relax.VMExecutable:
    """A program of one operator; equal sizes become one variable when `symbolic`."""
    sizes: dict[int, relaxvm.tirx.Var] = {}

    def dim(extent: int) -> relaxvm.tirx.Var | int:
        return (
            sizes.setdefault(extent, relaxvm.tirx.Var(f"n{extent}", "int64"))
            if symbolic
            else extent
        )

    params = [
        relax.Var(f"x{i}", relax.TensorType([dim(d) for d in shape], dtype))
        for i, (shape, dtype) in enumerate(args)
    ]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(body(*params))
        builder.emit_func_output(result)
    return relaxvm.compile(builder.get(), target=target)


def run(
    args: list[np.ndarray],
    body: Callable[..., relax.Expr],
    symbolic: bool = False,
    target: str = "llvm",
) -> np.ndarray:
    executable = compiled([(a.shape, str(a.dtype)) for a in args], body, symbolic, target)
    vm = relax.VirtualMachine(executable, relaxvm.cpu())
    return vm["main"](*[relaxvm.runtime.tensor(a) for a in args]).numpy()


def numbers(shape: Shape, dtype: str = "float32") -> np.ndarray:
    return (np.random.default_rng(sum(shape)).standard_normal(shape) * 50).astype(dtype)


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize(
    ("shape", "axes", "dtype", "target"),
    [
        ((64, 48), (1, 0), "float32", "llvm"),
        ((33, 47), (1, 0), "float32", "llvm"),
        ((2, 9, 5, 23), (0, 3, 1, 2), "float32", "llvm -mcpu=haswell"),
        ((3, 17, 31), (2, 0, 1), "int8", "llvm"),
        ((19, 40), (1, 0), "float64", "llvm"),
        # Around the edges of blocks: 256 bytes of the result by 256 elements of the operand.
        ((65, 259), (1, 0), "float32", "llvm"),
        ((130, 512), (1, 0), "float32", "llvm -mcpu=haswell"),
        ((2, 64, 3, 257), (0, 3, 2, 1), "float32", "llvm"),
        ((2, 3, 260, 2, 130), (1, 4, 0, 3, 2), "int16", "llvm"),
        ((258, 300), (1, 0), "uint8", "llvm"),
        ((33, 270), (1, 0), "int64", "llvm -mcpu=haswell"),
        ((140, 256), (1, 0), "float16", "llvm"),
        ((2, 5, 70, 3, 2), (0, 2, 1, 3, 4), "float32", "llvm"),
    ],
)
def test_transpose(shape: Shape, axes: Shape, dtype: str, target: str, symbolic: bool) -> None:
    x = numbers(shape, dtype)
    got = run([x], lambda v: op.permute_dims(v, list(axes)), symbolic, target)
    np.testing.assert_array_equal(got, x.transpose(axes))


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((3072, 3072), "float32"),  # rows a power of two apart
        ((4104, 2304), "float32"),  # the same, and no whole number of blocks
        ((12008, 384), "int64"),
        ((4112, 4608), "float16"),
        ((3080, 3001), "float32"),
    ],
)
@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=haswell"])
@pytest.mark.parametrize("symbolic", [False, True])
def test_a_transposed_result_larger_than_the_caches(
    shape: Shape, dtype: str, target: str, symbolic: bool
) -> None:
    x, y = numbers(shape, dtype), numbers(shape[::-1], dtype)
    got = run([x, y], lambda a, b: op.add(op.permute_dims(a, [1, 0]), b), symbolic, target)
    np.testing.assert_array_equal(got, x.T + y)


@pytest.mark.parametrize("row", [4112, 4099])
@pytest.mark.parametrize("symbolic", [False, True])
def test_norms_and_softmax_larger_than_the_caches(symbolic: bool, row: int) -> None:
    x = numbers((3, 701, row))
    gain = numbers((row,))
    centred = x - x.mean(-1, keepdims=True, dtype=np.float64)
    norm = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * gain + gain
    got = run([x, gain], lambda v, g: op.nn.layer_norm(v, g, g, axes=[-1]), symbolic)
    np.testing.assert_allclose(got, norm, rtol=1e-4, atol=1e-4)
    powers = np.exp(x - x.max(-1, keepdims=True))
    got = run([x], lambda v: op.nn.softmax(v), symbolic)
    np.testing.assert_allclose(got, powers / powers.sum(-1, keepdims=True), rtol=1e-5, atol=1e-7)


def test_transposed_operand_beside_a_plain_one() -> None:
    x, y = numbers((20, 37)), numbers((37, 20))
    got = run([x, y], lambda a, b: op.multiply(op.permute_dims(a, [1, 0]), b))
    np.testing.assert_array_equal(got, x.T * y)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("symbolic", [False, True])
def test_concat_has_a_piece_for_each_part(axis: int, symbolic: bool) -> None:
    shapes = [[5, 6, 7], [5, 6, 7], [5, 6, 7]]
    shapes[1][axis] = 19
    shapes[2][axis] = 2
    parts = [numbers(tuple(s)) for s in shapes]
    got = run(parts, lambda *v: op.concat(list(v), axis=axis), symbolic)
    np.testing.assert_array_equal(got, np.concatenate(parts, axis))


@pytest.mark.parametrize("exclusive", [False, True])
def test_scan_along_an_outer_axis(exclusive: bool) -> None:
    x = np.arange(3 * 5 * 18, dtype="int32").reshape(3, 5, 18)
    got = run([x], lambda v: op.cumsum(v, axis=1, exclusive=exclusive))
    np.testing.assert_array_equal(got, np.cumsum(x, 1) - (x if exclusive else 0))


@pytest.mark.parametrize("axis", [0, 1])
def test_argmax_gives_the_first_and_takes_nan_for_greatest(axis: int) -> None:
    x = np.zeros((6, 40), "float32")
    x[2, 7] = x[4, 7] = x[2, 30] = 3
    x[5, 9] = x[1, 9] = np.nan
    np.testing.assert_array_equal(run([x], lambda v: op.argmax(v, axis=axis)), x.argmax(axis))


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize(
    ("shape", "target"),
    [
        ((33, 47), "llvm -mcpu=haswell"),
        ((64, 130), "llvm"),
        ((7, 5, 17), "llvm"),
        ((40, 1, 65), "llvm"),
        ((3, 3000), "llvm"),
    ],
)
def test_rows_that_share_what_is_added_up(shape: Shape, target: str, symbolic: bool) -> None:
    x = numbers(shape)
    e = np.exp(x.astype("float64") - x.max(-1, keepdims=True))
    got = run([x], lambda v: op.nn.softmax(v), symbolic, target)
    np.testing.assert_allclose(got, e / e.sum(-1, keepdims=True), rtol=1e-5, atol=1e-7)
    scale, shift = numbers(shape[-1:]), np.ones(shape[-1:], "float32")
    got = run([x, scale, shift], lambda v, g, b: op.nn.layer_norm(v, g, b, axes=[-1]), symbolic)
    wide = x.astype("float64")
    centred = wide - wide.mean(-1, keepdims=True)
    want = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * scale + shift
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("place", [0, 17, 69])
def test_a_nan_anywhere_in_a_row_is_its_maximum(place: int) -> None:
    x = numbers((3, 70))
    x[1, place] = np.nan
    np.testing.assert_array_equal(run([x], lambda v: op.max(v, axis=-1)), x.max(-1))
    np.testing.assert_array_equal(run([x], lambda v: op.min(v, axis=-1)), x.min(-1))


@pytest.mark.parametrize("method", ["linear", "cubic"])
@pytest.mark.parametrize("shape", [(2, 11, 9, 23), (1, 3, 9, 23), (1, 17, 40, 23)])
def test_resize_along_rows_first_is_the_resize_of_each_pixel(method: str, shape: Shape) -> None:
    x = numbers(shape)

    def resized(layout: str, value: np.ndarray) -> np.ndarray:
        size = (19, 37) if shape[1] != 17 else (7, 37)
        return run([value], lambda v: op.image.resize2d(v, size, layout=layout, method=method))

    pixels = resized("NHWC", x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    np.testing.assert_allclose(resized("NCHW", x), pixels, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_flip_runs_backwards(dtype: str, symbolic: bool) -> None:
    x = numbers((3, 133), dtype)
    got = run([x], lambda v: op.add(op.flip(v, axis=1), v), symbolic)
    np.testing.assert_array_equal(got, np.flip(x, 1) + x)


@pytest.mark.parametrize("shape", [(3, 64), (5, 7), (2, 3, 32)])
def test_tile(shape: Shape) -> None:
    x, repeats = numbers(shape), [2] * (len(shape) - 1) + [3]
    np.testing.assert_array_equal(run([x], lambda v: op.tile(v, repeats)), np.tile(x, repeats))
