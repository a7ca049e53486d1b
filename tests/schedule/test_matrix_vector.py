# SPDX-License-Identifier: Apache-2.0
"""A row times a matrix, and a matrix times a column: each matrix is read once, from end to end.  Small whole numbers make
sums exact in any order."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import relax
from relaxvm.relax import op

RNG = np.random.default_rng(0)
TARGETS = ["llvm", "llvm -mcpu=haswell", "llvm -mcpu=x86-64-v2"]


def whole(*shape: int, dtype: str = "float32") -> np.ndarray:
    return RNG.integers(-3, 4, shape).astype(dtype)


def module(left: tuple, right: tuple, dtype: str, bias: np.ndarray | None = None) -> Any:
    """relu(a @ b + bias); without a bias a @ b."""
    builder = relax.BlockBuilder()
    params = [relax.Var(n, relax.TensorType(s, dtype)) for n, s in (("a", left), ("b", right))]
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit(op.matmul(*params))
            if bias is not None:
                out = builder.emit(op.nn.relu(builder.emit(op.add(out, relax.const(bias)))))
            out = builder.emit_output(out)
        builder.emit_func_output(out)
    return builder.get()


def check(mod: Any, a: np.ndarray, b: np.ndarray, want: np.ndarray, target: str) -> None:
    """With one thread and with three."""
    vm = relaxvm.VirtualMachine(relaxvm.compile(mod, target=target), relaxvm.cpu())
    for threads in (1, 3):
        vm.set_num_threads(threads)
        got = vm["main"](*(relaxvm.runtime.tensor(x) for x in (a, b))).numpy()
        np.testing.assert_array_equal(got, want)


def scheduled(left: tuple, right: tuple) -> str:
    mod = module(left, right, "float32")
    return relaxvm.compile(mod, target="llvm", stop_after="scheduled").script()


# Whole vectors; a part of one; columns that make several tasks; too few rows of B for parts of the sum, none at all.
@pytest.mark.parametrize(
    "depth,columns", [(300, 512), (259, 1000), (70, 4097), (64, 2048), (9, 700), (0, 600)]
)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_one_row(depth: int, columns: int, target: str, dtype: str) -> None:
    a, b = whole(1, depth, dtype=dtype), whole(depth, columns, dtype=dtype)
    check(module(a.shape, b.shape, dtype), a, b, a @ b, target)


@pytest.mark.parametrize("depth", [0, 1, 255, 256, 1001])
def test_one_row_of_unknown_depth_that_is_finished(depth: int) -> None:
    k = relaxvm.tirx.Var("k", "int64")
    a, b, bias = whole(1, depth), whole(depth, 900), whole(900)
    check(module((1, k), (k, 900), "float32", bias), a, b, np.maximum(a @ b + bias, 0), "llvm")


@pytest.mark.parametrize("columns", [600, 2100])
def test_one_row_of_each_of_several_matrices(columns: int) -> None:
    a, b = whole(3, 1, 280), whole(3, 280, columns)
    check(module(a.shape, b.shape, "float32"), a, b, a @ b, "llvm")


def constant_right(rows: Any, b: np.ndarray, bias: np.ndarray) -> Any:
    """relu(a @ b + bias), a right side that is known."""
    builder = relax.BlockBuilder()
    a = relax.Var("a", relax.TensorType((rows, b.shape[0]), "float32"))
    with builder.function("main", [a]):
        with builder.dataflow():
            out = builder.emit(op.matmul(a, relax.const(b)))
            out = builder.emit(op.add(out, relax.const(bias)))
            out = builder.emit_output(builder.emit(op.nn.relu(out)))
        builder.emit_func_output(out)
    return builder.get()


# Panels that divide by those of a tile, that do not, too few to share, a last one that is not full.
@pytest.mark.parametrize("columns", [512, 336, 368, 48, 330])
@pytest.mark.parametrize("target", TARGETS)
def test_few_rows_times_the_panels_of_a_constant(columns: int, target: str) -> None:
    b, bias = whole(70, columns), whole(columns)
    unknown = constant_right(relaxvm.tirx.Var("m", "int64"), b, bias)
    vm = relaxvm.VirtualMachine(relaxvm.compile(unknown, target=target), relaxvm.cpu())
    for rows in (0, 1, 2, 3, 5, 9, 40):
        a = whole(rows, 70)
        want = np.maximum(a @ b + bias, 0)
        np.testing.assert_array_equal(vm["main"](relaxvm.runtime.tensor(a)).numpy(), want)
        if 0 < rows < 4:
            known = relaxvm.compile(constant_right(rows, b, bias), target=target)
            alone = relaxvm.VirtualMachine(known, relaxvm.cpu())
            np.testing.assert_array_equal(alone["main"](relaxvm.runtime.tensor(a)).numpy(), want)


def test_a_row_takes_several_panels_at_once_where_vectors_are_short() -> None:
    mod = constant_right(1, whole(70, 512), whole(512))
    text = relaxvm.compile(mod, target="llvm -mcpu=haswell", stop_after="scheduled").script()
    assert "panels * 4" in text and "i1 + 3" in text
    mod = constant_right(1, whole(70, 520), whole(520))  # a last panel that is not full
    text = relaxvm.compile(mod, target="llvm -mcpu=haswell", stop_after="scheduled").script()
    assert "panel * 4 + 3" in text


def test_a_matrix_larger_than_the_caches_is_fetched_ahead() -> None:
    a, b = whole(1, 4100), whole(4100, 4096)
    check(module(a.shape, b.shape, "float32"), a, b, a @ b, "llvm")


# One result; a vector of results; more; sums of less than a vector, of one, of several, of a part of one more.
@pytest.mark.parametrize("rows", [1, 16, 37, 1100])
@pytest.mark.parametrize("depth", [0, 1, 3, 5, 16, 40, 64, 131])
@pytest.mark.parametrize("target", TARGETS)
def test_one_column(rows: int, depth: int, target: str) -> None:
    a, b = whole(rows, depth), whole(depth, 1)
    check(module(a.shape, b.shape, "float32"), a, b, a @ b, target)


@pytest.mark.parametrize("rows", [0, 5, 33])
def test_one_column_of_each_of_several_matrices(rows: int) -> None:
    m = relaxvm.tirx.Var("m", "int64")
    a, b, bias = whole(4, rows, 50), whole(4, 50, 1), whole(1)
    want = np.maximum(a @ b + bias, 0)
    check(module((4, m, 50), b.shape, "float32", bias), a, b, want, "llvm")


def test_a_column_is_multiplied_along_the_vectors() -> None:
    assert "reduce_add" in scheduled((10, 500), (500, 1))


def test_a_row_reads_runs_of_several_rows_of_the_matrix() -> None:
    text = scheduled((1, 1024), (1024, 1024))
    assert "sums" in text and text.count("left") > 4


@pytest.mark.parametrize("rows,columns", [(1, 1), (7, 33), (40, 1000)])
def test_products_of_a_column_and_a_row_are_no_sums(rows: int, columns: int) -> None:
    a, b, bias = whole(rows, 1), whole(1, columns), whole(columns)
    mod = module(a.shape, b.shape, "float32", bias)
    check(mod, a, b, np.maximum(a @ b + bias, 0), "llvm")
    text = relaxvm.compile(mod, target="llvm", stop_after="scheduled").script()
    assert text.count("T.prim_func") == 1 and "acc" not in text


@pytest.mark.parametrize("depth", [1000, 768, 900])
def test_the_rows_to_fetch_are_found_once_for_each_cache_line(depth: int) -> None:
    """In every step of the sum, that costs a fourth of the instructions."""
    mod = constant_right(1000, whole(depth, 16), whole(16))
    text = relaxvm.compile(mod, target="llvm -mcpu=haswell", stop_after="scheduled").script()
    fetches = re.findall(r'serial\(T.int64\((\d+)\), annotations={"prefetch": a\[([^]]*)\]', text)
    assert fetches
    for blocks, place in fetches:
        assert int(blocks) == depth // 16
        assert "//" not in place and "%" not in place


def test_rows_that_stay_in_the_cache_have_the_next_panel_fetched() -> None:
    """Left and right side are larger than the second cache: a block of rows is read again from there, the weight is not."""
    mod = constant_right(1000, whole(1000, 512), whole(512))
    text = relaxvm.compile(mod, target="llvm -mcpu=haswell", stop_after="scheduled").script()
    assert re.search(r'"prefetch": param_\d\[', text) and '"prefetch": a[' not in text


def test_tiles_share_what_they_fetch_of_the_next_panel() -> None:
    """How many there are, and so how much each of them fetches, is known at run time only."""
    mod = constant_right(relaxvm.tirx.Var("m", "int64"), whole(768, 512), whole(512))
    text = relaxvm.compile(mod, target="llvm -mcpu=skylake-avx512", stop_after="scheduled").script()
    assert re.search(r"share: T.int64 = .*// T.max\(chunks_of_block, 1\)", text)
    # Tiles of six rows have a loop over the sum that fetches, then one that does not; lower ones
    # have one, which ends at the line after the share.  None has a branch in it.
    tall = text[text.index("if height == 6") : text.index("if height == 5")]
    low = text[text.index("if height == 5") : text.index("if height == 4")]
    sums = r"for (first|further|iteration)\w* in "
    assert re.findall(sums, tall) == ["first", "further"] and re.findall(sums, low) == ["iteration"]
    assert tall.count('"prefetch"') == low.count('"prefetch"') > 0
    assert re.search(r"T.min\(iteration\w*, fetching", low) and "T.min(first" not in tall
    assert '"prefetch": ' in text and '"prefetch_near": ' not in text
    text = relaxvm.compile(mod, target="llvm -mcpu=sapphirerapids", stop_after="scheduled").script()
    assert '"prefetch_near": ' in text  # of a tile that is alone


@pytest.mark.parametrize("target", TARGETS)
def test_tiles_of_all_heights_share_what_finishes_their_sums(target: str) -> None:
    """A polynomial is much code: it is there once for each kind of panel."""
    b = whole(40, 64)
    builder = relax.BlockBuilder()
    a = relax.Var("a", relax.TensorType((relaxvm.tirx.Var("m", "int64"), 40), "float32"))
    with builder.function("main", [a]):
        with builder.dataflow():
            out = builder.emit(op.matmul(a, relax.const(b)))
            out = builder.emit_output(builder.emit(op.tanh(out)))
        builder.emit_func_output(out)
    text = relaxvm.compile(builder.get(), target=target, stop_after="scheduled").script()
    by_height = text[text.index("if height == ") :]
    assert len(re.findall(r"if height == \d", by_height)) >= 3 and by_height.count("T.tanh(") == 1
    vm = relaxvm.VirtualMachine(relaxvm.compile(builder.get(), target=target), relaxvm.cpu())
    for rows in range(40):
        x = whole(rows, 40) / 64
        np.testing.assert_allclose(vm["main"](x).numpy(), np.tanh(x @ b), atol=1e-6)
