# SPDX-License-Identifier: Apache-2.0
"""relaxvm inspect"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from .._session.signature import Signature, read_signature
from .files import parse_shapes
from .models import compile_model, import_model, is_library
from .report import Report


@dataclasses.dataclass
class Parts:
    """What to show besides the overview; nothing chosen shows the overview alone."""

    kernels: bool
    memory: bool
    bytecode: bool
    script: bool


def run(report: Report, model: Path, target: str, parts: Parts, shapes: list[str]) -> None:
    if not is_library(model):
        _model(report, model, target, parts, parse_shapes(shapes))
    elif shapes:
        raise ValueError(f"'{model}': --shape needs the model, a compiled library holds no plan")
    else:
        _library(report, model, parts)


def _library(report: Report, path: Path, parts: Parts) -> None:
    from .. import runtime

    executable = runtime.load_module(str(path.absolute()))
    signature = read_signature(runtime.VirtualMachine(executable, runtime.cpu()))
    _signature(report, path, signature)
    _executable(report, executable, parts)
    for wanted, name in (
        (parts.kernels, "kernels"),
        (parts.memory, "memory"),
        (parts.script, "script"),
    ):
        if wanted:
            raise ValueError(
                f"'{path}': a compiled library holds no {name}; inspect the model it came from"
            )


def _model(report: Report, path: Path, target: str, parts: Parts, shapes: dict[str, list]) -> None:
    from .. import compile as compile_module

    module, signature = import_model(path, {})
    sizes = _sizes(signature, shapes)
    _signature(report, path, signature)
    executable = compile_model(report, module, signature, target)
    scheduled = compile_module(module, target=target, stop_after="scheduled")
    planned = compile_module(module, target=target, stop_after="planned")
    _kernels(report, scheduled, parts)
    _memory(report, planned, parts, sizes)
    _executable(report, executable, parts)
    if parts.script:
        report.code("script", module.script(), "python")
    report.set(script=module.script())


def _signature(report: Report, path: Path, signature: Signature | None) -> None:
    report.set(model=str(path))
    if signature is None:
        report.line(f"{path}: carries no description of its inputs and outputs")
        return
    for title, entries in (("inputs", signature.inputs), ("outputs", signature.outputs)):
        report.set(**{title: [dataclasses.asdict(a) for a in entries]})
        report.table(
            title, ["name", "dtype", "shape"], [(a.name, a.dtype, a.shape) for a in entries]
        )


def _executable(report: Report, executable: Any, parts: Parts) -> None:
    stats, text = executable.stats(), executable.as_text()
    report.set(stats=stats, bytecode=text)
    report.line(stats)
    if parts.bytecode:
        report.code("bytecode", text, "text")


def _kernels(report: Report, scheduled: Any, parts: Parts) -> None:
    from ..tirx import PrimFunc

    calls = _count_calls(scheduled)
    kernels = [
        {"name": var.name_hint, "calls": calls.get(var.name_hint, 0), "script": func.script()}
        for var, func in scheduled.functions_items()
        if isinstance(func, PrimFunc)
    ]
    report.set(kernels=kernels)
    report.table("kernels", ["name", "calls"], [(k["name"], k["calls"]) for k in kernels])
    if parts.kernels:
        for kernel in kernels:
            report.code(kernel["name"], kernel["script"], "python")


def _count_calls(module: Any) -> dict[str, int]:
    """How often each tensor program is named in the functions of the graph."""
    import re

    from ..relax import Function

    counts: dict[str, int] = {}
    for _, func in module.functions_items():
        if isinstance(func, Function):
            for name in re.findall(r"\bcls\.(\w+)", func.script()):
                counts[name] = counts.get(name, 0) + 1
    return counts


def _memory(report: Report, planned: Any, parts: Parts, sizes: dict[str, int]) -> None:
    main = planned["main"].script()
    rows = [line.strip() for line in main.splitlines() if "alloc_storage" in line]
    report.set(memory=rows)
    if parts.memory:
        report.code("memory plan", "\n".join(rows), "python")
    report.line(f"memory plan: {len(rows)} storages")
    peaks = _peaks(planned, sizes)
    report.set(memory_peaks=peaks)
    report.table(
        "memory in bytes",
        ["sizes", "reserved at the peak", "most bytes alive"],
        [(_assignment(p["sizes"]), p["planned_peak"], p["most_alive"]) for p in peaks],
    )


def _assignment(sizes: dict[str, int]) -> str:
    return ", ".join(f"{name} = {size}" for name, size in sizes.items()) or "all known"


def _sizes(signature: Signature, shapes: dict[str, list]) -> dict[str, int]:
    """The symbolic dimensions that the shapes of inputs settle."""
    inputs = {a.name: a.shape for a in signature.inputs}
    sizes: dict[str, int] = {}
    for name, shape in shapes.items():
        if name not in inputs:
            raise ValueError(f"there is no input called '{name}'; the inputs are {list(inputs)}")
        wanted = inputs[name]
        if len(shape) != len(wanted) or not all(isinstance(d, int) for d in shape):
            raise ValueError(f"--shape {name}: the shape is {wanted}; give a number for each")
        for want, have in zip(wanted, shape):
            if have != (sizes.setdefault(want, have) if isinstance(want, str) else want):
                raise ValueError(f"--shape {name}: the dimension {want} cannot be {have}")
    return sizes


def _peaks(planned: Any, sizes: dict[str, int]) -> list[dict[str, Any]]:
    """What the plan reserves at some sizes; nothing where sizes come out of the data."""
    from .._compiler import func
    from ..relax.analysis import tir_vars_in_type

    names = sorted({str(v.name) for p in planned["main"].params for v in tir_vars_in_type(p.ty)})
    missing = [name for name in names if name not in sizes]
    if sizes and missing:
        raise ValueError(f"--shape leaves {', '.join(missing)} open; give the other inputs' too")
    trials = [sizes] if sizes or not names else [dict.fromkeys(names, n) for n in (1, 64, 640)]
    peaks: list[dict[str, Any]] = []
    for trial in trials:
        try:
            report = func("pipeline.ReportMemory")(planned, "main", trial)
        except ValueError:
            return []
        peaks.append({"sizes": trial, **{str(k): int(v) for k, v in report.items()}})
    return peaks
