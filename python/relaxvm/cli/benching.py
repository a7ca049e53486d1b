# SPDX-License-Identifier: Apache-2.0
"""relaxvm bench"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from .._session.arguments import Checker
from ..runtime.tensor import borrow
from . import peer as peers
from .files import check_writable, parse_shapes, read_inputs, whole_file
from .limits import Limits, least_seconds, measure
from .models import is_library, open_model
from .report import Report
from .roofline import page
from .running import make_feed

# A kernel is named as far from its limit when it takes a share worth looking at and reaches less than half.
_WORTH, _FAR = 0.02, 0.5


@dataclasses.dataclass
class Options:
    inputs: list[str]
    shapes: list[str]
    seed: int
    rounds: int
    seconds: float
    num_threads: int
    target: str
    profile: bool
    html: Path | None
    trace: Path | None
    peer: bool


@dataclasses.dataclass(frozen=True)
class Kernel:
    """All calls of one kernel in one run."""

    name: str
    calls: int
    time_us: float
    share: float
    gflop_per_s: float
    gb_per_s: float
    flop_per_byte: float
    of_limit: float
    products: str = ""  # what is multiplied, where that has a limit of its own

    @property
    def is_far(self) -> bool:
        return self.share >= _WORTH and self.of_limit < _FAR


def run(report: Report, model: Path, options: Options) -> None:
    for path in (options.html, options.trace):
        if path is not None:
            check_writable(path)
    files, shapes = read_inputs(options.inputs), parse_shapes(options.shapes)
    source = open_model(model)
    feed = make_feed(source.signature, files, shapes, options.seed)
    checker = Checker(source.signature)
    arrays = checker.inputs(feed)
    vm, threads = _machine(source.executable(report, options.target), options.num_threads)
    report.set(model=str(model), threads=threads)
    report.set(inputs={n: {"shape": list(a.shape), "dtype": a.dtype.name} for n, a in feed.items()})
    tensors = [borrow(array) for array in arrays]
    function = vm["main"]

    def outputs() -> list[np.ndarray]:
        result = function(*tensors)
        return [r.numpy() for r in ([result] if checker.single else result)]

    with _peer(report, model, feed, threads, options) as other:
        _latency(report, options, threads, lambda: function(*tensors), other)
        if other is not None:
            _difference(report, outputs(), other.outputs())
    if options.profile or options.html is not None or options.trace is not None:
        _profile(report, model, vm, tensors, threads, options)


def _machine(executable: Any, num_threads: int) -> tuple[Any, int]:
    from .._session.build import apply_threads
    from ..runtime import VirtualMachine, cpu

    vm = VirtualMachine(executable, cpu())
    return vm, apply_threads(vm, num_threads)


# ---- latency ---------------------------------------------------------------------------------------


def _latency(
    report: Report, options: Options, threads: int, call: Callable[[], Any], other: Any
) -> None:
    budget_s = options.seconds / options.rounds
    ours, theirs = [], []
    for _ in range(options.rounds):
        ours.append(least_seconds(call, budget_s))
        if other is not None:
            theirs.append(other.least_seconds(budget_s))
    rows: list[tuple[Any, ...]] = [("relaxvm", *_milliseconds(ours), "")]
    report.set(seconds=min(ours))
    if other is not None:
        ratio = min(theirs) / min(ours)
        report.set(peer={"name": "onnxruntime", "version": other.version, "seconds": min(theirs)})
        report.set(ratio=ratio)
        rows.append((f"onnxruntime {other.version}", *_milliseconds(theirs), f"{ratio:.2f}"))
    columns = ["engine", "least ms", "median ms of rounds", "its time / ours"]
    report.table(f"latency, {threads} threads, {options.rounds} rounds", columns, rows)


def _difference(report: Report, ours: list[np.ndarray], theirs: list[np.ndarray]) -> None:
    """The largest difference of two lists of outputs, over the largest value of each."""
    worst = 0.0
    for a, b in zip(ours, theirs):
        if a.size and a.dtype.kind not in "OUS":
            scale = float(np.max(np.abs(b.astype("float64")))) or 1.0
            apart = np.abs(a.astype("float64") - b.astype("float64"))
            worst = max(worst, float(np.max(apart)) / scale)
    report.set(error=worst)
    report.line(f"largest difference of the outputs: {worst:.2e} of the largest value")


def _milliseconds(seconds: list[float]) -> tuple[str, str]:
    return f"{min(seconds) * 1e3:.3f}", f"{float(np.median(seconds)) * 1e3:.3f}"


@contextlib.contextmanager
def _peer(
    report: Report, model: Path, feed: dict[str, np.ndarray], threads: int, options: Options
) -> Iterator[peers.Peer | None]:
    reason = None
    if options.peer and (model.suffix == ".py" or is_library(model)):
        reason = "it reads ONNX files only"
    elif options.peer and not peers.available():
        reason = "it is not installed (pip install onnxruntime)"
    if reason is not None:
        report.line(f"no comparison with onnxruntime: {reason}")
    if not options.peer or reason is not None:
        yield None
        return
    with peers.peer(str(model), feed, threads) as other:
        yield other


# ---- kernels ---------------------------------------------------------------------------------------


def _profile(
    report: Report, model: Path, vm: Any, tensors: list, threads: int, options: Options
) -> None:
    profiles = []
    for _ in range(max(3, options.rounds)):
        for _ in range(2):  # as in the loop that is timed: what a run left in the caches is there
            vm["main"](*tensors)
        profiles.append(vm.profile("main", *tensors))
    best = min(profiles, key=lambda p: p.total_us)
    limits = measure(threads, options.target, sorted({row.products for row in best.rows()} - {""}))
    kernels = _kernels(best, limits)
    report.set(
        limits=dataclasses.asdict(limits),
        kernels=[dataclasses.asdict(k) for k in kernels],
        far_from_limit=[k.name for k in kernels if k.is_far],
    )
    report.line(f"limits measured here, {threads} threads: {limits.text()}")
    columns = ["kernel", "calls", "us", "share", "GFLOP/s", "GB/s", "of limit", ""]
    report.table("kernels", columns, [_row(k) for k in kernels])
    far = [k for k in kernels if k.is_far]
    report.line(
        f"far from the limit (less than half of it, at least 2 % of the time): {len(far)} kernels, "
        f"{sum(k.share for k in far):.0%} of the time"
    )
    if options.html is not None:
        with whole_file(options.html) as scratch:
            Path(scratch).write_text(page(str(model), kernels, limits, best.total_us))
        report.line(f"wrote {options.html}")
    if options.trace is not None:
        with whole_file(options.trace) as scratch:
            best.save_trace(scratch)
        report.line(f"wrote {options.trace}; https://ui.perfetto.dev opens it")


def _kernels(profile: Any, limits: Limits) -> list[Kernel]:
    """The kernels of a run, the slowest first."""
    kernels = []
    for row in profile.rows():
        if row.kind != "kernel":
            continue
        flop = row.flop or 0.0
        kernels.append(
            Kernel(
                row.name,
                row.calls,
                row.self_us,
                row.share,
                row.gflop_per_s or 0.0,
                row.gb_per_s,
                flop / row.num_bytes if row.num_bytes else 0.0,
                limits.share(row.self_us / 1e6, flop, row.num_bytes, row.products),
                row.products,
            )
        )
    return sorted(kernels, key=lambda k: -k.time_us)


def _row(kernel: Kernel) -> tuple[Any, ...]:
    return (
        kernel.name if len(kernel.name) <= 48 else kernel.name[:45] + "...",
        kernel.calls,
        f"{kernel.time_us:.1f}",
        f"{kernel.share:.1%}",
        f"{kernel.gflop_per_s:.1f}",
        f"{kernel.gb_per_s:.1f}",
        f"{kernel.of_limit:.0%}",
        "far" if kernel.is_far else "",
    )
