# SPDX-License-Identifier: Apache-2.0
"""Pools whose windows are reduced one axis after the other, and those that a network's layout pass turns."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import ops_references_nn as references
import pytest

import relaxvm
from relaxvm import relax, tirx
from relaxvm.relax import op


@dataclasses.dataclass(frozen=True)
class Case:
    size: list[int]
    strides: list[int]
    padding: list[int]
    dilation: list[int]
    ceil: bool = False
    layout: str = "NCHW"
    dtype: str = "float32"

    def shape(self) -> tuple[int, ...]:
        spatial = {"W": (37,), "H": (23, 19), "D": (7, 11, 13)}["WHD"[len(self.size) - 1]]
        sizes = iter(spatial)
        return tuple({"N": 2, "C": 17}[c] if c in "NC" else next(sizes) for c in self.layout)


CASES = {
    "5x5": Case([5, 5], [1, 1], [2, 2, 2, 2], [1, 1]),
    "9x9 channels last": Case([9, 9], [1, 1], [4, 4, 4, 4], [1, 1], layout="NHWC"),
    "13x3": Case([13, 3], [1, 1], [6, 1, 0, 1], [1, 1]),
    "7x7 step 2, ceil": Case([7, 7], [2, 2], [3, 1, 0, 2], [1, 1], True),
    "5x5 dilated": Case([5, 5], [1, 2], [4, 4, 4, 4], [2, 3]),
    "5x5 bytes": Case([5, 5], [1, 1], [2, 2, 2, 2], [1, 1], dtype="uint8"),
    "5x5 int32": Case([5, 5], [1, 1], [0, 0, 0, 0], [1, 1], dtype="int32"),
    "5x5 float16": Case([5, 5], [1, 1], [2, 2, 2, 2], [1, 1], dtype="float16"),
    "whole height": Case([23, 5], [1, 1], [0, 0, 0, 0], [1, 1]),
    "whole image": Case([23, 19], [1, 1], [0, 0, 0, 0], [1, 1]),
    "volume": Case([3, 3, 3], [1, 1, 1], [1, 1, 1, 1, 1, 1], [1, 1, 1], layout="NCDHW"),
    "volume, channels last": Case(
        [3, 5, 3], [2, 1, 1], [1, 2, 1, 1, 2, 1], [1, 1, 1], layout="NDHWC"
    ),
    "far apart": Case([7, 7], [7, 7], [1, 1, 1, 1], [1, 1]),
    "short rows": Case([3, 3], [3, 3], [1, 1, 1, 1], [1, 1]),
}


def run(case: Case, average: bool, is_open: bool, x: np.ndarray, target: str) -> Any:
    kind = f"{'avg' if average else 'max'}_pool{len(case.size)}d"
    sizes = [
        tirx.Var(c.lower(), "int64") if is_open and c != "C" else d
        for c, d in zip(case.layout, case.shape(), strict=True)
    ]
    data = relax.Var("data", relax.TensorType(sizes, case.dtype))
    builder = relax.BlockBuilder()
    with builder.function("main", [data]):
        call = getattr(op.nn, kind)(
            data, pool_size=case.size, strides=case.strides, padding=case.padding,
            dilation=case.dilation, ceil_mode=case.ceil, layout=case.layout,
            **({"count_include_pad": False} if average else {}),
        )  # fmt: skip
        builder.emit_func_output(builder.emit(call))
    machine = relax.VirtualMachine(relaxvm.compile(builder.get(), target), relaxvm.cpu())
    return machine["main"](relaxvm.runtime.tensor(x)).numpy()


@pytest.mark.parametrize("is_open", [False, True], ids=["known", "open"])
@pytest.mark.parametrize("average", [False, True], ids=["max", "avg"])
@pytest.mark.parametrize("name", CASES)
def test_pool(name: str, average: bool, is_open: bool) -> None:
    case = CASES[name]
    rng = np.random.default_rng(0)
    x = (rng.standard_normal(case.shape()) * 30).astype(case.dtype)
    if not average and x.dtype.kind == "f":
        x[0, ..., 3] = -np.inf
    given = (case.size, case.strides, case.padding, case.dilation, case.ceil)
    layouts = (case.layout, case.layout)
    wide = x.astype("float64") if x.dtype.kind == "f" else x
    if average:
        want = references.avg_pool(wide, *given, False, *layouts)  # sums of bytes are bytes
    else:
        want = references.max_pool(wide, *given, *layouts)
    got = run(case, average, is_open, x, "llvm")
    assert got.dtype == case.dtype
    tolerance = {"float32": 2e-5, "float16": 4e-2}.get(case.dtype, 0) if average else 0
    np.testing.assert_allclose(got.astype("float64"), want, rtol=0, atol=tolerance)


@pytest.mark.parametrize("name", ["5x5", "13x3", "whole height"])
def test_nan_goes_through_both_axes(name: str) -> None:
    case = CASES[name]
    x = np.zeros(case.shape(), "float32")
    x[1, 2, 7, 9] = np.nan
    given = (case.size, case.strides, case.padding, case.dilation, case.ceil)
    want = references.max_pool(x, *given, case.layout, case.layout)
    assert np.isnan(want).any()
    np.testing.assert_array_equal(run(case, False, False, x, "llvm"), want)


def test_avx2() -> None:
    for case in (CASES["5x5"], CASES["9x9 channels last"], CASES["volume"]):
        x = np.random.default_rng(1).standard_normal(case.shape()).astype("float32")
        given = (case.size, case.strides, case.padding, case.dilation, case.ceil)
        want = references.max_pool(x, *given, case.layout, case.layout)
        np.testing.assert_array_equal(run(case, False, False, x, "llvm -mcpu=haswell"), want)
