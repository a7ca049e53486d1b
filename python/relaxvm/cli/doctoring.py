# SPDX-License-Identifier: Apache-2.0
"""relaxvm doctor"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import sys
from typing import Any

from .report import BAD_INPUT, Report, message_of


def run(report: Report) -> None:
    checks = [_version(), _python(), _compiler(), _target(), _linker(), _threads(), _cache()]
    checks += [_package(name) for name in ("numpy", "apache-tvm-ffi", "onnx", "ml_dtypes")]
    failed = [c["check"] for c in checks if c["state"] == "missing"]
    report.set(checks=checks, ok=not failed)
    report.table(
        "relaxvm doctor",
        ["check", "state", "detail"],
        [(c["check"], c["state"], c["detail"]) for c in checks],
    )
    if failed:
        report.finish()
        import typer

        raise typer.Exit(BAD_INPUT)


def _row(check: str, state: str, detail: str) -> dict[str, str]:
    return {"check": check, "state": state, "detail": detail}


def _version() -> dict[str, str]:
    import relaxvm

    return _row("relaxvm", "ok", f"{relaxvm.__version__}, {os.path.dirname(relaxvm.__file__)}")


def _python() -> dict[str, str]:
    return _row("python", "ok", f"{platform.python_version()}, {sys.executable}")


def _attempt(check: str, function: Any, advice: str) -> dict[str, str]:
    try:
        return _row(check, "ok", str(function()))
    except Exception as e:
        return _row(check, "missing", f"{message_of(e)}; {advice}")


def _compiler() -> dict[str, str]:
    def load() -> str:

        from .._session.build import build_id

        return f"build {build_id()[:12]}"

    return _attempt(
        "compiler library", load, "build it with ./dev build, or install the wheel again"
    )


def _target() -> dict[str, str]:
    def name() -> str:
        from .._session.build import machine

        model = [line for line in machine().splitlines() if line.startswith("model name")]
        return model[0].partition(":")[2].strip() if model else platform.machine()

    return _attempt("processor", name, "the compiler library has to work first")


def _linker() -> dict[str, str]:
    for name in ("ld.lld", "ld", "cc"):
        path = shutil.which(name)
        if path:
            return _row("linker", "ok", path)
    try:
        version = importlib.metadata.version("ziglang")
        return _row("linker", "ok", f"ziglang {version}")
    except importlib.metadata.PackageNotFoundError:
        return _row(
            "linker",
            "absent",
            "models run but cannot be exported or cached; install binutils, or `pip install ziglang`",
        )


def _threads() -> dict[str, str]:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return _row("processors", "ok", f"{usable} usable of {os.cpu_count()}")


def _cache() -> dict[str, str]:
    from ..compile_cache import CompileCache, default_folder

    folder = default_folder()
    if folder is None:
        return _row("compile cache", "off", "RELAXVM_CACHE_DIR is empty")
    if not CompileCache(folder).usable():
        return _row("compile cache", "absent", f"'{folder}' cannot be used")
    entries = list(folder.glob("*.so"))
    size = sum(e.stat().st_size for e in entries)
    return _row("compile cache", "ok", f"{folder}: {len(entries)} models, {size / 1e6:.1f} MB")


def _package(name: str) -> dict[str, str]:
    try:
        return _row(name, "ok", importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        needed = name in ("numpy", "apache-tvm-ffi")
        return _row(name, "missing" if needed else "absent", f"pip install {name}")
