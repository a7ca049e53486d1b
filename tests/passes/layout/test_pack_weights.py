# SPDX-License-Identifier: Apache-2.0
"""PackWeights: constant weights of contractions lie in panels; results stay what they were."""

from typing import Any

import numpy as np
import pytest
from pass_check import module

import relaxvm
from relaxvm.relax.transform import (
    AnnotateTIROpPattern,
    BindParams,
    FoldConstant,
    LegalizeOps,
    PackWeights,
)

rng = np.random.default_rng(0)


def packed(functions: str, **weights: np.ndarray) -> tuple[Any, Any]:
    """The lowered module with these constants, before and after the pass."""
    mod = BindParams("main", {k: relaxvm.runtime.tensor(v) for k, v in weights.items()})(
        module(functions)
    )
    for step in (LegalizeOps(), AnnotateTIROpPattern(), FoldConstant()):
        mod = step(mod)
    return mod, PackWeights()(mod)


def run(mod: Any, *inputs: np.ndarray) -> np.ndarray:
    vm = relaxvm.VirtualMachine(relaxvm.compile(mod), relaxvm.cpu())
    return vm["main"](*[relaxvm.runtime.tensor(x) for x in inputs]).numpy()


MATMUL = """
@R.function
def main(x: R.Tensor(("m", {k}), "float32"), w: R.Tensor({shape}, "float32")):
    m = T.int64()
    with R.dataflow():
        {bring}
        gv = R.matmul(x, v)
        R.output(gv)
    return gv
"""


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("n", [70, 192])
def test_matmul(transposed: bool, n: int):
    k = 33
    w = rng.standard_normal((n, k) if transposed else (k, n)).astype("float32")
    text = MATMUL.format(
        k=k, shape=w.shape, bring="v = R.permute_dims(w)" if transposed else "v = w"
    )
    before, after = packed(text, w=w)
    assert "matmul_packed" in after.script()
    for rows in (1, 5, 13):
        x = rng.standard_normal((rows, k)).astype("float32")
        want = x @ (w.T if transposed else w)
        np.testing.assert_allclose(run(after, x), want, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(run(before, x), want, rtol=1e-4, atol=1e-4)


def test_convolution():
    w = rng.standard_normal((3, 3, 5, 130)).astype("float32")
    text = """
    @R.function
    def main(x: R.Tensor((1, "h", 9, 5), "float32"), w: R.Tensor((3, 3, 5, 130), "float32")):
        h = T.int64()
        with R.dataflow():
            gv = R.nn.conv2d(x, w, padding=[1, 1], data_layout="NHWC", kernel_layout="HWIO")
            R.output(gv)
        return gv
    """
    _before, after = packed(text, w=w)
    assert "conv2d_packed" in after.script()
    x = rng.standard_normal((1, 6, 9, 5)).astype("float32")
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    want = sum(padded[:, i : i + 6, j : j + 9] @ w[i, j] for i in range(3) for j in range(3))
    np.testing.assert_allclose(run(after, x), want, rtol=1e-4, atol=1e-4)


def test_what_is_no_weight_stays():
    # A parameter, and a constant that is one panel on any machine.
    w = rng.standard_normal((33, 8)).astype("float32")
    text = MATMUL.format(k=33, shape=w.shape, bring="v = w")
    for weights in ({}, {"w": w}):
        before, after = packed(text, **weights)
        assert relaxvm.ir.structural_equal(before, after)
