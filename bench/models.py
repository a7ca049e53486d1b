# SPDX-License-Identifier: Apache-2.0
"""Latency of real models beside ONNX Runtime, measured in the same run: least of the rounds, two threads each.

./dev bench models [--model det|cls|rec] [--rounds 20]
"""

from __future__ import annotations

import argparse
import pathlib
import time
from collections.abc import Callable

import numpy as np
import onnxruntime
import rapidocr_onnxruntime

from relaxvm.inference import InferenceSession

FOLDER = pathlib.Path(rapidocr_onnxruntime.__file__).parent / "models"
# name -> file, shapes of its one input
MODELS = {
    "det": ("ch_PP-OCRv4_det_infer.onnx", [(1, 3, 320, 320), (1, 3, 736, 736), (1, 3, 480, 928)]),
    "cls": ("ch_ppocr_mobile_v2.0_cls_infer.onnx", [(1, 3, 48, 192), (6, 3, 48, 192)]),
    "rec": ("ch_PP-OCRv4_rec_infer.onnx", [(1, 3, 48, 160), (1, 3, 48, 320), (6, 3, 48, 320)]),
}


def least_seconds(run: Callable[[], object], rounds: int) -> float:
    run()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def peer_session(path: pathlib.Path, threads: int) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", choices=MODELS, action="append")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    for name in args.model or MODELS:
        file, shapes = MODELS[name]
        start = time.perf_counter()
        ours = InferenceSession(str(FOLDER / file), num_threads=args.threads)
        print(f"{name}: ready after {time.perf_counter() - start:.1f} s")
        peer = peer_session(FOLDER / file, args.threads)
        (value,) = ours.get_inputs()
        for shape in shapes:
            feed = {value.name: np.random.default_rng(0).random(shape, dtype="float32")}
            error = max(
                float(np.abs(a - b).max())
                for a, b in zip(ours.run(None, feed), peer.run(None, feed), strict=True)
            )
            mine = least_seconds(lambda: ours.run(None, feed), args.rounds)  # noqa: B023
            theirs = least_seconds(lambda: peer.run(None, feed), args.rounds)  # noqa: B023
            print(
                f"{name} {'x'.join(map(str, shape)):>12}: {mine * 1e3:8.2f} ms, "
                f"onnxruntime {theirs * 1e3:8.2f} ms, ratio {theirs / mine:.2f}, error {error:.1e}"
            )


if __name__ == "__main__":
    main()
