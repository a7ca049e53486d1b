# SPDX-License-Identifier: Apache-2.0
"""relaxvm run"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .._session.arguments import Checker, numpy_dtype
from .._session.signature import NodeArg, Signature
from ..runtime.tensor import borrow
from .files import check_writable, parse_shapes, read_inputs, whole_file
from .models import open_model
from .report import Report

# A random input of more elements is a slip of the keyboard.
MAX_RANDOM_ELEMENTS = 1 << 32


@dataclasses.dataclass
class Options:
    inputs: list[str]
    shapes: list[str]
    output: Path | None
    seed: int
    repeat: int
    num_threads: int
    target: str
    profile: bool = False
    trace: Path | None = None


def run(report: Report, model: Path, options: Options) -> None:
    files, shapes = read_inputs(options.inputs), parse_shapes(options.shapes)
    for path in (options.output, options.trace):
        if path is not None:
            check_writable(path)
    source = open_model(model)
    feed = make_feed(source.signature, files, shapes, options.seed)
    checker = Checker(source.signature)
    arrays = checker.inputs(feed)  # before minutes of compiling
    vm = _start(source.executable(report, options.target), options.num_threads)
    best, outputs = math.inf, []
    for _ in range(options.repeat):
        start = time.perf_counter()
        result = vm["main"](*[borrow(array) for array in arrays])
        best = min(best, time.perf_counter() - start)
        outputs = [r.numpy() for r in ([result] if checker.single else result)]
    named = dict(zip((o.name for o in source.signature.outputs), outputs))
    if options.output is not None:
        with whole_file(options.output) as scratch, open(scratch, "wb") as file:
            np.savez(file, **named)
    _report(report, feed, named, best, options)
    if options.profile or options.trace is not None:
        _profile(report, vm, arrays, options)


def _profile(report: Report, vm: Any, arrays: Sequence[np.ndarray], options: Options) -> None:
    profile = vm.profile("main", *arrays)
    if options.trace is not None:
        profile.save_trace(options.trace)
        report.set(trace=str(options.trace))
        report.line(f"trace: {options.trace}; open it in https://ui.perfetto.dev")
    if options.profile:
        report.set(profile=profile.to_dict())
        report.line(profile.table())


def _start(executable: Any, num_threads: int) -> Any:
    from .._session.build import apply_threads
    from ..runtime import VirtualMachine, cpu

    vm = VirtualMachine(executable, cpu())
    apply_threads(vm, num_threads)
    return vm


def make_feed(
    signature: Signature, files: dict[str, np.ndarray], shapes: dict[str, list], seed: int
) -> dict[str, np.ndarray]:
    """Arrays from files, random ones for the rest."""
    names = [a.name for a in signature.inputs]
    for name in (*files, *shapes):
        if name not in names:
            raise ValueError(f"there is no input called '{name}'; the inputs are {names}")
    both = sorted(set(files) & set(shapes))
    if both:
        raise ValueError(f"the input '{both[0]}' has a file and a shape; give one of them")
    rng = np.random.default_rng(seed)
    sizes: dict[str, int] = {}
    for spec in signature.inputs:
        for want, have in zip(spec.shape, files[spec.name].shape if spec.name in files else ()):
            if isinstance(want, str):
                sizes.setdefault(want, have)
    return {
        spec.name: files[spec.name]
        if spec.name in files
        else _random(spec, shapes.get(spec.name), sizes, rng)
        for spec in signature.inputs
    }


def _random(
    spec: NodeArg, shape: list | None, sizes: dict[str, int], rng: np.random.Generator
) -> np.ndarray:
    if shape is None:
        shape = [sizes.get(d, d) if isinstance(d, str) else d for d in spec.shape]
        if not all(isinstance(d, int) for d in shape):
            raise ValueError(
                f"the input '{spec.name}' has the shape {spec.shape}; choose its sizes with"
                f" --shape {spec.name}=... or give a file with --input {spec.name}=data.npy"
            )
    if not all(isinstance(d, int) for d in shape):
        raise ValueError(f"--shape {spec.name}: all dimensions must be numbers, got {shape}")
    if math.prod(shape) > MAX_RANDOM_ELEMENTS:
        raise ValueError(f"--shape {spec.name}: {shape} has more elements than memory can hold")
    for want, have in zip(spec.shape, shape):
        if isinstance(want, str):
            sizes.setdefault(want, have)
    dtype = numpy_dtype(spec.dtype)
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.kind in "iu":
        return rng.integers(0, 8, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


def _report(
    report: Report,
    feed: dict[str, np.ndarray],
    outputs: dict[str, np.ndarray],
    seconds: float,
    options: Options,
) -> None:
    report.set(
        inputs={n: {"shape": list(a.shape), "dtype": a.dtype.name} for n, a in feed.items()},
        outputs={n: _summary(a) for n, a in outputs.items()},
        seconds=seconds,
        output=None if options.output is None else str(options.output),
    )
    report.table(
        "inputs",
        ["name", "dtype", "shape"],
        [(n, a.dtype.name, list(a.shape)) for n, a in feed.items()],
    )
    rows = []
    for name, array in outputs.items():
        s = _summary(array)
        rows.append((name, s["dtype"], s["shape"], *(_short(s[k]) for k in ("min", "mean", "max"))))
    report.table("outputs", ["name", "dtype", "shape", "min", "mean", "max"], rows)
    report.line(
        f"time: {seconds * 1e3:.3f} ms"
        + (f" (least of {options.repeat})" if options.repeat > 1 else "")
    )


def _summary(array: np.ndarray) -> dict[str, Any]:
    summary: dict[str, Any] = {"shape": list(array.shape), "dtype": array.dtype.name}
    values = array.astype(np.float64) if array.size else np.zeros(0)
    for name, function in (("min", np.min), ("mean", np.mean), ("max", np.max)):
        value = float(function(values)) if array.size else None
        summary[name] = value if value is None or math.isfinite(value) else str(value)
    return summary


def _short(value: Any) -> str:
    return "-" if value is None else value if isinstance(value, str) else f"{value:.6g}"
