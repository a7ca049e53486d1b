# SPDX-License-Identifier: Apache-2.0
"""Right sides of half floats: a panel is widened once for the tiles that share it, small weights and those of few rows
while compiling."""

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


def run(mod: relaxvm.IRModule, *args: np.ndarray, target: str = "llvm") -> np.ndarray:
    """The same with one thread and with three."""
    vm = relaxvm.VirtualMachine(relaxvm.compile(mod, target=target), relaxvm.cpu())
    tensors = [relaxvm.runtime.tensor(a) for a in args]
    vm.set_num_threads(1)
    alone = vm["main"](*tensors).numpy()
    vm.set_num_threads(3)
    assert vm["main"](*tensors).numpy().tobytes() == alone.tobytes()
    return alone


def scheduled(mod: relaxvm.IRModule) -> str:
    return relaxvm.compile(mod, stop_after="scheduled").script()


def check_close(got: np.ndarray, want: np.ndarray, dtype: str) -> None:
    error = np.abs(got.astype("float64") - want) / (1 + np.abs(want))
    assert error.max() < ROUNDING[dtype] + 1e-5


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("columns", [24, 40, 64, 112, 200])
@pytest.mark.parametrize("rows", [8, 24, 49, 131, 300])
def test_products_with_known_rows(rows: int, columns: int, dtype: str, target: str) -> None:
    x, w = random(dtype, rows, 90), random(dtype, 90, columns)
    want = x.astype("float64") @ w.astype("float64")
    constant = module(lambda a: op.matmul(a, relax.const(w, dtype)), ([rows, 90], dtype))
    got = run(constant, x, target=target)
    check_close(got, want, dtype)
    given = module(op.matmul, ([rows, 90], dtype), ([90, columns], dtype))
    check_close(run(given, x, w, target=target), want, dtype)


@pytest.mark.parametrize("target", TARGETS)
def test_products_with_open_rows(target: str) -> None:
    m = relaxvm.tirx.Var("m", "int64")
    w = random("float16", 300, 200)
    mod = module(lambda a: op.matmul(a, relax.const(w, "float16")), ([m, 300], "float16"))
    for rows in (1, 9, 40, 47, 48, 49, 63, 64, 65, 100, 257, 600):
        x = random("float16", rows, 300)
        want = x.astype("float64") @ w.astype("float64")
        check_close(run(mod, x, target=target), want, "float16")


@pytest.mark.parametrize("target", TARGETS)
def test_deep_sums_go_by_blocks(target: str) -> None:
    x, w = random("float16", 150, 6000), random("float16", 6000, 72)
    mod = module(lambda a: op.matmul(a, relax.const(w, "float16")), ([150, 6000], "float16"))
    check_close(run(mod, x, target=target), x.astype("float64") @ w.astype("float64"), "float16")


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
    want = run(wide, x.astype("float64"))
    check_close(run(half, x, target=target), want, "float16")


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
    check_close(run(half, x), run(wide, x.astype("float64")), "float16")


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
