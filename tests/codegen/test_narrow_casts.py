# SPDX-License-Identifier: Apache-2.0
"""Floats to integers of 8 and 16 bits: the low bits of what int32 holds, the same by vectors and one by one."""

import numpy as np
import pytest

import relaxvm
from relaxvm import relax
from relaxvm.relax import op

ODD = [0.0, -0.0, 0.99, -0.99, 127.5, 128.0, -128.9, 255.9, 256.0, 32768.0, -65537.5, 2147483520.0,
       2147483648.0, -2147483648.0, -2147483904.0, 1e20, -1e20, np.inf, -np.inf, np.nan, 1e-40]  # fmt: skip


@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=haswell", "llvm -mcpu=x86-64"])
@pytest.mark.parametrize("source", ["float32", "float64", "float16"])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16"])
def test_low_bits_of_int32(dtype, source, target):
    with np.errstate(all="ignore"):
        values = np.concatenate([ODD, np.random.default_rng(0).standard_normal(50) * 1000])
        x = values.astype(source)
        exact = np.nan_to_num(x.astype("float64"), nan=0, posinf=1e30, neginf=-1e30)
    whole = np.clip(np.trunc(exact), -(2**31), 2**31 - 1).astype("int64").astype("int32")
    for part in (x, x[:1], x[13:14], x[18:19]):
        arg = relax.Var("x", relax.TensorType(part.shape, source))
        builder = relax.BlockBuilder()
        with builder.function("main", [arg]):
            with builder.dataflow():
                out = builder.emit_output(op.astype(arg, dtype))
            builder.emit_func_output(out)
        vm = relax.VirtualMachine(relaxvm.compile(builder.get(), target=target), relaxvm.cpu())
        got = vm["main"](relaxvm.runtime.tensor(np.ascontiguousarray(part))).numpy()
        start = next(i for i in range(len(x)) if np.shares_memory(x[i : i + 1], part[:1]))
        expected = whole[start : start + len(part)].astype(dtype)
        np.testing.assert_array_equal(got, expected)
