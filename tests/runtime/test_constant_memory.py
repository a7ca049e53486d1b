# SPDX-License-Identifier: Apache-2.0
"""A loaded library holds each weight once, aligned; its file's pages are given back."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import relaxvm
from relaxvm import relax

LOAD = """
import sys
import relaxvm

def megabytes(what):
    return next(int(l.split()[1]) / 1024 for l in open("/proc/self/status") if l.startswith(what))

before = megabytes("VmRSS")
ex = relaxvm.load(sys.argv[1])
print(megabytes("VmRSS") - before, megabytes("VmHWM") - before)
"""


def exported(tmp_path, *values: np.ndarray) -> str:
    """A library whose main() gives these constants."""
    bb = relax.BlockBuilder()
    with bb.function("main", []):
        bb.emit_func_output(relax.Tuple([relax.const(v, str(v.dtype)) for v in values]))
    path = str(tmp_path / "model.so")
    relaxvm.compile(bb.get()).export_library(path)
    return path


def outputs(path: str) -> list[np.ndarray]:
    vm = relax.VirtualMachine(relaxvm.load(path), relaxvm.cpu())
    return [np.from_dlpack(t) for t in vm["main"]()]  # no copies


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_weights_are_in_memory_once(tmp_path):
    weights = np.random.default_rng(0).standard_normal((8 << 20,), dtype=np.float32)
    path = exported(tmp_path, *[weights + i for i in range(6)])
    run = [sys.executable, "-c", LOAD, path]
    lines = subprocess.run(run, check=True, capture_output=True, timeout=120).stdout
    grown, most = map(float, lines.split())
    assert 190 < grown < 210  # 192 MB
    assert most < 192 + 120  # what was read of the file left memory on the way


def test_constants_of_all_sizes_are_right_and_aligned(tmp_path):
    rng = np.random.default_rng(1)
    values = [
        rng.standard_normal(n).astype("float32") for n in (1, 0, 15, 16, 17, 100_000, 3_000_001)
    ]
    values += [np.array([i], "int32") for i in range(2000)]  # more room than their bytes need
    found = outputs(exported(tmp_path, *values))
    assert len(found) == len(values)
    for got, want in zip(found, values):
        np.testing.assert_array_equal(got, want)
        assert got.size == 0 or got.ctypes.data % 64 == 0
