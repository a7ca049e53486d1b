# SPDX-License-Identifier: Apache-2.0
"""Latency of real models and of one LSTM beside ONNX Runtime and OpenVINO: engines in turns, least of the rounds.

./dev bench models [--model det,..] [--rounds 20] [--threads 2] [--tvm PYTHON] [--json FILE]

Models are looked for in $RELAXVM_ZOO, in ~/.cache/relaxvm-zoo and in installed packages (rapidocr-onnxruntime,
silero-vad); those that are not there are named and left out.  PYTHON is an interpreter that has apache-tvm and onnx:
what its default build of the same model takes is printed too.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import _peer
import numpy as np

Feed = dict[str, np.ndarray]
Run = Callable[[Feed], object]
TVM_TIME_LIMIT_S = 60
SECONDS = 1.5  # of each case; at least three rounds
SETTLE_S = 0.05


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)


def sentence(batch: int, length: int) -> Feed:
    ids = np.random.default_rng(0).integers(1, 30000, (batch, length))
    return {"ids": ids, "mask": np.ones((batch, length), np.int64)}


def speech(batch: int) -> Feed:
    rate = np.array(16000, np.int64)
    return {"input": floats(batch, 576) * 0.1, "state": floats(2, batch, 128) * 0.1, "sr": rate}


# name -> file, inputs of each run, what the figure must reach against the better peer
OCR = "rapidocr_onnxruntime/models/"
MODELS: dict[str, tuple[str, list[Feed], float]] = {
    "det": (
        OCR + "ch_PP-OCRv4_det_infer.onnx",
        [{"x": floats(1, 3, h, w)} for h, w in ((320, 320), (480, 640), (736, 736))],
        1,
    ),
    "rec": (
        OCR + "ch_PP-OCRv4_rec_infer.onnx",
        [{"x": floats(b, 3, 48, w)} for b, w in ((1, 160), (1, 320), (6, 480))],
        1,
    ),
    "cls": (
        OCR + "ch_ppocr_mobile_v2.0_cls_infer.onnx",
        [{"x": floats(b, 3, 48, 192)} for b in (1, 6)],
        1,
    ),
    "silero": ("silero_vad/data/silero_vad.onnx", [speech(1), speech(4)], 1),
    "minilm": ("minilm.onnx", [sentence(1, 16), sentence(1, 128), sentence(8, 64)], 1),
    "lstm128": ("", [{"x": floats(50, 1, 128)}], 2),
}


def find(name: str, folder: str) -> pathlib.Path | None:
    if name == "lstm128":
        return write_lstm(pathlib.Path(folder, "lstm128.onnx"))
    file = MODELS[name][0]
    home = pathlib.Path("~/.cache/relaxvm-zoo").expanduser()
    places = [pathlib.Path(p) for p in (os.environ.get("RELAXVM_ZOO"),) if p] + [home]
    package = file.split("/")[0]
    if "/" in file and (spec := importlib.util.find_spec(package)) and spec.origin:
        places.append(pathlib.Path(spec.origin).parent.parent)
    return next((place / file for place in places if (place / file).exists()), None)


def write_lstm(path: pathlib.Path) -> pathlib.Path:
    """One LSTM with 128 inputs and 128 cells over 50 steps."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    weights = {"w": floats(1, 512, 128) * 0.1, "r": floats(1, 512, 128) * 0.1, "b": floats(1, 1024)}
    node = helper.make_node("LSTM", ["x", "w", "r", "b"], ["y"], hidden_size=128)
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [node],
        "lstm",
        [value("x", TensorProto.FLOAT, [50, 1, 128])],
        [value("y", TensorProto.FLOAT, [50, 1, 1, 128])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)
    return path


# ---- engines


def open_ours(path: pathlib.Path, threads: int) -> Run:
    from relaxvm.inference import InferenceSession

    session = InferenceSession(str(path), num_threads=threads)
    return lambda feed: session.run(None, feed)


def open_onnxruntime(path: pathlib.Path, threads: int) -> Run:
    session = _peer.open_onnxruntime(path, threads)
    return lambda feed: session.run(None, feed)


def open_openvino(path: pathlib.Path, threads: int) -> Run:
    import openvino

    options = {
        "INFERENCE_NUM_THREADS": threads,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
    }
    model = openvino.Core().compile_model(str(path), "CPU", options)
    request, num_outputs = model.create_infer_request(), len(model.outputs)

    def run(feed: Feed) -> list[np.ndarray]:
        request.infer(feed)
        return [request.get_output_tensor(i).data.copy() for i in range(num_outputs)]

    return run


PEERS = {"onnxruntime": open_onnxruntime, "openvino": open_openvino}


def seconds_of(run: Run, feed: Feed) -> float:
    start = time.perf_counter()
    run(feed)
    return time.perf_counter() - start


# ---- apache-tvm's default build, in its own interpreter


def tvm_child(path: str, feeds_file: str, threads: int) -> None:
    import onnx
    import tvm
    from tvm import relax
    from tvm.relax.frontend.onnx import from_onnx

    os.environ["TVM_NUM_THREADS"] = str(threads)
    stored = np.load(feeds_file)
    feed = {name: stored[name] for name in stored.files}
    module = from_onnx(
        onnx.load(path),
        shape_dict={name: list(array.shape) for name, array in feed.items()},
        dtype_dict={name: str(array.dtype) for name, array in feed.items()},
    )
    vm = relax.VirtualMachine(tvm.compile(module, target="llvm"), tvm.cpu())
    names = [getattr(p, "name_hint", None) or p.name for p in module["main"].params]
    args = [tvm.runtime.tensor(feed[name]) for name in names]
    times = [seconds_of(lambda _: vm["main"](*args), {}) for _ in range(3)]
    print(json.dumps(min(times)))


def tvm_seconds(python: str, path: pathlib.Path, feed: Feed, threads: int) -> float | str:
    """Seconds of a call; why not, when the model is not compiled or run in time."""
    with tempfile.TemporaryDirectory() as folder:
        feeds = os.path.join(folder, "feed.npz")
        np.savez(feeds, **feed)
        command = [python, __file__, "--tvm-child", str(path), feeds, str(threads)]
        environment = dict(os.environ, TVM_NUM_THREADS=str(threads))
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=TVM_TIME_LIMIT_S,
                env=environment,
            )
        except subprocess.TimeoutExpired:
            return f"not within {TVM_TIME_LIMIT_S} s"
    if done.returncode == 0:
        return float(json.loads(done.stdout.splitlines()[-1]))
    errors = [line for line in done.stderr.splitlines() if "Error" in line]
    return (errors or ["no output"])[-1][:110]


# ---- the table


@dataclasses.dataclass
class Figure:
    name: str
    shapes: str
    ms: dict[str, float]  # of each engine
    error: float  # against the first peer
    asked: float
    tvm: float | str | None = None  # seconds

    @property
    def ratio(self) -> float | None:
        """The better peer's time over ours."""
        peers = [value for name, value in self.ms.items() if name != "ours"]
        return min(peers) / self.ms["ours"] if peers else None


def shapes_of(feed: Feed) -> str:
    return "/".join("x".join(map(str, a.shape)) or "scalar" for a in feed.values())


def figures(names: list[str], rounds: int, threads: int, folder: str) -> Iterator[tuple[Any, ...]]:
    for name in names:
        path = find(name, folder)
        if path is None:
            print(f"{name}: {MODELS[name][0]} is nowhere to be found; left out")
            continue
        start = time.perf_counter()
        engines = {"ours": open_ours(path, threads)}
        print(f"{name}: ready after {time.perf_counter() - start:.1f} s", flush=True)
        for peer, opened in PEERS.items():
            if importlib.util.find_spec(peer):
                try:
                    engines[peer] = opened(path, threads)
                except RuntimeError as error:
                    print(f"{name}: not {peer}: {str(error).strip().splitlines()[-1][:100]}")
        for feed in MODELS[name][1]:
            answers = {e: run(feed) for e, run in engines.items()}
            first = next((e for e in engines if e != "ours"), "ours")
            error = max(
                float(np.abs(np.asarray(a, np.float64) - np.asarray(b, np.float64)).max())
                for a, b in zip(answers["ours"], answers[first], strict=True)
            )
            times = {e: [seconds_of(run, feed)] for e, run in engines.items()}
            start = time.perf_counter()
            for number in range(rounds):
                if number >= 3 and time.perf_counter() - start > SECONDS:
                    break
                for engine, run in engines.items():
                    # The threads of another engine wait actively for a while; then the first call finds cold caches.
                    time.sleep(SETTLE_S)
                    times[engine] += [seconds_of(run, feed) for _ in range(6)]
            least = {e: min(values) * 1e3 for e, values in times.items()}
            yield path, feed, Figure(name, shapes_of(feed), least, error, MODELS[name][2])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default=",".join(MODELS), help="names, with commas between")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tvm", help="a Python interpreter that has apache-tvm and onnx")
    parser.add_argument("--json", help="a file for the figures")
    parser.add_argument("--tvm-child", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.tvm_child:
        path, feeds, threads = args.tvm_child
        return tvm_child(path, feeds, int(threads))
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for path, feed, figure in figures(args.model.split(","), args.rounds, args.threads, folder):
            found.append(figure)
            times = "  ".join(f"{e} {ms:8.3f} ms" for e, ms in figure.ms.items())
            ratio = "" if figure.ratio is None else f"  ratio {figure.ratio:.2f}"
            print(
                f"{figure.name:8} {figure.shapes:22} {times}{ratio}  error {figure.error:.0e}",
                flush=True,
            )
            # One shape of each model: their default build takes long.
            if args.tvm and sum(f.name == figure.name for f in found) == 1:
                figure.tvm = tvm_seconds(args.tvm, path, feed, args.threads)
                said = figure.tvm
                if isinstance(said, float):
                    said = f"{said * 1e3:.2f} ms, {said * 1e3 / figure.ms['ours']:.1f} times ours"
                print(f"{figure.name:8} apache-tvm, default build: {said}", flush=True)
    ratios = [f.ratio for f in found if f.ratio is not None]
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        print(f"geometric mean {mean:.2f}, least {min(ratios):.2f}")
    if args.json:
        entries = [dataclasses.asdict(f) | {"ratio": f.ratio} for f in found]
        pathlib.Path(args.json).write_text(json.dumps(entries, indent=1), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
