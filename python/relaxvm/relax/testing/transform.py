# SPDX-License-Identifier: Apache-2.0
"""Passes and analyses for tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ... import _compiler
from ...ir.expr import Call, Var
from ...ir.module import IRModule
from ..expr import DataflowBlock


def ApplyEmptyCppMutator() -> Any:
    """A pass that rebuilds every function as the compiler's own passes do, and changes nothing else."""
    from ..transform import Normalize  # type: ignore[attr-defined]

    return Normalize()


def dataflow_liveness_analysis(block: DataflowBlock) -> dict[Var, tuple[int, int]]:
    """For each variable of a block the first and the last binding that need it: -1 for one from outside, the number of
    bindings for one that leaves the block.  Taking an item of a tuple is no use of the tuple."""
    ranges = _compiler.func("analysis.dataflow_live_ranges")(block)
    return {var: (int(start), int(end)) for var, start, end in ranges}


def dataflow_alias_analysis(
    block: DataflowBlock, inputs: Sequence[Var]
) -> tuple[dict[Var, set[int]], dict[int, list[set[int]]]]:
    """Which values of a block may share memory.

    Memory has numbers: the inputs first, then each new value; -1 is memory that neither made.  The first result says
    for each variable what it may be, the second for each number of a tuple what its fields may be."""
    variables, tuples = _compiler.func("analysis.dataflow_memory")(block, list(inputs))
    return (
        {var: {int(n) for n in numbers} for var, numbers in variables},
        {int(number): [{int(n) for n in field} for field in fields] for number, fields in tuples},
    )


def dataflow_inplace_analysis(
    block: DataflowBlock, inputs: Sequence[Var], mod: IRModule
) -> tuple[list[tuple[int, set[int]]], list[tuple[int, set[int]]]]:
    """The bindings of a block whose result may be written over an argument, and over which (by index): those of as many
    elements as the result, and those of its shape."""
    by_size, by_shape = _compiler.func("analysis.dataflow_inplace_calls")(block, list(inputs))
    return _opportunities(by_size), _opportunities(by_shape)


def _opportunities(rows: Any) -> list[tuple[int, set[int]]]:
    return [(int(binding), {int(a) for a in args}) for binding, args in rows]


def dataflow_single_inplace_call(
    mod: IRModule, call: Call, inplace_indices: Sequence[int]
) -> tuple[Call, IRModule]:
    """An operator's call as call_tir_inplace over one of its arguments, whoever else may read it; and the module with
    the tensor program that it calls.  Raises ValueError for an argument that the operator still reads after it would be
    written, or for other than one index."""
    if len(inplace_indices) != 1:
        raise ValueError(
            f"one result is written over one argument, not over {len(inplace_indices)}; give one index"
        )
    made, module = _compiler.func("analysis.inplace_call")(mod, call, int(inplace_indices[0]))
    return made, module
