# SPDX-License-Identifier: Apache-2.0
"""Exports, compiles and runs modules on NumPy arrays."""

from __future__ import annotations

import numpy as np
import pytest

import relaxvm
from relaxvm import relax, runtime
from relaxvm.relax.frontend import nn


def to_machine(value):
    if isinstance(value, np.ndarray):
        return runtime.tensor(value)
    if isinstance(value, int):
        return runtime.Shape([value])
    return tuple(to_machine(v) for v in value)


def to_numpy(value):
    if hasattr(value, "numpy"):
        return value.numpy()
    return [to_numpy(v) for v in value]


class Recorded(nn.Module):
    """A function of tensors as a module."""

    def __init__(self, function) -> None:
        self.function = function

    def forward(self, inputs):
        return self.function(*inputs)


def machine_of(mod) -> relax.VirtualMachine:
    return relax.VirtualMachine(relaxvm.compile(mod, num_threads=1), relaxvm.cpu())


@pytest.fixture
def run_function():
    """The results of a function of nn tensors on arrays."""

    def run(function, *arrays):
        specs = [nn.spec.Tensor(list(a.shape), a.dtype.name) for a in arrays]
        mod, _ = Recorded(function).export_tvm({"forward": {"inputs": specs}})
        return to_numpy(machine_of(mod)["forward"](to_machine(arrays)))

    return run


@pytest.fixture
def run_module():
    """The results of a method of a module; parameters take values from a generator, by path."""

    def run(module, spec, *arguments, values=None, method="forward"):
        mod, params = module.export_tvm({method: spec})
        generator = np.random.default_rng(1)
        own = {n: generator.standard_normal(p.shape).astype(str(p.dtype)) for n, p in params}
        own.update(values or {})
        machine = machine_of(mod)
        weights = [to_machine(own[n]) for n, _ in params]
        result = machine[method](*(to_machine(a) for a in arguments), *weights)
        return to_numpy(result), own

    return run
