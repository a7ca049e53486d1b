# SPDX-License-Identifier: Apache-2.0
"""relaxvm serve"""

from __future__ import annotations

import dataclasses
import os
import signal
import threading
from pathlib import Path

from .models import is_library, open_model
from .report import Report


@dataclasses.dataclass
class Options:
    host: str
    port: int
    token_file: Path | None
    message_bytes: int
    timeout: float
    allow_upload: bool
    certificate: Path | None
    key: Path | None
    target: str


def run(report: Report, models: list[Path], options: Options) -> None:
    from ..rpc import Server, ServerOptions
    from ..runtime import load

    token = (
        os.environ.get("RELAXVM_TOKEN", "")
        if options.token_file is None
        else options.token_file.read_text().strip()
    )
    if options.token_file is not None and not token:
        raise ValueError(f"'{options.token_file}' is empty; it must hold the token")
    names = [path.stem for path in models]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"two models are called '{twice[0]}'; rename one of the files")
    executables = {
        path.stem: load(path.absolute())
        if is_library(path)
        else open_model(path).executable(report, options.target)
        for path in models
    }
    server_options = ServerOptions(
        host=options.host,
        port=options.port,
        token=token,
        message_bytes=options.message_bytes,
        call_seconds=options.timeout,
        allow_upload=options.allow_upload,
        credentials=_credentials(options),
    )
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with Server(executables, server_options) as server:
        print(f"serving {', '.join(names)} on {server.address}", flush=True)
        while not stop.wait(0.5):
            pass


def _credentials(options: Options):
    if (options.certificate is None) != (options.key is None):
        raise ValueError("--certificate and --key belong together")
    if options.certificate is None or options.key is None:
        return None
    from ..rpc.messages import grpc

    pair = (options.key.read_bytes(), options.certificate.read_bytes())
    return grpc.ssl_server_credentials([pair])
