# SPDX-License-Identifier: Apache-2.0
"""Loops over the sum of matrix products and convolutions keep their sums in registers: read in the machine code."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pytest

import relaxvm
from relaxvm import relax, tirx
from relaxvm.relax import op

TARGETS = ["haswell", "skylake-avx512", "sapphirerapids", "znver5"]
# of NHWC data: shape, filters, kernel, attributes; not Winograd's form, whose squares alone are more than the registers
CONVOLUTIONS = {
    "window of 5 over 256 channels": ((1, 512, 1, 256), 512, (5, 1), {}),
    "any number of images": (("n", 512, 1, 256), 512, (5, 1), {}),
    "step 2": ((1, 28, 28, 128), 256, (3, 3), {"strides": 2, "padding": 1}),
    "one pixel": ((1, 14, 14, 480), 480, (1, 1), {}),
    "one pixel of open sizes": (("n", "h", "w", 240), 240, (1, 1), {}),
    "three channels of images": ((1, 224, 224, 3), 64, (7, 7), {"strides": 2, "padding": 3}),
}
PRODUCTS = [
    (1000, 512, 512),
    ("m", 384, 384),
    ("m", 1536, 384),
    (64, 256, 1000),
    (16, 4096, 768),
    # columns that are no whole vectors
    ("m", 240, 90),
    ("m", 240, 97),
    ("m", 240, 63),
    (1000, 240, 105),
]


def constant(*shape: int) -> relax.Expr:
    return relax.const(np.zeros(shape, "float32"))


def whole(data: relax.Var, result: relax.Expr) -> relaxvm.IRModule:
    builder = relax.BlockBuilder()
    with builder.function("main", [data]):
        with builder.dataflow():
            y = builder.emit_output(op.nn.relu(builder.emit(result)))
        builder.emit_func_output(y)
    return builder.finalize()


def sizes(shape: tuple[object, ...]) -> list[object]:
    return [tirx.Var(size, "int64") if isinstance(size, str) else size for size in shape]


def loops_of_sums(code: str) -> Iterator[list[str]]:
    """Loops without another one in them that have eight multiply-adds of vectors at least."""
    block: list[str] = []
    label = ""
    for line in code.splitlines():
        if found := re.match(r"(\.L\w+):", line):
            label, block = found.group(1), []
        block.append(line)
        is_back = re.match(rf"\sj\w+\s{re.escape(label)}$", line) if label else None
        if is_back and sum("vfmadd" in each for each in block) >= 8:
            yield block


def check(mod: relaxvm.IRModule, cpu: str) -> None:
    target = f"llvm -mcpu={cpu}"
    scheduled = relaxvm.compile(mod, target=target, stop_after="scheduled")
    programs = [f for f in scheduled.functions.values() if isinstance(f, tirx.PrimFunc)]
    loops = [loop for each in programs for loop in loops_of_sums(tirx.inspect_source(each, target))]
    assert loops
    for loop in loops:
        pushed = [line for line in loop if re.search(r"%[xyz]mm\d+, -?\d*\(%rsp", line)]
        assert not pushed, "\n".join(loop)


@pytest.mark.parametrize("cpu", TARGETS)
@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_of_convolutions(case: str, cpu: str) -> None:
    shape, filters, kernel, attrs = CONVOLUTIONS[case]
    data = relax.Var("x", relax.TensorType(sizes(shape), "float32"))
    weight = constant(*kernel, shape[-1], filters)
    layouts = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
    check(whole(data, op.nn.conv2d(data, weight, **attrs, **layouts)), cpu)


@pytest.mark.parametrize("cpu", TARGETS)
@pytest.mark.parametrize(("m", "k", "n"), PRODUCTS)
def test_of_products(m: object, k: int, n: int, cpu: str) -> None:
    data = relax.Var("x", relax.TensorType(sizes((m, k)), "float32"))
    check(whole(data, op.matmul(data, constant(k, n))), cpu)
