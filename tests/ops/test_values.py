# SPDX-License-Identifier: Apache-2.0
"""Every operator against its reference, compiled: each sample as it is; the first one in every dtype that the type rule
allows; and each with variables for its extents, at several sizes from one compilation.  Many operators share a module,
so that there are few compilations."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import pytest
from ops_cases import DTYPES, Case, all_records, assert_close, expected, make_tensors
from ops_programs import Entry, attributes, build_call, compile_entries, infer_type, run

RECORDS = [r for r in all_records() if r.computed]
OPERATORS = [r.name for r in RECORDS]
OPERATORS_PER_MODULE = 12
SIZES = (0, 1, 16, 17)
LARGE = (130, 17, 3, 5, 2, 4, 7)  # the first variable gets the first size, and so on


@functools.cache
def dtypes_of(case: Case) -> tuple[str, ...]:
    """The dtypes of the main argument that the type rule takes, but those the record excepts."""
    if case.primary() is None:
        return ()
    allowed = []
    for short in DTYPES:
        try:
            infer_type(build_call(case.with_dtype(short))[1])
        except TypeError:
            continue
        allowed.append(short)
    return tuple(allowed)


@functools.cache
def entries_of(name: str) -> tuple[Entry, ...]:
    record = RECORDS[OPERATORS.index(name)]
    plain = name.replace(".", "_")
    entries = []
    for case in record.cases:
        entries.append(Entry(f"{plain}_{case.number}", case, False))
        if case.extents() and "symbolic" not in record.exceptions:
            entries.append(Entry(f"{plain}_{case.number}_symbolic", case, True))
    for short in dtypes_of(record.cases[0]):
        if short not in record.exceptions and short != record.cases[0].primary():
            entries.append(Entry(f"{plain}_{short}", record.cases[0].with_dtype(short), False))
    return tuple(entries)


@functools.cache
def _group_machine(group: int) -> Any:
    """None when the group does not compile."""
    names = OPERATORS[group * OPERATORS_PER_MODULE : (group + 1) * OPERATORS_PER_MODULE]
    try:
        return compile_entries([entry for name in names for entry in entries_of(name)])
    except Exception:
        return None


@functools.cache
def machine_for(name: str) -> Any:
    """The module with the operator; one of its own when a neighbour does not compile."""
    machine = _group_machine(OPERATORS.index(name) // OPERATORS_PER_MODULE)
    return machine if machine is not None else compile_entries(entries_of(name))


def check(machine: Any, entry: Entry, sizes: Mapping[int, int] | None = None) -> bool:
    """False when NumPy itself has no result for these sizes."""
    tensors = make_tensors(entry.case, sizes)
    attrs = attributes(build_call(entry.case)[1])
    try:
        results = expected(entry.case, attrs, tensors, sizes)
    except (ValueError, IndexError, ZeroDivisionError):
        if sizes is None:
            raise
        return False
    what = f"{entry.function} at {dict(sizes or {})}"
    got = run(machine, entry, tensors)
    assert len(got) == len(results)
    for mine, wanted in zip(got, results, strict=True):
        assert_close(mine, wanted, what)
    return True


@pytest.mark.parametrize("name", OPERATORS)
def test_agrees_with_reference_in_every_dtype(name: str) -> None:
    machine = machine_for(name)
    for entry in entries_of(name):
        if not entry.symbolic:
            check(machine, entry)


@pytest.mark.parametrize("name", [n for n in OPERATORS if any(e.symbolic for e in entries_of(n))])
def test_agrees_with_reference_at_every_size(name: str) -> None:
    machine = machine_for(name)
    for entry in entries_of(name):
        if not entry.symbolic:
            continue
        extents = entry.case.extents()
        done = [check(machine, entry, dict.fromkeys(extents, size)) for size in SIZES]
        done.append(check(machine, entry, dict(zip(extents, LARGE, strict=False))))
        assert any(done[2:]), f"{entry.function}: NumPy has no result at any of the larger sizes"


def test_symbolic_exceptions_have_reasons() -> None:
    for record in RECORDS:
        for what, reason in record.exceptions.items():
            assert what in DTYPES or what == "symbolic"
            assert len(reason) > 10
