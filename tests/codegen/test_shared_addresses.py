# SPDX-License-Identifier: Apache-2.0
"""Addresses in a loop that differ by what does not change there are found from one pointer."""

from __future__ import annotations

import re

import numpy as np
import pytest

import relaxvm
from relaxvm import relax, tirx
from relaxvm.relax import op

RNG = np.random.default_rng(0)


def depthwise(channels: int) -> relaxvm.IRModule:
    """A 5x5 window of pictures of any size."""
    weight = RNG.standard_normal((channels, 1, 5, 5)).astype("float32")
    builder = relax.BlockBuilder()
    h, w = tirx.Var("h", "int64"), tirx.Var("w", "int64")
    x = relax.Var("x", relax.TensorType((1, channels, h, w), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            out = op.nn.conv2d(x, relax.const(weight), padding=2, groups=channels)
            out = builder.emit_output(builder.emit(out))
        builder.emit_func_output(out)
    return builder.get()


@pytest.mark.parametrize("cpu", ["skylake-avx512", "haswell"])
def test_taps_of_a_window_share_a_pointer(cpu: str) -> None:
    target = f"llvm -mcpu={cpu}"
    scheduled = relaxvm.compile(depthwise(32), target=target, stop_after="scheduled")
    programs = [f for f in scheduled.functions.values() if isinstance(f, tirx.PrimFunc)]
    code = "\n".join(tirx.inspect_source(each, target, fmt="ll") for each in programs)
    sealed = re.findall(r"(%\S+) = freeze ptr", code)
    users = [len(re.findall(rf"getelementptr .*ptr {re.escape(name)}, ", code)) for name in sealed]
    assert max(users) >= 4
