# SPDX-License-Identifier: Apache-2.0
"""relaxvm compile"""

from __future__ import annotations

import os
import time
from pathlib import Path

from .files import check_writable, parse_shapes, whole_file
from .models import compile_model, import_model, is_library
from .report import Report


def run(
    report: Report, model: Path, output: Path | None, target: str, shape_options: list[str]
) -> None:
    if is_library(model):
        raise ValueError(f"'{model}': is compiled already; run it with `relaxvm run`")
    output = output or model.with_suffix(".so")
    check_writable(output)
    start = time.perf_counter()
    module, signature = import_model(model, parse_shapes(shape_options))
    imported = time.perf_counter()
    executable = compile_model(report, module, signature, target)
    compiled = time.perf_counter()
    with whole_file(output) as scratch:
        executable.export_library(scratch)
    seconds = {
        "import": imported - start,
        "compile": compiled - imported,
        "link": time.perf_counter() - compiled,
    }
    size = os.path.getsize(output)
    report.set(model=str(model), output=str(output), bytes=size, target=target, seconds=seconds)
    report.table(
        f"{output}: {size / 1e6:.2f} MB",
        ["step", "seconds"],
        [(step, f"{value:.2f}") for step, value in seconds.items()],
    )
