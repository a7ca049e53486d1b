# SPDX-License-Identifier: Apache-2.0
"""Products of bytes and of bfloat16 with wide sums: right on every machine, in groups where the machine adds up groups."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest

import relaxvm
from relaxvm import relax

RNG = np.random.default_rng(0)
WITH_GROUPS = "llvm -mcpu=sapphirerapids"  # compiled for, not run
PAIRS = [
    ("uint8", "int8"),
    ("int8", "int8"),
    ("int8", "uint8"),
    ("uint8", "uint8"),
    ("bfloat16", "bfloat16"),
    ("float16", "float16"),
]


def random(dtype: str, *shape: int) -> np.ndarray:
    if "float" in dtype:
        values = RNG.standard_normal(shape, dtype=np.float32)
        return values.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    limits = np.iinfo(dtype)  # the extremes are common: sums of them must not saturate
    values = RNG.integers(limits.min, limits.max + 1, shape)
    return np.where(RNG.random(shape) < 0.3, limits.max, values).astype(dtype)


def product(x: np.ndarray, w: np.ndarray, constant: bool, transposed=False, rows=None):
    """A module for x @ w (w given the other way round when `transposed`), and its arguments."""
    bb = relax.BlockBuilder()
    shape = (x.shape[0] if rows is None else rows, *x.shape[1:])
    params = [relax.Var("x", relax.TensorType(shape, str(x.dtype)))]
    if not constant:
        params.append(relax.Var("w", relax.TensorType(w.shape, str(w.dtype))))
    with bb.function("main", params):
        right = relax.const(w, str(w.dtype)) if constant else params[1]
        if transposed:
            right = bb.emit(relax.op.permute_dims(right))
        wide = "int32" if "int" in str(x.dtype) else "float32"
        bb.emit_func_output(bb.emit(relax.op.matmul(params[0], right, out_dtype=wide)))
    return bb.get(), [x] if constant else [x, w]


def check(mod, args, want: np.ndarray, target="llvm") -> None:
    vm = relax.VirtualMachine(relaxvm.compile(mod, target=target), relaxvm.cpu())
    got = vm["main"](*(relaxvm.runtime.tensor(a) for a in args)).numpy()
    if "int" in str(got.dtype):
        np.testing.assert_array_equal(got, want)
    else:
        np.testing.assert_allclose(got, want, rtol=1e-2, atol=1e-2 * np.sqrt(args[0].shape[-1]))


def wide(x: np.ndarray) -> np.ndarray:
    return x.astype("int64" if "int" in str(x.dtype) else "float64")


@pytest.mark.parametrize("left,right", PAIRS)
@pytest.mark.parametrize("constant", [True, False])
def test_products_of_narrow_numbers(left, right, constant):
    # Whole tiles; a column more than a panel and few rows; a depth that is no multiple of a group.
    for m, k, n in ((12, 64, 128), (7, 36, 70), (1, 128, 20), (5, 13, 9)):
        x, w = random(left, m, k), random(right, k, n)
        mod, args = product(x, w, constant)
        check(mod, args, wide(x) @ wide(w))


@pytest.mark.parametrize("left,right", [PAIRS[0], PAIRS[1], PAIRS[4]])
def test_the_right_side_may_lie_along_the_sum(left, right):
    for constant in (True, False):
        x, w = random(left, 9, 48), random(right, 70, 48)
        mod, args = product(x, w, constant, transposed=True)
        check(mod, args, wide(x) @ wide(w).T)


@pytest.mark.parametrize("left,right", [PAIRS[0], PAIRS[1], PAIRS[4]])
@pytest.mark.parametrize("cpu", ["haswell", "x86-64-v4"])
def test_machines_without_the_instructions(left, right, cpu):
    if cpu == "x86-64-v4" and "avx512vl" not in open("/proc/cpuinfo").read():
        pytest.skip("needs AVX-512")
    x, w = random(left, 9, 64), random(right, 64, 70)
    mod, args = product(x, w, True)
    check(mod, args, wide(x) @ wide(w), target=f"llvm -mcpu={cpu}")


def test_rows_known_at_run_time():
    w = random("int8", 64, 96)
    mod, _ = product(random("uint8", 1, 64), w, True, rows=relaxvm.tirx.Var("m", "int64"))
    for m in (1, 5, 13):
        x = random("uint8", m, 64)
        check(mod, [x], wide(x) @ wide(w))


@pytest.mark.parametrize("left,right", [*PAIRS[:3], PAIRS[4]])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=haswell", "llvm -mcpu=cascadelake"])
def test_sums_known_at_run_time_end_within_a_group(left, right, transposed, target):
    if target.endswith("cascadelake") and "avx512_vnni" not in open("/proc/cpuinfo").read():
        pytest.skip("needs AVX-512 with VNNI")
    b, m, k, n = (relaxvm.tirx.Var(name, "int64") for name in "bmkn")
    bb = relax.BlockBuilder()
    turned = [b, n, k] if transposed else [b, k, n]
    params = [
        relax.Var("x", relax.TensorType([b, m, k], left)),
        relax.Var("w", relax.TensorType(turned, right)),
    ]
    with bb.function("main", params):
        w = bb.emit(relax.op.permute_dims(params[1], [0, 2, 1])) if transposed else params[1]
        wide_type = "int32" if "int" in left else "float32"
        bb.emit_func_output(bb.emit(relax.op.matmul(params[0], w, out_dtype=wide_type)))
    vm = relax.VirtualMachine(relaxvm.compile(bb.get(), target=target), relaxvm.cpu())
    for sizes in ((1, 9, 36, 40), (2, 5, 33, 17), (1, 1, 7, 3), (1, 40, 130, 70), (3, 8, 3, 16)):
        x, w = random(left, *sizes[:3]), random(right, sizes[0], *sizes[2:])
        given = np.ascontiguousarray(w.transpose(0, 2, 1)) if transposed else w
        got = vm["main"](relaxvm.runtime.tensor(x), relaxvm.runtime.tensor(given)).numpy()
        np.testing.assert_allclose(got, wide(x) @ wide(w), rtol=1e-2, atol=sizes[2] ** 0.5 / 100)


def test_sums_of_unknown_length_go_by_groups():
    k = relaxvm.tirx.Var("k", "int64")
    bb = relax.BlockBuilder()
    params = [
        relax.Var("x", relax.TensorType([16, k], "uint8")),
        relax.Var("w", relax.TensorType([k, 64], "int8")),
    ]
    with bb.function("main", params):
        bb.emit_func_output(bb.emit(relax.op.matmul(*params, out_dtype="int32")))
    text = relaxvm.compile(bb.get(), target=WITH_GROUPS, stop_after="scheduled").script()
    assert 'packed = T.alloc_buffer((64 * (k // 4 + 1),), "int32")' in text


@pytest.mark.parametrize("left,right,pads", [("uint8", "int8", 1), ("int8", "int8", 0)])
def test_convolutions_of_bytes(left, right, pads):
    x, w = random(left, 1, 9, 10, 8), random(right, 3, 3, 8, 20)
    bb = relax.BlockBuilder()
    var = relax.Var("x", relax.TensorType(x.shape, left))
    with bb.function("main", [var]):
        y = relax.op.nn.conv2d(
            var, relax.const(w, right), padding=pads, data_layout="NHWC", kernel_layout="HWIO", out_dtype="int32"
        )  # fmt: skip
        bb.emit_func_output(bb.emit(y))
    padded = np.pad(wide(x), ((0, 0), (pads, pads), (pads, pads), (0, 0)))
    rows, columns = padded.shape[1] - 2, padded.shape[2] - 2
    want = sum(
        padded[:, i : i + rows, j : j + columns] @ wide(w)[i, j]
        for i, j in itertools.product(range(3), range(3))
    )
    check(bb.get(), [x], want)


# AVX without AVX2 has registers of integers that are half as long.
@pytest.mark.parametrize(
    "target,pairs", [("llvm -mcpu=cooperlake", True), ("llvm -mcpu=sandybridge", False)]
)
def test_groups_follow_the_machine(target, pairs):
    text = {}
    for left, right in (PAIRS[0], PAIRS[4]):
        mod, _ = product(random(left, 12, 64), random(right, 64, 128), True)
        text[left] = relaxvm.compile(
            mod, target=target, stop_after="ScheduleTensorPrograms"
        ).script()
    assert ("fast_bfloat16_pairs" in text["bfloat16"]) == pairs
    assert ("T.bitwise_and" in text["uint8"]) == pairs


@pytest.mark.parametrize(("depth", "columns"), [(2100, 4200), (1031, 8213)])
def test_one_row_with_a_right_side_past_the_caches(depth, columns):
    x, w = random("float32", 1, depth), random("float32", depth, columns)
    mod, args = product(x, w, constant=False)
    vm = relax.VirtualMachine(relaxvm.compile(mod), relaxvm.cpu())
    got = vm["main"](*(relaxvm.runtime.tensor(a) for a in args)).numpy()
    np.testing.assert_allclose(got, x @ w, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("cpu", ["x86-64-v2", "haswell"])
@pytest.mark.parametrize("left,right", PAIRS[:4])
def test_bytes_are_widened_by_their_signs(cpu, left, right):
    # Blocks of a line and of a vector of the left side, what is left behind them, and none at all.
    for m, k, n in ((13, 128, 40), (9, 96, 24), (300, 264, 16), (3, 20, 50)):
        x, w = random(left, m, k), random(right, k, n)
        for constant in (True, False):
            mod, args = product(x, w, constant)
            check(mod, args, wide(x) @ wide(w), f"llvm -mcpu={cpu}")


@pytest.mark.parametrize("left,right", PAIRS[:3])
def test_a_rows_bytes_are_widened_once_for_all_columns(left, right):
    mod, _ = product(random(left, 64, 256), random(right, 256, 64), constant=True)
    text = relaxvm.compile(mod, target="llvm -mcpu=haswell", stop_after="scheduled").script()
    assert "wide = T.alloc_buffer" in text


def neighbours(above: int, below: int) -> np.ndarray:
    """A right side of 64 x 40 whose two neighbours along the sum add up to so much, once of each sign."""
    w = np.zeros((64, 40), "int8")
    w[::2, ::2], w[1::2, ::2] = above // 2, above - above // 2
    w[::2, 1::2], w[1::2, 1::2] = below // 2, below - below // 2
    return w


@pytest.mark.parametrize("cpu", ["x86-64-v2", "haswell"])
@pytest.mark.parametrize("m", [1, 2, 7, 40])
def test_pairs_of_bytes_never_saturate(cpu, m):
    """What 16 bits hold just, what they do not, and both in one product."""
    x = np.full((m, 64), 255, "uint8")
    mixed = neighbours(128, -128)
    mixed[40:42, 3] = 127
    mixed[9, 38] = -128
    sums = [(128, -128), (129, -128), (128, -129), (254, -256)]
    for w in (*(neighbours(*s) for s in sums), mixed):
        mod, args = product(x, w, constant=True)
        check(mod, args, wide(x) @ wide(w), f"llvm -mcpu={cpu}")


@pytest.mark.parametrize("cpu", ["x86-64-v2", "haswell"])
@pytest.mark.parametrize("depth", [8, 12, 16, 20, 24, 28, 44, 68, 88, 144, 156])
def test_sums_that_no_vector_of_words_divides(cpu, depth):
    """Words left over are widened by fewer, and blocks of pairs are as long as the sum allows."""
    for m, types in itertools.product((1, 5, 30), PAIRS[:2]):
        x, w = random(types[0], m, depth), RNG.integers(-64, 65, (depth, 40), "int8")
        large = w.copy()
        large[depth // 2 : depth // 2 + 2, ::3] = -128
        for right in (w, large, random("int8", depth, 40)):
            mod, args = product(x, right, constant=True)
            check(mod, args, wide(x) @ wide(right), f"llvm -mcpu={cpu}")
    mod, args = product(np.full((30, depth), 255, "uint8"), w, constant=True)
    check(mod, args, wide(args[0]) @ wide(w), f"llvm -mcpu={cpu}")
    text = relaxvm.compile(mod, target=f"llvm -mcpu={cpu}", stop_after="scheduled").script()
    has_blocks = any((depth // 4) % block == 0 for block in range(4, 17))
    assert ("32767" in text) == has_blocks


@pytest.mark.parametrize("right", ["small", "random"])
def test_pairs_of_bytes_are_added_up_in_16_bits_where_weights_allow(right):
    """Of random weights nearly all blocks have large pairs: nothing asks for them."""
    w = random("int8", 128, 48) if right == "random" else RNG.integers(-64, 65, (128, 48), "int8")
    x = random("uint8", 30, 128)
    mod, args = product(x, w, constant=True)
    check(mod, args, wide(x) @ wide(w), "llvm -mcpu=haswell")
    text = relaxvm.compile(mod, target="llvm -mcpu=haswell", stop_after="scheduled").script()
    assert ("32767" in text) == (right == "small")


@pytest.mark.parametrize("dilation", [1, 3])
def test_windows_have_blocks_of_small_and_of_large_pairs(dilation):
    """Dilated, parts of windows are left out at the edges."""
    x, w = random("uint8", 1, 9, 11, 64), RNG.integers(-64, 65, (3, 3, 64, 40), "int8")
    w[1, 0, 4:6, 7] = 127
    w[2, 2, 50:52, 30] = -128
    bb = relax.BlockBuilder()
    params = [relax.Var("x", relax.TensorType(x.shape, "uint8"))]
    with bb.function("main", params):
        conv = relax.op.nn.conv2d(
            params[0],
            relax.const(w),
            strides=2,
            padding=dilation,
            dilation=dilation,
            data_layout="NHWC",
            kernel_layout="HWIO",
            out_dtype="int32",
        )
        bb.emit_func_output(bb.emit(conv))
    padded = np.pad(wide(x), ((0, 0), (dilation, dilation), (dilation, dilation), (0, 0)))
    want = sum(
        padded[:, i * dilation : i * dilation + 9 : 2, j * dilation : j * dilation + 11 : 2]
        @ wide(w[i, j])
        for i, j in itertools.product(range(3), range(3))
    )
    for target in ("llvm -mcpu=haswell", "llvm -mcpu=x86-64-v2"):
        check(bb.get(), [x], want, target)
    text = relaxvm.compile(bb.get(), target=target, stop_after="scheduled").script()
    assert "32767" in text


@pytest.mark.parametrize("depth", [8448, 8512])
def test_sums_by_blocks_have_notes(depth):
    """The sum goes block by block; the last block is shorter, and its notes are found as well."""
    w = RNG.integers(-64, 65, (depth, 64), "int8")
    w[8:10, 3] = w[depth // 2 : depth // 2 + 2, 20] = w[-2:, 60] = 127
    mod, args = product(np.full((70, depth), 255, "uint8"), w, constant=True)
    check(mod, args, wide(args[0]) @ wide(w), "llvm -mcpu=haswell")
    x = random("uint8", 70, depth)
    check(mod, [x], wide(x) @ wide(w), "llvm -mcpu=haswell")
    text = relaxvm.compile(mod, target="llvm -mcpu=haswell", stop_after="scheduled").script()
    assert "first_tile" in text and "32767" in text
