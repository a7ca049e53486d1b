# SPDX-License-Identifier: Apache-2.0
"""Runs imported programs beside PyTorch."""

from __future__ import annotations

import numpy as np
import pytest

import relaxvm
from relaxvm import relax, runtime


def flat(value) -> list:
    """The tensors and numbers of a nest, in order."""
    if value is None:
        return []
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [leaf for part in value for leaf in flat(part)]
    return [value]


def as_array(value) -> np.ndarray:
    return np.asarray(value.detach().numpy() if hasattr(value, "detach") else value)


@pytest.fixture(autouse=True, scope="module")
def without_gradients():
    import torch

    with torch.no_grad():
        yield


@pytest.fixture
def run_module():
    """The results of `main` of a module, or of an executable, for PyTorch's tensors."""

    def run(module, *inputs) -> list[np.ndarray]:
        compiled = (
            relaxvm.compile(module, num_threads=1) if hasattr(module, "functions") else module
        )
        machine = relax.VirtualMachine(compiled, relaxvm.cpu())
        result = machine["main"](*(runtime.tensor(as_array(x)) for x in flat(inputs)))
        parts = [result] if hasattr(result, "numpy") else list(result)
        return [p.numpy() if hasattr(p, "numpy") else np.asarray(p) for p in parts]

    return run


@pytest.fixture
def agree():
    """Says in what results differ from PyTorch's; nothing when they agree."""

    def difference(got: list, want) -> str:
        wanted = [as_array(w) for w in flat(want)]
        if len(got) != len(wanted):
            return f"{len(got)} results, not {len(wanted)}"
        for i, (a, b) in enumerate(zip(got, wanted)):
            if (a.shape, a.dtype) != (b.shape, b.dtype):
                return f"result {i} is {a.dtype}{a.shape}, not {b.dtype}{b.shape}"
            loose = b.dtype.itemsize == 2
            rtol, atol = (1e-2, 1e-2) if loose else (1e-4, 1e-5)
            if not np.allclose(a.astype("f8"), b.astype("f8"), rtol, atol, equal_nan=True):
                return f"result {i} differs by {np.nanmax(np.abs(a.astype('f8') - b.astype('f8')))}"
        return ""

    return difference
