# SPDX-License-Identifier: Apache-2.0
"""Any ONNX models beside ONNX Runtime: right answers, compile time, memory, latency.  Each engine has its own process.

./dev bench any_model MODEL.onnx ... [--dims "batch=1,height=320" --dims "batch=3,height=97"] [--table CASES.json]

`--dims` gives the sizes of named dimensions for one run (an unnamed one is INPUT.AXIS; those not given are 1);
CASES.json holds {"name": {"path": ..., "dims": [{...}, ...], "high": ..., "fixed": {"input": value}}}.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from typing import Any

import numpy as np
from _clock import least_seconds
from _peer import open_onnxruntime, relative_difference

_DTYPES = {"float": "float32", "double": "float64"}
_TIME_LIMIT_S = 300


def feed_of(inputs: list[Any], dims: dict[str, int], case: dict[str, Any]) -> dict[str, np.ndarray]:
    """Random values for the inputs; integers lie below `high`."""
    rng = np.random.default_rng(0)
    feed = {}
    for value in inputs:
        name = value.type.removeprefix("tensor(").removesuffix(")")
        dtype = np.dtype(_DTYPES.get(name, name))
        shape = [
            size if isinstance(size, int) else dims.get(size or f"{value.name}.{axis}", 1)
            for axis, size in enumerate(value.shape)
        ]
        if value.name in case.get("fixed", {}):
            array = np.full(shape, case["fixed"][value.name])
        elif dtype.kind == "f":
            array = rng.standard_normal(shape)
        else:
            array = rng.integers(0, 2 if dtype.kind == "b" else case.get("high", 100), shape)
        feed[value.name] = array.astype(dtype)
    return feed


def reset_peak() -> None:
    pathlib.Path("/proc/self/clear_refs").write_text("5")


def peak_mb() -> float:
    status = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM"))


def open_model(engine: str, path: str, threads: int) -> Any:
    if engine == "ours":
        from relaxvm.inference import InferenceSession

        return InferenceSession(path, num_threads=threads)
    return open_onnxruntime(path, threads)


def child(engine: str, case: dict[str, Any], args: argparse.Namespace) -> None:
    """Runs one engine; answers and figures go to files beside `args.child`."""
    start, spent = time.perf_counter(), time.process_time()
    session = open_model(engine, case["path"], args.threads)
    ready, spent = time.perf_counter() - start, time.process_time() - spent
    reset_peak()
    rows = []
    for index, dims in enumerate(case["dims"]):
        feed = feed_of(session.get_inputs(), dims, case)
        outputs = session.run(None, feed)
        np.savez(f"{args.child}.{index}.npz", *outputs)
        rows.append(least_seconds(lambda: session.run(None, feed), args.seconds) * 1e3)  # noqa: B023
    pathlib.Path(args.child).write_text(
        json.dumps({"ready_s": ready, "cpu_s": spent, "run_mb": peak_mb(), "ms": rows})
    )


def difference(mine: pathlib.Path, theirs: pathlib.Path) -> float:
    """The largest difference of any output over the largest value of that output; inf if shapes differ."""
    with np.load(mine) as ours, np.load(theirs) as peer:
        return max(
            (relative_difference(ours[name], peer[name]) for name in peer.files), default=0.0
        )


def compare(name: str, case: dict[str, Any], args: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder:
        results = {}
        for engine in ("ours", "peer"):
            command = [
                sys.executable,
                __file__,
                "--child",
                f"{folder}/{engine}",
                "--engine",
                engine,
            ]
            command += ["--threads", str(args.threads), "--seconds", str(args.seconds)]
            try:
                done = subprocess.run(
                    command,
                    input=json.dumps(case),
                    capture_output=True,
                    text=True,
                    timeout=_TIME_LIMIT_S,
                    env={**os.environ, "RELAXVM_CACHE_DIR": f"{folder}/cache"},
                )
            except subprocess.TimeoutExpired:
                print(f"{name}: {engine} ran longer than {_TIME_LIMIT_S} s", flush=True)
                return
            if done.returncode != 0:
                last = (done.stderr.strip().splitlines() or ["no output"])[-6:]
                print(
                    f"{name}: {engine} failed ({done.returncode}): " + "\n    ".join(last),
                    flush=True,
                )
                return
            results[engine] = json.loads(pathlib.Path(f"{folder}/{engine}").read_text())
        ours, peer = results["ours"], results["peer"]
        for index, dims in enumerate(case["dims"]):
            error = difference(
                pathlib.Path(f"{folder}/ours.{index}.npz"),
                pathlib.Path(f"{folder}/peer.{index}.npz"),
            )
            ms, peer_ms = ours["ms"][index], peer["ms"][index]
            print(
                f"{name:24} {json.dumps(dims) if dims else '-':28} {'right' if error < args.tolerance else 'WRONG'}"
                f" {error:.0e}  {ms:9.3f} ms  peer {peer_ms:9.3f} ms  ratio {peer_ms / ms:5.2f}"
            )
        print(
            f"{name:24} ready {ours['ready_s']:.1f} s, {ours['cpu_s']:.1f} of processors (peer {peer['ready_s']:.1f} s)"
            f"  memory {ours['run_mb']:.0f} MB (peer {peer['run_mb']:.0f}, {ours['run_mb'] / peer['run_mb']:.2f})",
            flush=True,
        )


def parse_dims(text: str) -> dict[str, int]:
    return {key: int(value) for key, value in (part.split("=") for part in text.split(",") if part)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("models", nargs="*", help="ONNX files, or names of cases of the table")
    parser.add_argument("--dims", action="append", type=parse_dims, default=[])
    parser.add_argument("--high", type=int, default=100)
    parser.add_argument("--table")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=0.5, help="time spent on each row")
    parser.add_argument("--tolerance", type=float, default=1e-3)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--engine", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(args.engine, json.load(sys.stdin), args)
        return
    table = json.loads(pathlib.Path(args.table).read_text()) if args.table else {}
    for name in args.models or table:
        case = table.get(name) or {"path": name, "dims": args.dims or [{}], "high": args.high}
        compare(pathlib.Path(name).stem if name not in table else name, case, args)


if __name__ == "__main__":
    main()
