# SPDX-License-Identifier: Apache-2.0
"""Convolutions 3x3 of bytes in Winograd's form, where the machine multiplies 16-bit halves: exact with any bytes, at
sizes that fill tiles and vectors and at sizes that do not, with any number of threads; and only where it is worth it."""

from __future__ import annotations

import numpy as np
import pytest

import relaxvm
from relaxvm import relax
from relaxvm.relax import op

# images, height, width, channels, filters, padding, groups, dilation
CASES = [
    (1, 56, 56, 64, 64, 1, 1, 1),
    (2, 13, 19, 32, 40, 1, 1, 1),
    (1, 9, 30, 24, 80, 0, 1, 1),  # half a vector of channels left
    (3, 7, 8, 33, 17, 2, 1, 1),  # an odd number of channels, filters that end inside of a vector
    (1, 17, 23, 44, 24, 1, 1, 1),
    (7, 4, 6, 16, 16, 1, 1, 1),
    (1, 28, 28, 64, 64, 1, 2, 1),
    (2, 13, 19, 96, 48, 1, 3, 1),
    (1, 9, 17, 42, 72, 0, 2, 1),  # groups end inside of vectors and of pairs
    (2, 13, 19, 64, 64, 2, 1, 2),
    (1, 24, 21, 64, 64, 0, 1, 3),
]
MACHINES = ["llvm", "llvm -mcpu=haswell", "llvm -mcpu=x86-64-v2"]
PAIRS = [("uint8", "int8"), ("int8", "int8"), ("uint8", "uint8"), ("int8", "uint8")]


def numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Half of them the least and the largest, which are where sums of neighbours leave 16 bits."""
    limits = np.iinfo(dtype)
    any_ = rng.integers(limits.min, limits.max + 1, shape)
    ends = rng.choice([limits.min, limits.max], shape)
    return np.where(rng.random(shape) < 0.5, any_, ends).astype(dtype)


def module_of(case: tuple[int, ...], w: np.ndarray, dtype: str, unknown: int) -> relaxvm.IRModule:
    images, height, width, channels, _, padding, groups, dilation = case
    dims = [relaxvm.tirx.Var(name, "int64") for name in "nhw"[:unknown]]
    dims += [images, height, width][unknown:]
    data = relax.Var("x", relax.TensorType([*dims, channels], dtype))
    builder = relax.BlockBuilder()
    with builder.function("main", [data]):
        with builder.dataflow():
            y = builder.emit(
                op.nn.conv2d(
                    data,
                    relax.const(w),
                    padding=padding,
                    groups=groups,
                    dilation=dilation,
                    data_layout="NHWC",
                    kernel_layout="HWIO",
                    out_dtype="int32",
                )
            )
            result = builder.emit_output(op.bitwise_xor(y, relax.const(np.int32(5))))
        builder.emit_func_output(result)
    return builder.finalize()


def expected(case: tuple[int, ...], x: np.ndarray, w: np.ndarray) -> np.ndarray:
    padding, groups, step = case[5:8]
    wide = np.pad(x.astype("float64"), [(0, 0), (padding,) * 2, (padding,) * 2, (0, 0)])
    height, width = wide.shape[1] - 2 * step, wide.shape[2] - 2 * step
    parts = []
    for data, weight in zip(np.split(wide, groups, axis=3), np.split(w, groups, axis=3)):
        views = [
            data[:, i * step : i * step + height, j * step : j * step + width]
            @ weight[i, j].astype("float64")
            for i in range(3)
            for j in range(3)
        ]
        parts.append(sum(views))
    return np.concatenate(parts, axis=3).astype("int32") ^ 5


def check(
    case: tuple[int, ...], x: np.ndarray, w: np.ndarray, target: str, unknown: int = 0
) -> None:
    module = module_of(case, w, str(x.dtype), unknown)
    vm = relaxvm.VirtualMachine(relaxvm.compile(module, target=target), relaxvm.cpu())
    want = expected(case, x, w)
    for threads in (1, 3):
        vm.set_num_threads(threads)
        np.testing.assert_array_equal(vm["main"](relaxvm.runtime.tensor(x)).numpy(), want)


def operands(case: tuple[int, ...], types: tuple[str, str]) -> tuple[np.ndarray, np.ndarray]:
    images, height, width, channels, filters, _, groups, _ = case
    rng = np.random.default_rng(0)
    x = numbers(rng, (images, height, width, channels), types[0])
    return x, numbers(rng, (3, 3, channels // groups, filters), types[1])


@pytest.mark.parametrize("target", MACHINES)
@pytest.mark.parametrize("unknown", [0, 1, 3])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_exact(case: tuple[int, ...], unknown: int, target: str) -> None:
    check(case, *operands(case, PAIRS[0]), target, unknown)


@pytest.mark.parametrize("unknown", [0, 1, 3])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_code_for_matrix_registers_is_made_on_any_machine(
    case: tuple[int, ...], unknown: int
) -> None:
    x, w = operands(case, PAIRS[0])
    relaxvm.compile(module_of(case, w, str(x.dtype), unknown), target="llvm -mcpu=sapphirerapids")


@pytest.mark.parametrize("target", MACHINES)
@pytest.mark.parametrize("types", PAIRS, ids=str)
def test_exact_with_any_signs(types: tuple[str, str], target: str) -> None:
    case = CASES[1]
    check(case, *operands(case, types), target)


def lowered(case: tuple[int, ...], types: tuple[str, str] = PAIRS[0], cpu: str = "haswell") -> str:
    _, w = operands(case, types)
    module = module_of(case, w, types[0], 0)
    return relaxvm.compile(module, target=f"llvm -mcpu={cpu}", stop_after="lowered").script()


# The most channels whose sums, four times as large, stay within 32 bits.
DEEPEST = {("uint8", "int8"): 1827, ("uint8", "uint8"): 917, ("int8", "int8"): 3640}


@pytest.mark.parametrize("types", DEEPEST, ids=str)
def test_deepest_sums(types: tuple[str, str]) -> None:
    case = (1, 14, 14, DEEPEST[types], 16, 0, 1, 1)
    deeper = (1, 14, 14, DEEPEST[types] + 1, 16, 0, 1, 1)
    assert "winograd_product" in lowered(case, types)
    assert "winograd" not in lowered(deeper, types)
    images, height, width, channels, filters, *_ = case
    limits = [np.iinfo(dtype) for dtype in types]
    for left in (limits[0].min, limits[0].max):
        for right in (limits[1].min, limits[1].max):
            x = np.full((images, height, width, channels), left, types[0])
            w = np.full((3, 3, channels, filters), right, types[1])
            check(case, x, w, "llvm -mcpu=haswell")


@pytest.mark.parametrize("signs", [(1, 1, 1), (1, -1, 1), (1, 1, -1), (-1, 1, 1)], ids=str)
def test_largest_transforms(signs: tuple[int, int, int]) -> None:
    """Data and weights whose transforms are as large as they can be, at each point and of each sign."""
    case = (1, 8, 8, 64, 32, 0, 1, 1)
    line = np.where(np.resize(np.array([*signs, -signs[0]]), 8) > 0, 255, 0)
    x = np.broadcast_to(np.minimum(line[:, None], line[None, :])[None, :, :, None], (1, 8, 8, 64))
    kernel = np.multiply.outer(signs, signs)
    w = np.where(kernel > 0, 127, -128).astype("int8")[:, :, None, None]
    weight = np.ascontiguousarray(np.broadcast_to(w, (3, 3, 64, 32)))
    for target in MACHINES:
        check(case, np.ascontiguousarray(x).astype("uint8"), weight, target)
        check(case, np.ascontiguousarray(255 - x).astype("uint8"), ~weight, target)


def test_only_where_it_is_worth_it() -> None:
    for case in CASES:
        assert "winograd_product" in lowered(case)
    assert "winograd_product" in lowered(CASES[0], cpu="skylake-avx512"), "no product of bytes"
    assert "winograd" not in lowered(CASES[0], cpu="icelake-server"), "which has one of four bytes"
    assert "winograd" not in lowered((1, 28, 28, 3, 8, 1, 1, 1)), "there is little to multiply"
    assert "winograd" not in lowered((1, 7, 7, 512, 512, 1, 1, 1), cpu="x86-64-v2"), "large weights"
    assert "winograd" not in lowered((1, 28, 28, 64, 32, 1, 16, 1)), "a group fills half a vector"
