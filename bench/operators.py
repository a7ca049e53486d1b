# SPDX-License-Identifier: Apache-2.0
"""Single ONNX operators beside ONNX Runtime in one process, by turns: right answers and ratios, the least first.

./dev bench operators [--threads 1] [--open] [--dtype float16|float64] [--below RATIO] [--seconds 0.05] [NAME_PART ...]

`--open` gives each dimension of the inputs a name of its own (but those that a case marks), `--dtype` makes the
float32 of the cases another type (cases without any are left out).  What is wrong or fails comes first, and makes the
exit status 1; what ONNX Runtime itself refuses is counted.  A ratio is ONNX Runtime's time over ours.  The cases are in
bench/operator_cases*.py.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import gc
import itertools
import math
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
from _clock import TURNS, in_turns, least_seconds
from _peer import open_onnxruntime, relative_difference
from onnx import helper, numpy_helper
from operator_cases import CASES as ELEMENTWISE
from operator_cases import Case, Made
from operator_cases_layers import CASES as LAYERS
from operator_cases_movement import CASES as MOVEMENT
from operator_cases_networks import CASES as NETWORKS
from operator_cases_rows import CASES as ROWS

Feed = dict[str, np.ndarray]
ALL = (*ELEMENTWISE, *ROWS, *MOVEMENT, *LAYERS, *NETWORKS)
# Of the largest difference of an output over its largest value.
TOLERANCES = {"float16": 1e-2, "float32": 1e-4, "float64": 1e-6}
_IR_VERSIONS = {21: 10, 23: 11}
_TIME_LIMIT_S = 60  # of a compilation; seen when Python has its turn


# ---- models


class Inputs:
    """Names of what the nodes of a model take: initializers, and inputs with what is fed to them."""

    def __init__(self, dtype: str, is_open: bool) -> None:
        self._rng = np.random.default_rng(0)
        self._dtype = np.dtype(dtype)
        self._is_open = is_open
        self.feed: Feed = {}
        self.weights: list[onnx.TensorProto] = []
        self.infos: list[onnx.ValueInfoProto] = []
        self.has_floats = False

    def name_of(self, given: Any) -> str:
        if given is None:
            return ""
        if isinstance(given, str) and given.startswith("@"):
            source, _, result = given[1:].partition(".")
            return f"y{source}_{result or 0}"
        made = Made.of(given, self._rng)
        array = made.array
        if made.is_converted:
            self.has_floats = True
            array = array.astype(self._dtype)
        if made.is_weight:
            name = f"w{len(self.weights)}"
            self.weights.append(numpy_helper.from_array(array, name))
            return name
        place = len(self.feed)
        sizes = [
            f"x{place}_{axis}" if self._is_open and axis not in made.known else size
            for axis, size in enumerate(array.shape)
        ]
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        self.infos.append(helper.make_tensor_value_info(f"x{place}", kind, sizes))
        self.feed[f"x{place}"] = array
        return f"x{place}"


def model_of(case: Case, dtype: str, is_open: bool) -> tuple[bytes, Feed] | None:
    """The model and what to feed it; None of a case without floats that are to be of another type."""
    inputs, nodes = Inputs(dtype, is_open), []
    for i, node in enumerate(case.nodes):
        names = [inputs.name_of(given) for given in node.inputs]
        results = [f"y{i}_{k}" for k in range(node.outputs)]
        op, domain = node.op, ""
        if op.startswith("ms."):
            op, domain = op.removeprefix("ms."), "com.microsoft"
        attrs = {k: v for k, v in node.attrs.items() if v is not None}
        nodes.append(helper.make_node(op, names, results, domain=domain, **attrs))
    if dtype != "float32" and not inputs.has_floats:
        return None
    outputs = [helper.make_empty_tensor_value_info(name) for name in nodes[-1].output]
    graph = helper.make_graph(nodes, "case", inputs.infos, outputs, inputs.weights)
    opsets = [helper.make_opsetid("", case.version), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(
        graph, opset_imports=opsets, ir_version=_IR_VERSIONS.get(case.version, 11)
    )
    return model.SerializeToString(), inputs.feed


# ---- the sides


@contextlib.contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    def ring(*_: object) -> None:
        raise TimeoutError(f"compiling took longer than {seconds} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def open_ours(model: bytes, threads: int) -> Any:
    from relaxvm.inference import InferenceSession

    with time_limit(_TIME_LIMIT_S):
        return InferenceSession(model, num_threads=threads, cache_dir="")


def timer(session: Any, feed: Feed, seconds: float) -> Callable[[], dict[str, float]]:
    return lambda: {"s": least_seconds(lambda: session.run(None, feed), seconds / TURNS)}


# ---- answers


def difference(mine: np.ndarray, theirs: np.ndarray) -> float:
    """The largest difference over the largest value, of integers without the latter; inf where none is meant."""
    if mine.shape != theirs.shape or mine.dtype != theirs.dtype:
        return math.inf
    if theirs.size == 0:
        return 0.0
    if theirs.dtype.kind in "iub":
        if theirs.dtype.kind == "b":
            mine, theirs = mine.astype(np.int8), theirs.astype(np.int8)
        if np.array_equal(mine, theirs):
            return 0.0
        larger, smaller = np.maximum(mine, theirs), np.minimum(mine, theirs)
        return max(1.0, float((larger.astype(np.float64) - smaller).max()))
    return relative_difference(mine, theirs)


def check(case: Case, mine: list[np.ndarray], theirs: list[np.ndarray]) -> tuple[float, str]:
    """The largest relative error of floats, and what is wrong."""
    if len(mine) != len(theirs):
        return math.inf, f"{len(mine)} results, not {len(theirs)}"
    worst, wrong = 0.0, ""
    for place, (a, b) in enumerate(zip(mine, theirs, strict=True)):
        found = difference(a, b)
        is_float = b.dtype.kind == "f"
        allowed = TOLERANCES[b.dtype.name] if is_float else 0.0
        if case.slack is not None and is_float == (case.slack < 1):
            allowed = max(allowed, case.slack)
        if is_float:
            worst = max(worst, found)
        if not found <= allowed and not wrong:
            wrong = f"result {place} differs by {found:.2g}"
            if a.shape != b.shape or a.dtype != b.dtype:
                wrong = f"result {place} is {a.dtype}{a.shape}, not {b.dtype}{b.shape}"
    return worst, wrong


Row = tuple[float, str]  # the ratio, the line


def measure(case: Case, args: argparse.Namespace) -> tuple[str, Row | None]:
    """What became of a case: "", "skipped", "refused", or what is wrong; and its row."""
    made = model_of(case, args.dtype, args.open)
    if made is None:
        return "skipped", None
    model, feed = made
    try:
        peer = open_onnxruntime(model, args.threads, log_severity=4)  # what it refuses is counted
        expected = peer.run(None, feed)
    except Exception as error:
        if args.dtype == "float32":
            print(f"refused by ONNX Runtime: {case.name}: {first_line(error)}", flush=True)
        return "refused", None
    try:
        ours = open_ours(model, args.threads)
        found = ours.run(None, feed)
    except Exception as error:
        return f"FAILED {case.name}: {first_line(error)}", None
    worst, wrong = check(case, found, expected)
    sides = in_turns(timer(ours, feed, args.seconds), timer(peer, feed, args.seconds))
    us, peer_us = (side["s"] * 1e6 for side in sides)
    ratio = peer_us / us
    line = f"{case.name:58s} {us:10.1f} {peer_us:10.1f} {ratio:7.2f}  {worst:.0e}"
    return f"WRONG  {case.name}: {wrong}" if wrong else "", (ratio, line)


def first_line(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:200]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME_PART", help="cases whose names have one")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--open", action="store_true", help="no dimension of an input is known")
    parser.add_argument("--dtype", choices=TOLERANCES, default="float32")
    parser.add_argument("--below", type=float, default=math.inf, help="the largest ratio to print")
    parser.add_argument("--seconds", type=float, default=0.05, help="for each figure")
    args = parser.parse_args()
    faulthandler.enable()
    twice = [k for k, same in itertools.groupby(sorted(c.name for c in ALL)) if len([*same]) > 1]
    assert not twice, f"cases of the same name: {twice}"
    cases = [c for c in ALL if not args.names or any(part in c.name for part in args.names)]
    rows: list[Row] = []
    problems, counts = [], {"skipped": 0, "refused": 0}
    for place, case in enumerate(cases):
        if sys.stderr.isatty():
            print(
                f"\r{place + 1}/{len(cases)} {case.name:58s}", end="", file=sys.stderr, flush=True
            )
        state, row = measure(case, args)
        gc.collect()
        if state in counts:
            counts[state] += 1
        elif state:
            problems.append(state)
        if row:
            rows.append(row)
    if sys.stderr.isatty():
        print(f"\r{'':80s}\r", end="", file=sys.stderr)
    for problem in problems:
        print(problem)
    print(
        f"{args.threads} thread(s), {args.dtype}, sizes {'open' if args.open else 'known':44s}"
        "         us    peer us   ratio  error"
    )
    rows.sort()
    for ratio, line in rows:
        if ratio < args.below:
            print(line)
    print(summary([ratio for ratio, _ in rows], len(problems), counts))
    return int(bool(problems))


def summary(ratios: list[float], problems: int, counts: dict[str, int]) -> str:
    text = f"{len(ratios)} cases"
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        text += f", least ratio {min(ratios):.2f}, geometric mean {mean:.2f}"
    text += f"; {problems} wrong or failed" if problems else ""
    text += f"; {counts['refused']} refused by ONNX Runtime" if counts["refused"] else ""
    return text + (f"; {counts['skipped']} without floats" if counts["skipped"] else "")


if __name__ == "__main__":
    sys.exit(main())
