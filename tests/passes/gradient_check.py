# SPDX-License-Identifier: Apache-2.0
"""Gradients against finite differences: what the tests of rules share."""

import numpy as np

import relaxvm
from relaxvm import relax
from relaxvm.relax.transform import Gradient, LegalizeOps, Normalize

F = 'R.Tensor((3, 4), "float64")'


def program(params: str, steps: str) -> str:
    lines = "".join(f"        {step}\n" for step in steps.split("; "))
    return f"@R.function\ndef main({params}):\n    with R.dataflow():\n{lines}        R.output(gv)\n    return gv\n"


def t(*shape: int, dtype: str = "float64") -> str:
    return f'R.Tensor({shape}, "{dtype}")'


def build(mod: relaxvm.IRModule) -> relax.VirtualMachine:
    # LegalizeOps leaves items of tuples in place; Normalize gives them variables.
    lowered = Normalize()(LegalizeOps()(mod))
    return relax.VirtualMachine(relaxvm.compile(lowered), relaxvm.cpu())


def run(vm: relax.VirtualMachine, name: str, inputs: list[np.ndarray]) -> list[np.ndarray]:
    def flat(value):
        if isinstance(value, (list, tuple)) or not hasattr(value, "numpy"):
            return [leaf for item in value for leaf in flat(item)]
        return [value.numpy()]

    return flat(vm[name](*[relaxvm.runtime.tensor(i) for i in inputs]))


def random_inputs(mod: relaxvm.IRModule, low: float = 0.5) -> list[np.ndarray]:
    rng = np.random.default_rng(7)
    shapes = [[int(d) for d in p.ty.shape.values] for p in mod["main"].params]
    return [np.asarray(rng.uniform(low, 2.0, shape)) for shape in shapes]


def check_numerically(mod: relaxvm.IRModule, inputs: list[np.ndarray], fixed: int = -1) -> None:
    """Every element of every gradient is the slope of the target along that element."""
    vm = build(Gradient("main")(mod))
    outputs = run(vm, "main_adjoint", inputs)
    np.testing.assert_allclose(outputs[0], run(vm, "main", inputs)[0])
    step = 1e-5
    for i, grad in enumerate(outputs[1:]):
        assert grad.shape == inputs[i].shape
        if i == fixed:
            continue
        slopes = np.zeros_like(inputs[i])
        for at in np.ndindex(*inputs[i].shape):
            values = []
            for sign in (1, -1):
                moved = [x.copy() for x in inputs]
                moved[i][at] += sign * step
                values.append(float(run(vm, "main", moved)[0]))
            slopes[at] = (values[0] - values[1]) / (2 * step)
        np.testing.assert_allclose(grad, slopes, rtol=1e-5, atol=1e-6, err_msg=f"argument {i}")
