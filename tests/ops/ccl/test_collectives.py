# SPDX-License-Identifier: Apache-2.0
"""Collective operators: types, script, and the packed functions that they become."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import relaxvm
from relaxvm import relax
from relaxvm.relax.op import ccl
from relaxvm.relax.transform import LegalizeOps
from relaxvm.script import from_source
from relaxvm.script import relax as R


def program(
    make: Callable[[relax.Expr], relax.Expr], shape: tuple[int, ...] | None = (10, 4)
) -> relaxvm.IRModule:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(make(x)))
    return builder.finalize()


def result_of(make: Callable[[relax.Expr], relax.Expr], shape: tuple[int, ...] | None = (10, 4)):
    return program(make, shape)["main"].ret_ty


def test_types() -> None:
    same = relaxvm.ir.assert_structural_equal
    same(result_of(ccl.allreduce), R.Tensor((10, 4), "float32"))
    same(result_of(ccl.broadcast_from_worker0), R.Tensor((10, 4), "float32"))
    same(result_of(lambda x: ccl.allgather(x, 2)), R.Tensor((20, 4), "float32"))
    same(
        result_of(lambda x: ccl.scatter_from_worker0(x, 2, axis=-1)),
        R.Tensor((10, 2), "float32"),
    )
    same(result_of(lambda x: ccl.allgather(x, 2), None), R.Tensor(dtype="float32"))


def test_script_round_trip() -> None:
    mod = program(lambda x: ccl.allreduce(x, "max", in_group=False))
    assert 'R.ccl.allreduce(x, op_type="max", in_group=False)' in mod.script()
    relaxvm.ir.assert_structural_equal(from_source(mod.script()), mod)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda x: ccl.allreduce(x, "avg"), '"runtime.disco.allreduce", (x, R.shape([4]), '),
        (lambda x: ccl.allgather(x, 2), '"runtime.disco.allgather", (x, '),
        (ccl.broadcast_from_worker0, '"runtime.disco.broadcast_from_worker0", (x, '),
    ],
)
def test_become_packed_functions(make: Callable[[relax.Expr], relax.Expr], text: str) -> None:
    assert f"R.call_dps_packed({text}" in LegalizeOps()(program(make)).script()


def test_parts_of_workers_come_first_before_they_are_scattered() -> None:
    text = LegalizeOps()(program(lambda x: ccl.scatter_from_worker0(x, 2, axis=1))).script()
    assert "out_ty=R.Tensor((10, 2, 2)" in text
    assert "out_ty=R.Tensor((2, 10, 2)" in text
    assert 'R.call_dps_packed("runtime.disco.scatter_from_worker0"' in text


def test_errors() -> None:
    with pytest.raises(ValueError, match="axis 0 must be a multiple of the 3 workers, got 10"):
        result_of(lambda x: ccl.scatter_from_worker0(x, 3))
    with pytest.raises(ValueError, match="the shape of x must be known"):
        result_of(lambda x: ccl.scatter_from_worker0(x, 3), None)
    with pytest.raises(ValueError, match='op_type must be one of .*, got "mean"'):
        result_of(lambda x: ccl.allreduce(x, "mean"))
    with pytest.raises(ValueError, match="num_workers must be at least 1, got 0"):
        result_of(lambda x: ccl.allgather(x, 0))
