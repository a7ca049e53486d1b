# SPDX-License-Identifier: Apache-2.0
"""Products of bytes and of bfloat16 on registers that hold matrices (AMX)."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

import relaxvm
from relaxvm import relax

WITH_MATRICES = "llvm -mcpu=sapphirerapids"
WITHOUT = "llvm -mcpu=icelake-server"
RNG = np.random.default_rng(0)


def has_matrices() -> bool:
    """Whether this machine has them and the system grants them to a process that asks."""
    program = (
        "import ctypes, sys\n"
        "cpu = open('/proc/cpuinfo').read()\n"
        "ask = ctypes.CDLL(None).syscall(158, 0x1023, 18) if 'amx_int8' in cpu else -1\n"
        "sys.exit(0 if ask == 0 and 'amx_bf16' in cpu else 1)\n"
    )
    return subprocess.run([sys.executable, "-c", program], timeout=60).returncode == 0


needs_matrices = pytest.mark.skipif(
    not has_matrices(), reason="needs a machine with AMX (amx_int8, amx_bf16)"
)


def random(dtype: str, *shape: int) -> np.ndarray:
    if dtype == "bfloat16":
        return RNG.integers(-9, 10, shape).astype(ml_dtypes.bfloat16)
    low, high = (0, 256) if dtype == "uint8" else (-128, 128)
    return RNG.integers(low, high, shape).astype(dtype)


def acc_of(dtype: str) -> str:
    return "float32" if dtype == "bfloat16" else "int32"


def wide(x: np.ndarray) -> np.ndarray:
    return x.astype("float64")


def matmul(left: str, right: str, shape: tuple[int, int, int], unknown: bool = False, finish=None):
    """The module, its right side, and what it computes of the left side."""
    rows, depth, columns = shape
    weight = random(right, depth, columns)
    var = relax.Var(
        "x", relax.TensorType([relaxvm.tirx.Var("m", "int64") if unknown else rows, depth], left)
    )
    builder = relax.BlockBuilder()
    with builder.function("main", [var]):
        with builder.dataflow():
            y = builder.emit(
                relax.op.matmul(var, relax.const(weight, right), out_dtype=acc_of(left))
            )
            out = builder.emit_output(finish(builder, y) if finish is not None else y)
        builder.emit_func_output(out)
    return builder.get(), weight


def run(module: relaxvm.IRModule, x: np.ndarray, target: str, threads: int = 1) -> np.ndarray:
    vm = relaxvm.VirtualMachine(relaxvm.compile(module, target=target), relaxvm.cpu())
    vm.set_num_threads(threads)
    return vm["main"](relaxvm.runtime.tensor(x)).numpy()


def scheduled(module: relaxvm.IRModule, target: str) -> str:
    return relaxvm.compile(module, target=target, stop_after="scheduled").script()


PAIRS = [
    ("uint8", "int8"),
    ("int8", "int8"),
    ("int8", "uint8"),
    ("bfloat16", "bfloat16"),
]
SHAPES = [
    (64, 64, 64),
    (4, 16, 16),  # the fewest rows and words
    (37, 192, 100),  # rows and columns that fill no register
    (16, 72, 48),  # steps of 9 words (bytes)
    (50, 320, 33),
    (33, 64, 200),
    (700, 128, 96),  # several tasks
]


@needs_matrices
@pytest.mark.parametrize("unknown", [False, True])
@pytest.mark.parametrize("pair", PAIRS, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_products(shape, pair, unknown):
    module, weight = matmul(*pair, shape, unknown)
    assert "matrix.dot" in scheduled(module, WITH_MATRICES)
    for rows in (shape[0], 1, 15, 17, 32, 49) if unknown else (shape[0],):
        x = random(pair[0], rows, shape[1])
        for threads in (1, 3):
            result = run(module, x, WITH_MATRICES, threads)
            np.testing.assert_array_equal(wide(result), wide(x) @ wide(weight))


# height, width, channels, filters, kernel, step, padding
PLANES = [
    (14, 14, 64, 96, 3, 1, 1),  # two lines of rows at a time
    (7, 7, 128, 64, 3, 1, 1),  # four
    (9, 5, 32, 48, 3, 2, 1),
    (13, 40, 16, 20, 3, 1, 0),  # a line fills more than two registers
    (23, 23, 4, 64, 7, 2, 3),  # the words of one step are neighbours along the kernel
    (20, 20, 64, 64, 1, 1, 0),
]


def convolution(
    case: tuple[int, ...], pair: tuple[str, str], unknown: bool
) -> tuple[relaxvm.IRModule, np.ndarray]:
    """The module, of images whose height and width may be unknown, and its weight."""
    height, width, channels, filters, kernel, step, pads = case
    w = random(pair[1], kernel, kernel, channels, filters)
    dims = [relaxvm.tirx.Var(name, "int64") for name in "hw"] if unknown else [height, width]
    var = relax.Var("x", relax.TensorType([2, *dims, channels], pair[0]))
    builder = relax.BlockBuilder()
    with builder.function("main", [var]):
        with builder.dataflow():
            y = relax.op.nn.conv2d(
                var,
                relax.const(w, pair[1]),
                strides=step,
                padding=pads,
                data_layout="NHWC",
                kernel_layout="HWIO",
                out_dtype=acc_of(pair[0]),
            )
            out = builder.emit_output(relax.op.nn.relu(builder.emit(y)))
        builder.emit_func_output(out)
    return builder.get(), w


def convolved(x: np.ndarray, w: np.ndarray, step: int, pads: int) -> np.ndarray:
    padded = np.pad(wide(x), ((0, 0), (pads, pads), (pads, pads), (0, 0)))
    kernel = w.shape[0]
    rows, columns = ((size - kernel) // step + 1 for size in padded.shape[1:3])
    return np.maximum(
        sum(
            padded[:, i::step, j::step][:, :rows, :columns] @ wide(w)[i, j]
            for i, j in itertools.product(range(kernel), range(kernel))
        ),
        0,
    )


@needs_matrices
@pytest.mark.parametrize("unknown", [False, True])
@pytest.mark.parametrize("pair", PAIRS, ids=str)
@pytest.mark.parametrize("case", PLANES, ids=str)
def test_convolutions(case, pair, unknown):
    height, width, channels, _, kernel, step, pads = case
    module, w = convolution(case, pair, unknown)
    assert "matrix.dot" in scheduled(module, WITH_MATRICES)
    vm = relaxvm.VirtualMachine(relaxvm.compile(module, target=WITH_MATRICES), relaxvm.cpu())
    # Lines that are short and long, one and several of them, an odd number too.
    others = [(kernel, 2 * kernel), (15, 17), (6, 14), (33, 16)] if unknown else []
    for size in [(height, width), *others]:
        x = random(pair[0], 2, *size, channels)
        want = convolved(x, w, step, pads)
        for threads in (1, 3):
            vm.set_num_threads(threads)
            result = vm["main"](relaxvm.runtime.tensor(x)).numpy()
            np.testing.assert_array_equal(wide(result), want)


@needs_matrices
def test_short_lines_of_open_width_go_by_twos():
    module, _ = convolution(PLANES[0], PAIRS[0], True)
    assert re.search(r"if \S.* <= 16:", scheduled(module, WITH_MATRICES))
    module, _ = convolution(PLANES[5], PAIRS[0], True)
    assert not re.search(r"if \S.* <= 16:", scheduled(module, WITH_MATRICES)), "one list of rows"


def requantize(builder: relax.BlockBuilder, y: relax.Expr) -> relax.Expr:
    """What follows a product in a quantised model, twice."""
    for scale in (0.0173, 0.37):
        y = builder.emit(relax.op.astype(y, "float32"))
        y = builder.emit(relax.op.multiply(y, relax.const(np.float32(scale))))
        y = builder.emit(relax.op.round(y))
        y = builder.emit(relax.op.clip(builder.emit(relax.op.add(y, relax.const(3.0))), 0, 255))
        y = builder.emit(relax.op.astype(y, "uint8"))
    return y


@needs_matrices
def test_what_finishes_sums_has_the_bits_of_vector_code():
    module, _ = matmul("uint8", "int8", (75, 64, 112), True, requantize)
    assert "matrix.dot" not in scheduled(module, WITHOUT)
    for rows in (5, 75):
        x = random("uint8", rows, 64)
        np.testing.assert_array_equal(run(module, x, WITH_MATRICES), run(module, x, WITHOUT))


def test_only_where_they_fit():
    def uses(*shape: int, target: str = WITH_MATRICES, pair: tuple[str, str] = PAIRS[0]) -> bool:
        return "matrix.dot" in scheduled(matmul(*pair, shape)[0], target)

    for pair in PAIRS:
        assert uses(32, 64, 64, pair=pair)
        assert not uses(32, 64, 64, pair=pair, target=WITHOUT)
    assert not uses(3, 64, 64), "few rows: B is read as fast by vectors"
    assert not uses(32, 68, 64), "17 words: no number of steps of 4 words and more"
    assert not uses(32, 64, 64, pair=("float32", "float32"))


def test_code_is_made_on_any_machine():
    for pair in (PAIRS[0], PAIRS[3]):
        module, _ = matmul(*pair, (48, 64, 64))
        relaxvm.compile(module, target=WITH_MATRICES)
