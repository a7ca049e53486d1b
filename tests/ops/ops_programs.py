# SPDX-License-Identifier: Apache-2.0
"""Modules of one function for each case, compiled together, and calls of them with NumPy arrays."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from ops_cases import DTYPES, Case, Spec, record, resize_literal

import relaxvm
from relaxvm import _compiler, relax, tirx
from relaxvm.relax.op.build import ROWS, call_operator

infer_type = _compiler.func("ops.InferType")


@dataclasses.dataclass(frozen=True, eq=False)
class Entry:
    """One function: a case, with each extent as a variable or not."""

    function: str
    case: Case
    symbolic: bool


def _variable(name: str, spec: Spec, dims: Mapping[int, Any]) -> Any:
    shape = [n if fixed else dims.get(n, n) for n, fixed in spec.dims]
    return relax.Var(name, relax.TensorType(shape, DTYPES[spec.dtype]))


def build_call(case: Case, symbolic: bool = False) -> tuple[list[Any], Any]:
    """The parameters and the call of a case."""
    dims = {n: tirx.Var(f"n{n}", "int64") for n in case.extents()} if symbolic else {}
    params: list[Any] = []
    values: dict[str, Any] = {}
    for name, spec in case.tensors:
        if isinstance(spec, tuple):
            values[name] = [_variable(f"{name}{i}", s, dims) for i, s in enumerate(spec)]
            params.extend(values[name])
        else:
            values[name] = _variable(name, spec, dims)
            params.append(values[name])
    arg_names = [a[0] for a in ROWS[case.op].args]
    attrs = {}
    for name, literal in case.values:
        if name in arg_names:
            values[name] = resize_literal(case, name, literal, dims)
        else:
            attrs[name] = literal
    defaults = record(case.op).defaults
    args: list[Any] = []
    for name in arg_names:
        if name not in values and defaults[name] is None:
            break
        args.append(values.get(name, defaults[name]))
    return params, call_operator(case.op, args, attrs)


def attributes(call: Any) -> dict[str, Any]:
    return {str(k): v for k, v in call.attrs.values.items()} if call.attrs is not None else {}


def build_module(entries: Sequence[Entry]) -> Any:
    builder = relax.BlockBuilder()
    for entry in entries:
        params, call = build_call(entry.case, entry.symbolic)
        with builder.function(entry.function, params):
            builder.emit_func_output(builder.emit(call))
    return builder.get()


def compile_entries(entries: Sequence[Entry]) -> Any:
    return relax.VirtualMachine(relaxvm.compile(build_module(entries)), relaxvm.cpu())


def run(machine: Any, entry: Entry, tensors: Mapping[str, Any]) -> list[np.ndarray]:
    flat: list[Any] = []
    for name, _ in entry.case.tensors:
        value = tensors[name]
        flat.extend(value if isinstance(value, list) else [value])
    result = machine[entry.function](*[relaxvm.runtime.tensor(v) for v in flat])
    if hasattr(result, "numpy"):
        return [result.numpy()]
    return [r.numpy() for r in result]
