# SPDX-License-Identifier: Apache-2.0
"""ONNX Runtime in a process of its own, so that its threads do not stand in the way of ours."""

from __future__ import annotations

import contextlib
import importlib.util
import multiprocessing
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from .limits import least_seconds

# Loading a model and one round each stay far below this; past it the peer counts as hung.
_TIMEOUT_S = 600.0


def available() -> bool:
    return importlib.util.find_spec("onnxruntime") is not None


def _serve(pipe: Connection, model: str, feed: dict[str, np.ndarray], threads: int) -> None:
    """The child: answers each number of seconds with the least time of a call in them, None with the outputs."""
    try:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        pipe.send(onnxruntime.__version__)
        while True:
            budget_s = pipe.recv()
            if budget_s is None:
                pipe.send(session.run(None, feed))
            else:
                pipe.send(least_seconds(lambda: session.run(None, feed), budget_s))
    except EOFError:
        return
    except Exception as e:
        with contextlib.suppress(OSError):
            pipe.send(RuntimeError(f"onnxruntime: {str(e).splitlines()[0]}"))


class Peer:
    """A session of the other process, for one model and one feed."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self.version: str = self._receive()

    def least_seconds(self, budget_s: float) -> float:
        self._pipe.send(budget_s)
        return self._receive()

    def outputs(self) -> list[np.ndarray]:
        self._pipe.send(None)
        return self._receive()

    def _receive(self) -> Any:
        try:
            if not self._pipe.poll(_TIMEOUT_S):
                raise RuntimeError(f"onnxruntime did not answer within {_TIMEOUT_S:.0f} s")
            answer = self._pipe.recv()
        except EOFError:
            raise RuntimeError("the process of onnxruntime ended") from None
        if isinstance(answer, Exception):
            raise answer
        return answer


@contextlib.contextmanager
def peer(model: str, feed: dict[str, np.ndarray], threads: int) -> Iterator[Peer]:
    """Starts the other process and ends it.  RuntimeError when it cannot load or run the model."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    child = context.Process(target=_serve, args=(theirs, model, feed, threads), daemon=True)
    child.start()
    theirs.close()
    try:
        yield Peer(ours)
    finally:
        ours.close()
        child.join(2)
        if child.is_alive():
            child.kill()
            child.join()
