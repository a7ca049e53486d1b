# SPDX-License-Identifier: Apache-2.0
"""Type rules against the shapes and dtypes of the references, derived from the records."""

from __future__ import annotations

import numpy as np
import pytest
from ops_cases import NUMPY, SHORT, Case, all_records, expected, make_tensors
from ops_programs import attributes, build_call, infer_type

from relaxvm import relax, tirx

RECORDS = all_records()
CASES = [case for rec in RECORDS if rec.reference for case in rec.cases]


def _fields(ty: object) -> list[object]:
    return list(ty.fields) if isinstance(ty, relax.TupleType) else [ty]


def _ids(case: Case) -> str:
    return case.name


def test_every_computed_operator_has_a_reference_and_samples() -> None:
    missing = [r.name for r in RECORDS if r.computed and not (r.reference and r.cases)]
    assert missing == []


@pytest.mark.parametrize("case", CASES, ids=_ids)
def test_type_of_sample_is_that_of_its_reference(case: Case) -> None:
    _, call = build_call(case)
    types = _fields(infer_type(call))
    tensors = make_tensors(case)
    results = expected(case, attributes(call), tensors)
    assert len(types) == len(results)
    for ty, result in zip(types, results, strict=True):
        assert [int(d) for d in ty.shape] == list(result.shape)
        dtype = NUMPY[SHORT[str(ty.dtype)]]
        if result.dtype.kind in "biu" and dtype.kind in "biu":
            assert (dtype.kind == "b") == (result.dtype.kind == "b")
        else:
            assert np.dtype(dtype).kind in "fV"  # V: bfloat16


@pytest.mark.parametrize("case", [c for c in CASES if c.extents()], ids=_ids)
def test_type_with_variables_has_known_dimensions(case: Case) -> None:
    _, call = build_call(case, symbolic=True)
    for ty in _fields(infer_type(call)):
        assert ty.shape is not None, f"{case.name}: {ty}"


@pytest.mark.parametrize("case", CASES, ids=_ids)
def test_type_of_unknown_shapes_keeps_rank_and_dtype(case: Case) -> None:
    params, call = build_call(case)
    if not params:
        return
    known = _fields(infer_type(call))
    unknown = {
        p: relax.Var(p.name, relax.TensorType(dtype=p.ty.dtype, ndim=p.ty.ndim)) for p in params
    }
    replaced = relax.Call(call.op, [_replace(a, unknown) for a in call.args], call.attrs)
    for ty, before in zip(_fields(infer_type(replaced)), known, strict=True):
        assert str(ty.dtype) == str(before.dtype)
        assert ty.ndim in (before.ndim, -1)


def _replace(arg: object, unknown: dict[object, object]) -> object:
    if isinstance(arg, relax.Tuple):
        return relax.Tuple([_replace(f, unknown) for f in arg.fields])
    for var, other in unknown.items():
        if arg.same_as(var):
            return other
    return arg


def test_dimension_variables_are_not_confused() -> None:
    n, m = tirx.Var("n", "int64"), tirx.Var("m", "int64")
    x = relax.Var("x", relax.TensorType((n, 4), "float32"))
    y = relax.Var("y", relax.TensorType((m, 4), "float32"))
    ty = infer_type(relax.op.add(x, y))
    assert ty.shape is None
    assert ty.ndim == 2
