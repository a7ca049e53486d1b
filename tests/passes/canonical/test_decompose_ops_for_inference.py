# SPDX-License-Identifier: Apache-2.0
"""DecomposeOpsForInference: batch_norm step by step, and shapes that tensors hold."""

from typing import Any

import numpy as np
from pass_check import check_pass, module

import relaxvm
from relaxvm.relax.transform import DecomposeOpsForInference

BATCH_NORM = """
@R.function
def main(x: R.Tensor((1, 3, 4, 4), "float32"), g: R.Tensor((3,), "float32"), b: R.Tensor((3,), "float32"),
         m: R.Tensor((3,), "float32"), v: R.Tensor((3,), "float32")):
    with R.dataflow():
        y = R.nn.batch_norm(x, g, b, m, v, axis=1, epsilon=0.5, scale={scale}, training=False)
        gv = y[0]
        R.output(gv)
    return gv
"""


def run(mod: Any, *args: np.ndarray) -> np.ndarray:
    vm = relaxvm.relax.VirtualMachine(relaxvm.compile(mod), relaxvm.cpu())
    return vm["main"](*[relaxvm.runtime.tensor(a) for a in args]).numpy()


def test_batch_norm_is_computed_step_by_step() -> None:
    for scale in (True, False):
        before = module(BATCH_NORM.format(scale=scale))
        after = DecomposeOpsForInference("main")(before)
        text = after.script()
        assert "batch_norm" not in text
        assert text.count("R.expand_dims") == (4 if scale else 3)
        rng = np.random.default_rng(0)
        args = [
            rng.random((1, 3, 4, 4), np.float32),
            *(rng.random(3, np.float32) for _ in range(4)),
        ]
        np.testing.assert_allclose(run(after, *args), run(before, *args), rtol=1e-5)


def test_a_tensor_becomes_sizes() -> None:
    check_pass(
        DecomposeOpsForInference(),
        before="""
@R.function
def main(t: R.Tensor((2,), "int64")):
    s = R.tensor_to_shape(t)
    return s
""",
        after="""
@R.function
def main(t: R.Tensor((2,), "int64")) -> R.Shape(ndim=2):
    a = T.int64()
    b = T.int64()
    s = R.call_pure_packed("vm.builtin.tensor_to_shape", t, ty_args=(R.Shape(ndim=2),))
    y = R.match_cast(s, R.Shape([a, b]))
    z = R.shape([a, b])
    return z
""",
    )


def test_other_operators_stay() -> None:
    check_pass(
        DecomposeOpsForInference(),
        before="""
@R.function
def main(x: R.Tensor((2, 8), "float32"), g: R.Tensor((8,), "float32")):
    y = R.nn.layer_norm(x, g, g, axes=[-1])
    return y
""",
    )
