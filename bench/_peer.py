# SPDX-License-Identifier: Apache-2.0
"""ONNX Runtime as a peer: its sessions, and how far answers are from its."""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np


def open_onnxruntime(model: str | os.PathLike | bytes, threads: int, log_severity: int = 3) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = log_severity
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def relative_difference(mine: np.ndarray, theirs: np.ndarray) -> float:
    """The largest difference over the largest finite value; inf where shapes, types or what is not finite differ."""
    if mine.shape != theirs.shape or mine.dtype != theirs.dtype:
        return math.inf
    a, b = mine.astype(np.float64), theirs.astype(np.float64)
    finite = np.isfinite(b)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return math.inf
    a, b = a[finite], b[finite]
    error = float(np.abs(a - b).max(initial=0) / (1e-3 + np.abs(b).max(initial=0)))
    return math.inf if math.isnan(error) else error
