# SPDX-License-Identifier: Apache-2.0
"""float16 and bfloat16: products widen what tiles take one by one a vector at a time, a panel once for the tiles that
share it, and weights that are small or have few rows while compiling; formulas are computed in float32 and rounded
once, and maxima lose nothing."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes  # noqa: F401 - NumPy learns bfloat16
import numpy as np
import pytest

import relaxvm
from relaxvm import relax
from relaxvm.relax import op

RNG = np.random.default_rng(0)
TARGETS = ["llvm", "llvm -mcpu=haswell", "llvm -mcpu=x86-64-v2"]
HALVES = ["float16", "bfloat16"]
ROUNDING = {"float16": 2.0**-11, "bfloat16": 2.0**-8}


def random(dtype: str, *shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, dtype=np.float32).astype(dtype)


def module(body: Callable[..., relax.Expr], *types: tuple[list, str]) -> relaxvm.IRModule:
    builder = relax.BlockBuilder()
    params = [
        relax.Var(f"x{i}", relax.TensorType(shape, dtype)) for i, (shape, dtype) in enumerate(types)
    ]
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(body(*params))
        builder.emit_func_output(out)
    return builder.finalize()


def results(executable, *args: np.ndarray) -> np.ndarray:
    """The same with one thread and with three."""
    vm = relaxvm.VirtualMachine(executable, relaxvm.cpu())
    tensors = [relaxvm.runtime.tensor(a) for a in args]
    vm.set_num_threads(1)
    alone = vm["main"](*tensors).numpy()
    vm.set_num_threads(3)
    assert vm["main"](*tensors).numpy().tobytes() == alone.tobytes()
    return alone


def scheduled(mod: relaxvm.IRModule) -> str:
    return relaxvm.compile(mod, stop_after="scheduled").script()


def check_close(got: np.ndarray, want: np.ndarray, dtype: str, roundings: float = 1) -> None:
    error = np.abs(got.astype("float64") - want) / (1 + np.abs(want))
    assert error.size == 0 or error.max() < ROUNDING[dtype] * roundings + 1e-5


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("depth", [7, 16, 37, 200])
def test_products_with_any_number_of_rows(depth: int, dtype: str, target: str) -> None:
    w = random(dtype, depth, 70)
    m = relaxvm.tirx.Var("m", "int64")
    executable = relaxvm.compile(
        module(lambda x: op.matmul(x, relax.const(w, dtype)), ([m, depth], dtype)), target=target
    )
    for rows in (0, 1, 2, 5, 8, 131):
        x = random(dtype, rows, depth)
        want = x.astype("float64") @ w.astype("float64")
        check_close(results(executable, x), want, dtype)


@pytest.mark.parametrize("target", TARGETS)
def test_products_whose_depth_is_known_at_run_time(target: str) -> None:
    m, k = (relaxvm.tirx.Var(name, "int64") for name in "mk")
    executable = relaxvm.compile(
        module(op.matmul, ([m, k], "float16"), ([k, 48], "float16")), target=target
    )
    for rows, depth in ((9, 0), (9, 5), (1, 33), (6, 16), (20, 100)):
        x, y = random("float16", rows, depth), random("float16", depth, 48)
        check_close(results(executable, x, y), x.astype("float64") @ y.astype("float64"), "float16")


def test_a_left_side_is_widened_by_vectors() -> None:
    w = relax.const(random("float16", 64, 64))
    text = scheduled(module(lambda x: op.matmul(x, w), ([96, 64], "float16")))
    assert "wide = T.alloc_buffer" in text


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", HALVES)
def test_attention_with_few_and_many_queries(dtype: str, target: str) -> None:
    queries = relaxvm.tirx.Var("s", "int64")
    executable = relaxvm.compile(
        module(op.nn.attention, ([2, queries, 3, 20], dtype), *[([2, 70, 3, 20], dtype)] * 2),
        target=target,
    )
    k, v = random(dtype, 2, 70, 3, 20), random(dtype, 2, 70, 3, 20)
    for rows in (1, 3, 5, 50):
        q = random(dtype, 2, rows, 3, 20)
        wide = [np.moveaxis(a.astype("float64"), 1, 2) for a in (q, k, v)]
        scores = wide[0] @ np.swapaxes(wide[1], -1, -2) / np.sqrt(20)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        want = weights / weights.sum(-1, keepdims=True) @ wide[2]
        check_close(results(executable, q, k, v), np.moveaxis(want, 1, 2), dtype)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", HALVES)
def test_a_chain_is_rounded_once(dtype: str, target: str) -> None:
    x, y = random(dtype, 5, 77), random(dtype, 5, 77)
    third = relax.const(np.array(1 / 3, "float32").astype(dtype), dtype)
    executable = relaxvm.compile(
        module(lambda a, b: (a + b) * (a - third), ([5, 77], dtype), ([5, 77], dtype)),
        target=target,
    )
    a, b = x.astype("float32"), y.astype("float32")
    want = (a + b) * (a - np.array(1 / 3, "float32").astype(dtype).astype("float32"))
    np.testing.assert_array_equal(results(executable, x, y), want.astype(dtype))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("axis", [0, 1])
def test_the_greatest_and_the_least_are_exact(axis: int, dtype: str, target: str) -> None:
    x = random(dtype, 37, 91)
    x[3, 5], x[4, 6] = np.inf, -np.inf
    for function, want in ((op.max, x.max(axis)), (op.min, x.min(axis))):
        executable = relaxvm.compile(
            module(lambda a, f=function: f(a, axis), ([37, 91], dtype)), target=target
        )
        np.testing.assert_array_equal(results(executable, x), want)


@pytest.mark.parametrize("dtype", HALVES)
def test_what_only_moves_stays_as_it_is(dtype: str) -> None:
    x = np.array([0.0, -0.0, 1e-7, 6e4, np.nan], "float32").astype(dtype)
    executable = relaxvm.compile(
        module(lambda a: op.nn.pad(a, (1, 2), pad_value=0.1), ([5], dtype))
    )
    got = results(executable, x)
    assert got[1:6].tobytes() == x.tobytes()
    np.testing.assert_array_equal(got[[0, 6]], np.array([0.1, 0.1], "float32").astype(dtype))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("columns", [24, 40, 64, 112, 200])
@pytest.mark.parametrize("rows", [8, 24, 49, 131, 300])
def test_products_with_known_rows(rows: int, columns: int, dtype: str, target: str) -> None:
    x, w = random(dtype, rows, 90), random(dtype, 90, columns)
    want = x.astype("float64") @ w.astype("float64")
    constant = module(lambda a: op.matmul(a, relax.const(w, dtype)), ([rows, 90], dtype))
    got = results(relaxvm.compile(constant, target=target), x)
    check_close(got, want, dtype)
    given = module(op.matmul, ([rows, 90], dtype), ([90, columns], dtype))
    check_close(results(relaxvm.compile(given, target=target), x, w), want, dtype)


@pytest.mark.parametrize("target", TARGETS)
def test_products_with_open_rows(target: str) -> None:
    m = relaxvm.tirx.Var("m", "int64")
    w = random("float16", 300, 200)
    mod = module(lambda a: op.matmul(a, relax.const(w, "float16")), ([m, 300], "float16"))
    executable = relaxvm.compile(mod, target=target)
    for rows in (1, 9, 40, 47, 48, 49, 63, 64, 65, 100, 257, 600):
        x = random("float16", rows, 300)
        want = x.astype("float64") @ w.astype("float64")
        check_close(results(executable, x), want, "float16")


@pytest.mark.parametrize("target", TARGETS)
def test_deep_sums_go_by_blocks(target: str) -> None:
    x, w = random("float16", 150, 6000), random("float16", 6000, 72)
    mod = module(lambda a: op.matmul(a, relax.const(w, "float16")), ([150, 6000], "float16"))
    executable = relaxvm.compile(mod, target=target)
    check_close(results(executable, x), x.astype("float64") @ w.astype("float64"), "float16")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("shape", "weight", "options"),
    [
        ((1, 40, 9, 9), (70, 40, 1, 1), {}),
        ((2, 32, 30, 30), (72, 32, 3, 3), {"padding": 1, "strides": 2}),
        ((1, 96, 14, 14), (96, 1, 3, 3), {"padding": 1, "groups": 96}),
        ((1, 24, 20, 20), (48, 12, 3, 3), {"padding": 2, "dilation": 2, "groups": 2}),
        ((1, 3, 40, 40), (16, 3, 3, 3), {"strides": 2, "padding": 1}),
    ],
)
def test_convolutions(shape: tuple, weight: tuple, options: dict, target: str) -> None:
    x, w = random("float16", *shape), random("float16", *weight)
    half = module(
        lambda a: op.nn.conv2d(a, relax.const(w, "float16"), **options), (list(shape), "float16")
    )
    wide = module(
        lambda a: op.nn.conv2d(a, relax.const(w.astype("float64")), **options),
        (list(shape), "float64"),
    )
    want = results(relaxvm.compile(wide), x.astype("float64"))
    check_close(results(relaxvm.compile(half, target=target), x), want, "float16")


@pytest.mark.parametrize("length", [70, 500])
def test_padded_lines(length: int) -> None:
    """Long lines go by the elements of a kernel, each with its part of a panel."""
    x, w = random("float16", 1, 80, length), random("float16", 128, 80, 11)
    options = {"padding": 25, "dilation": 5}
    half = module(
        lambda a: op.nn.conv1d(a, relax.const(w, "float16"), **options),
        ([1, 80, length], "float16"),
    )
    wide = module(
        lambda a: op.nn.conv1d(a, relax.const(w.astype("float64")), **options),
        ([1, 80, length], "float64"),
    )
    check_close(
        results(relaxvm.compile(half), x),
        results(relaxvm.compile(wide), x.astype("float64")),
        "float16",
    )


def test_a_panel_is_widened_for_its_tiles() -> None:
    w = relax.const(random("float16", 256, 512))
    many = scheduled(module(lambda a: op.matmul(a, w), ([300, 256], "float16")))
    assert "wide_panel = T.alloc_buffer" in many
    few = scheduled(module(lambda a: op.matmul(a, w), ([4, 256], "float16")))
    assert "wide_panel" not in few


def test_a_weight_of_few_rows_is_widened_while_compiling() -> None:
    w = relax.const(random("float16", 256, 512))

    def weight_of(rows: int) -> str:
        text = scheduled(module(lambda a: op.matmul(a, w), ([rows, 256], "float16")))
        line = next(x for x in text.splitlines() if "def matmul_packed" in x)
        return line.split("T.Buffer(")[2]

    assert "float32" in weight_of(49)
    assert "float16" in weight_of(4)  # memory is what these wait for
    assert "float16" in weight_of(300)
