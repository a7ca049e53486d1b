# SPDX-License-Identifier: Apache-2.0
"""Division by one number for all elements gives the bits of a division, and its infinities and NaNs."""

from __future__ import annotations

import numpy as np
import pytest

import relaxvm
from relaxvm import relax
from relaxvm.relax import op


@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=x86-64"])
@pytest.mark.parametrize(
    "divisor", [6.0, 3.0, -7.5, 8.0, 1e30, 3e-25, -3e38, 1.5e-38, 1e-39, 0.0, -0.0, np.inf, np.nan]
)
@pytest.mark.parametrize("known", [True, False])
def test_divide(divisor: float, known: bool, target: str) -> None:
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 1 << 32, 1 << 16, dtype=np.uint32)
    x = np.concatenate(
        [bits.view(np.float32), np.array([0, -0.0, np.inf, -np.inf, np.nan], "float32")]
    )
    data = relax.Var("x", relax.TensorType([x.size], "float32"))
    builder = relax.BlockBuilder()
    number = np.full([1], divisor, "float32")
    by = relax.const(number) if known else relax.Var("by", relax.TensorType([1], "float32"))
    with builder.function("main", [data] if known else [data, by]):
        with builder.dataflow():
            result = builder.emit_output(op.divide(data, by))
        builder.emit_func_output(result)
    executable = relaxvm.compile(builder.finalize(), target=target)
    args = [relaxvm.runtime.tensor(a) for a in ([x] if known else [x, number])]
    got = relaxvm.VirtualMachine(executable, relaxvm.cpu())["main"](*args)
    with np.errstate(all="ignore"):
        want = x / np.float32(divisor)
    tiny = np.abs(want) < 1e-30  # may miss by the last bit
    np.testing.assert_array_equal(got.numpy()[~tiny], want[~tiny])
    np.testing.assert_allclose(got.numpy()[tiny], want[tiny], rtol=1.2e-7, atol=1.5e-45)
