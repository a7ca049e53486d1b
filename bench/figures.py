# SPDX-License-Identifier: Apache-2.0
"""Every figure that the project promises, measured in one run beside its peers: asked, measured, met or missed.

./dev bench [--peer PYTHON] [--tvm PYTHON] [--only PART,..] [--out FOLDER]

--peer is an interpreter that has torch, --tvm one that has apache-tvm and onnx; without them BENCH_TORCH and BENCH_TVM
of the environment are looked at, and rows that need one that is not given say so.  Parts: vm, contractions, rows,
models, accuracy.  Each is one program of this folder, whose output comes first; the table of promises comes last.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

HERE = pathlib.Path(__file__).parent
MAX_ULP = 4.0
# Seconds that a part may take.
TIME_LIMITS = {"vm": 150, "contractions": 400, "rows": 240, "models": 300, "accuracy": 240}


@dataclasses.dataclass(frozen=True)
class Row:
    what: str
    asked: str
    measured: str
    met: bool | None  # None: printed, nothing is promised; or not measured


@dataclasses.dataclass(frozen=True)
class Setting:
    peer: str | None
    tvm: str | None
    folder: pathlib.Path


def run_part(title: str, limit_s: float, name: str, *arguments: str) -> list[str]:
    """The output of a benchmark; printed as well.  A part that fails or takes too long is said to."""
    print(f"\n==== {title}\n", flush=True)
    start = time.perf_counter()
    command = [sys.executable, "-u", str(HERE / f"{name}.py"), *arguments]
    lines = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        # The whole group: peers are children of the part.
        timer = threading.Timer(limit_s, os.killpg, (process.pid, signal.SIGKILL))
        timer.start()
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line.rstrip())
        process.wait()
        timer.cancel()
    took = time.perf_counter() - start
    print(f"({took:.0f} s)", flush=True)
    if process.returncode:
        late = took >= limit_s
        raise RuntimeError(f"{name}: {'not done in time' if late else 'failed, see above'}")
    return lines


def read(path: pathlib.Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def at_least(what: str, asked: float, value: float, unit: str = "x") -> Row:
    return Row(what, f">= {asked:g}{unit}", f"{value:.2f}{unit}", value >= asked)


def share(what: str, asked: float, value: float) -> Row:
    return Row(what, f">= {asked:.0%}", f"{value:.1%}", value >= asked)


def mean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def vm(setting: Setting, limit_s: float) -> Iterator[Row]:
    arguments = ["--peer", setting.tvm] if setting.tvm else []
    for line in run_part("the virtual machine by itself", limit_s, "vm_dispatch", *arguments):
        if line.endswith(("holds", "MISSED")):
            words = line[44:].split()
            sign = ">=" if "over 1" in line else "<="
            value = words[0] if sign == ">=" else words[1]
            name = line[:44].strip()
            yield Row(f"vm: {name}", f"{sign} {words[-2]}", value, line.endswith("holds"))


# Case of bench/contractions.py -> share of the multiply-add peak
OF_PEAK = {
    "conv2d 3x3/1 64->64 56x56": 0.93,
    "conv2d 1x1/1 256->64 56x56": 0.93,
    "conv2d 7x7/2 3->64 224x224": 0.93,
}
SQUARES = ("512", "1024", "2048")
DEPTHWISE = "depthwise 3x3/1 64->64 112x112"


def contractions(setting: Setting, limit_s: float) -> Iterator[Row]:
    end = time.perf_counter() + limit_s
    for threads, asked in ((1, 0.95), (2, 0.9)):
        if threads > (os.cpu_count() or 1):
            yield Row(f"GEMM, {threads} threads", f">= {asked:.0%}", "too few cores", None)
            continue
        file = setting.folder / f"contractions_{threads}.json"
        arguments = ["--threads", str(threads), "--json", str(file)]
        if setting.peer:
            arguments += ["--peer-python", setting.peer]
        if threads > 1:
            arguments += ["--only", "square"]
        title = f"contractions, {threads} thread(s)"
        run_part(title, end - time.perf_counter(), "contractions", *arguments)
        cases = {(c["group"], c["name"]): c for c in read(file)}
        for n in SQUARES:
            case = cases["square", n]
            yield share(f"GEMM f32 {n}, {threads} thread(s), of peak", asked, case["of_peak"])
        if threads > 1:
            continue
        rows = [c["ratio"] for (group, _), c in cases.items() if group == "rows"]
        yield at_least("GEMM m 1..64, against oneDNN and OpenBLAS, least", 1.0, min(rows))
        yield at_least("GEMM m 1..64, geometric mean", 1.3, mean(rows))
        for (group, name), case in cases.items():
            if group in ("bf16", "int8"):
                yield at_least(f"GEMM {group} {name}, against oneDNN", 0.8, case["ratio"])
        for name, asked_share in OF_PEAK.items():
            yield share(f"{name}, of peak", asked_share, cases["conv", name]["of_peak"])
        yield at_least(f"{DEPTHWISE}, against oneDNN", 1.3, cases["conv", DEPTHWISE]["ratio"])


def rows(setting: Setting, limit_s: float) -> Iterator[Row]:
    file = setting.folder / "rows.json"
    arguments = ["--json", str(file), *(["--peer", setting.peer] if setting.peer else [])]
    run_part("elementwise, rows, data movement, 1 thread", limit_s, "rows", *arguments)
    for entry in read(file):
        if "share" in entry:
            yield share(f"{entry['name']}, of bandwidth", entry["asked"], entry["share"])
        elif entry.get("asked"):
            yield at_least(f"{entry['name']} 1M, against torch", entry["asked"], entry["ratio"])


def models(setting: Setting, limit_s: float) -> Iterator[Row]:
    file = setting.folder / "models.json"
    arguments = ["--json", str(file), *(["--tvm", setting.tvm] if setting.tvm else [])]
    run_part("models, 2 threads", limit_s, "models", *arguments)
    ratios = []
    for entry in read(file):
        name = f"{entry['name']} {entry['shapes']}"
        if entry["ratio"] is not None:
            peers = "ONNX Runtime" if entry["name"] == "lstm128" else "the better peer"
            value = entry["ratio"]
            if entry["name"] == "lstm128":
                value = entry["ms"]["onnxruntime"] / entry["ms"]["ours"]
            else:
                ratios.append(value)
            yield at_least(f"{name}, against {peers}", entry["asked"], value)
        if isinstance(entry["tvm"], float):
            ratio = entry["tvm"] * 1e3 / entry["ms"]["ours"]
            yield Row(f"{name}, against apache-tvm's default build", "print", f"{ratio:.1f}x", None)
        elif entry["tvm"]:
            what = f"{name}, apache-tvm's default build"
            yield Row(what, "print", f"does not compile: {entry['tvm'][:60]}", None)
    if ratios:
        yield at_least("models, geometric mean", 1.25, mean(ratios))


def accuracy(setting: Setting, limit_s: float) -> Iterator[Row]:
    for line in run_part("errors in units of the last place", limit_s, "accuracy"):
        name, error = line.split()[:2]
        asked = f"<= {MAX_ULP:g} ulp"
        yield Row(f"{name}, 100,000 points", asked, f"{error} ulp", float(error) <= MAX_ULP)


PARTS: dict[str, Callable[[Setting, float], Iterator[Row]]] = {
    "vm": vm,
    "contractions": contractions,
    "rows": rows,
    "models": models,
    "accuracy": accuracy,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    environment = os.environ.get
    parser.add_argument("--peer", default=environment("BENCH_TORCH"))
    parser.add_argument("--tvm", default=environment("BENCH_TVM"))
    parser.add_argument("--only", default=",".join(PARTS), help="parts, with commas between")
    parser.add_argument("--out", help="a folder that keeps each part's figures")
    args = parser.parse_args()
    table: list[Row] = []
    failures: list[str] = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(args.out or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        setting = Setting(args.peer, args.tvm, folder)
        for part in args.only.split(","):
            try:
                for row in PARTS[part](setting, TIME_LIMITS[part]):
                    table.append(row)
            except (RuntimeError, subprocess.TimeoutExpired, OSError, KeyError) as error:
                failures.append(f"{part}: {error!r}")
    print("\n==== promises\n")
    for row in table:
        verdict = {True: "met", False: "MISSED", None: ""}[row.met]
        print(f"{row.what:72} {row.asked:>10} {row.measured:>12}  {verdict}")
    promised = [row for row in table if row.met is not None]
    print(f"\n{sum(row.met is True for row in promised)} of {len(promised)} promises met")
    for missing, option in ((args.peer, "--peer (torch)"), (args.tvm, "--tvm (apache-tvm)")):
        if not missing:
            print(f"not measured: rows that need {option}")
    for failure in failures:
        print(f"FAILED {failure}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
