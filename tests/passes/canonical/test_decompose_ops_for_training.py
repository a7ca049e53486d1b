# SPDX-License-Identifier: Apache-2.0
"""DecomposeOpsForTraining: normalisations by the statistics of their data."""

from typing import Any

import numpy as np
from pass_check import check_pass, module

import relaxvm
from relaxvm.relax.transform import DecomposeOpsForTraining


def run(mod: Any, *args: np.ndarray) -> list[np.ndarray]:
    vm = relaxvm.relax.VirtualMachine(relaxvm.compile(mod), relaxvm.cpu())
    found = vm["main"](*[relaxvm.runtime.tensor(a) for a in args])
    return [t.numpy() for t in found] if not hasattr(found, "numpy") else [found.numpy()]


def test_batch_norm_moves_mean_and_variance() -> None:
    after = DecomposeOpsForTraining()(
        module("""
@R.function
def main(x: R.Tensor((5, 3), "float32"), g: R.Tensor((3,), "float32"), b: R.Tensor((3,), "float32"),
         m: R.Tensor((3,), "float32"), v: R.Tensor((3,), "float32")):
    y = R.nn.batch_norm(x, g, b, m, v, axis=1, epsilon=0.5, momentum=0.25)
    return y
""")
    )
    assert "batch_norm" not in after.script()
    rng = np.random.default_rng(0)
    x, g, b, m, v = rng.random((5, 3), np.float32), *(rng.random(3, np.float32) for _ in range(4))
    mean, variance = x.mean(0), x.var(0)
    wanted = [(x - mean) / np.sqrt(variance + 0.5) * g + b]
    wanted += [0.75 * m + 0.25 * mean, 0.75 * v + 0.25 * variance]
    for got, want in zip(run(after, x, g, b, m, v), wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_layer_norm_becomes_its_formula() -> None:
    check_pass(
        DecomposeOpsForTraining(),
        before="""
@R.function
def main(x: R.Tensor((2, 8), "float32"), g: R.Tensor((8,), "float32"), b: R.Tensor((8,), "float32")):
    y = R.nn.layer_norm(x, g, b, axes=[-1], epsilon=0.5)
    return y
""",
        after="""
@R.function
def main(x: R.Tensor((2, 8), "float32"), g: R.Tensor((8,), "float32"), b: R.Tensor((8,), "float32")):
    mean = R.mean(x, axis=[-1], keepdims=True)
    centred = R.subtract(x, mean)
    variance = R.variance(x, axis=[-1], keepdims=True)
    moved = R.add(variance, R.const(0.5, "float32"))
    root = R.sqrt(moved)
    scaled = R.divide(centred, root)
    weighted = R.multiply(scaled, g)
    y = R.add(weighted, b)
    return y
""",
    )


def test_layer_norm_over_inner_axes_stays() -> None:
    """Its weights do not broadcast with the data; Gradient has a rule for it."""
    check_pass(
        DecomposeOpsForTraining(),
        before="""
@R.function
def main(x: R.Tensor((2, 3, 4), "float32"), g: R.Tensor((3,), "float32")):
    y = R.nn.layer_norm(x, g, g, axes=[1])
    return y
""",
    )
