# SPDX-License-Identifier: Apache-2.0
"""Reads the words in a picture with the package rapidocr-onnxruntime, whose three models run on relaxvm.

The package is written for ONNX Runtime; giving it another session class is the only change.
    python examples/ocr_demo.py [PICTURE] [--out words.png]        (needs `./dev setup`; `./dev demo` does both)
"""

from __future__ import annotations

import argparse
import pathlib
import sys
import time

import numpy as np
from PIL import Image, ImageDraw, ImageFont

PICTURE = pathlib.Path(__file__).parent / "data" / "ticket.png"


def make_reader(engine: str):
    """The client, on relaxvm or (to compare) on the engine that it was written for."""
    import rapidocr_onnxruntime.utils.infer_engine as infer_engine
    from rapidocr_onnxruntime import RapidOCR

    if engine == "relaxvm":
        from relaxvm.inference import InferenceSession

        infer_engine.InferenceSession = InferenceSession
    return RapidOCR()


def draw_boxes(picture: Image.Image, found: list) -> Image.Image:
    picture = picture.copy()
    pen = ImageDraw.Draw(picture)
    font = ImageFont.load_default(15)
    for box, text, score in found:
        corners = [tuple(float(v) for v in point) for point in box]
        pen.line([*corners, corners[0]], fill=(200, 30, 30), width=2)
        left, top = min(corners)[0], min(y for _, y in corners)
        pen.text(
            (left, max(0.0, top - 17)), f"{text} {float(score):.2f}", fill=(20, 60, 200), font=font
        )
    return picture


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("picture", nargs="?", type=pathlib.Path, default=PICTURE)
    parser.add_argument(
        "--out", type=pathlib.Path, default=pathlib.Path("words.png"), help="the picture with boxes"
    )
    parser.add_argument("--engine", choices=["relaxvm", "onnxruntime"], default="relaxvm")
    args = parser.parse_args()

    picture = Image.open(args.picture).convert("RGB")
    start = time.perf_counter()
    reader = make_reader(args.engine)
    loaded = time.perf_counter()
    found, _ = reader(np.asarray(picture)[:, :, ::-1])  # OpenCV's order of colours
    done = time.perf_counter()
    for box, text, score in found or []:
        x, y = np.asarray(box).min(axis=0).round().astype(int)
        print(f"{x:5d} {y:5d}  {float(score):.2f}  {text}")
    draw_boxes(picture, found or []).save(args.out)
    print(
        f"{len(found or [])} lines read on {args.engine}: {loaded - start:.1f} s to load and compile three models, "
        f"{done - loaded:.2f} s to read; boxes drawn into {args.out}"
    )
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main())
