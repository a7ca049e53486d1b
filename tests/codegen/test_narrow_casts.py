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


@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=haswell", "llvm -mcpu=x86-64"])
@pytest.mark.parametrize("rounded", [False, True])
@pytest.mark.parametrize("least_first", [True, False])
@pytest.mark.parametrize(
    "least,most,dtype",
    [(0, 255, "uint8"), (0, 100.5, "uint8"), (-128, 127, "int8"), (0, 127, "int8"), (-3, 300, "uint8"),
     (0, 60000, "uint16"), (0, 1e9, "int32")],
)  # fmt: skip
def test_clamped_numbers_and_floats_of_them(least, most, dtype, least_first, rounded, target):
    random = np.random.default_rng(1).standard_normal(60) * 200
    x = np.concatenate([ODD, random]).astype("float32")
    low, high = np.float32(least), np.float32(most)
    limited = np.minimum(np.maximum(np.round(x) if rounded else x, low), high)
    whole = np.trunc(np.nan_to_num(limited, nan=0)).astype("int64").astype(dtype)
    arg = relax.Var("x", relax.TensorType((relaxvm.tirx.Var("n", "int64"),), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [arg]):
        with builder.dataflow():
            limits = [(op.maximum, low), (op.minimum, high)]
            y = builder.emit(op.round(arg)) if rounded else arg
            for limit, number in limits if least_first else limits[::-1]:
                y = builder.emit(limit(y, relax.const(number)))
            small = builder.emit(op.astype(y, dtype))
            moved = op.subtract(op.astype(small, "float32"), relax.const(np.float32(1.5)))
            out = builder.emit_output(relax.Tuple([small, builder.emit(moved)]))
        builder.emit_func_output(out)
    vm = relax.VirtualMachine(relaxvm.compile(builder.get(), target=target), relaxvm.cpu())
    for n in (len(x), 1):
        for start in (0, 19) if n == 1 else (0,):
            part = slice(start, start + n)
            got = vm["main"](relaxvm.runtime.tensor(x[part]))
            np.testing.assert_array_equal(got[0].numpy(), whole[part])
            np.testing.assert_array_equal(got[1].numpy(), whole[part].astype("float32") - 1.5)


@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=haswell"])
@pytest.mark.parametrize("least,most,dtype", [(0, 255, "uint8"), (-128, 127, "int8")])
def test_what_is_no_number_is_0_on_the_way_through_an_integer(least, most, dtype, target):
    x = np.array([np.nan, 1.4, 300, -300, np.inf, -np.inf, 2.5, np.nan] * 5, "float32")
    arg = relax.Var("x", relax.TensorType(x.shape, "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [arg]):
        with builder.dataflow():
            y = builder.emit(op.clip(builder.emit(op.round(arg)), least, most))
            y = builder.emit(op.astype(builder.emit(op.astype(y, dtype)), "float32"))
            out = builder.emit_output(op.add(y, relax.const(np.float32(0.5))))
        builder.emit_func_output(out)
    vm = relax.VirtualMachine(relaxvm.compile(builder.get(), target=target), relaxvm.cpu())
    got = vm["main"](relaxvm.runtime.tensor(x)).numpy()
    want = np.nan_to_num(np.clip(np.round(x), least, most), nan=0) + np.float32(0.5)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    "target",
    ["llvm", "llvm -mcpu=haswell", "llvm -mcpu=ivybridge", "llvm -mcpu=x86-64-v2", "llvm -mcpu=x86-64"],
)  # fmt: skip
@pytest.mark.parametrize("dtype,offset", [("uint8", 0), ("uint8", 126), ("uint8", 255), ("int8", 0),
                                          ("int8", -128), ("int8", 127), ("int8", -7)])  # fmt: skip
def test_rounded_moved_and_cut_to_the_range_of_a_byte(dtype, offset, target):
    """As quantization does, and back; some thousand numbers, halves and the range's ends among them."""
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    random = np.random.default_rng(2).standard_normal(1000) * 200
    x = np.concatenate([ODD, np.arange(-300, 300) / 2, random]).astype("float32")
    with np.errstate(all="ignore"):
        cut = np.clip(np.round(x) + np.float32(offset), low, high)
        whole = np.nan_to_num(cut, nan=0).astype(dtype)
    arg = relax.Var("x", relax.TensorType((relaxvm.tirx.Var("n", "int64"),), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [arg]):
        with builder.dataflow():
            moved = op.add(builder.emit(op.round(arg)), relax.const(np.float32(offset)))
            y = builder.emit(op.clip(builder.emit(moved), low, high))
            byte = builder.emit(op.astype(y, dtype))
            number = builder.emit(op.astype(byte, "float32"))
            back = builder.emit(op.subtract(number, relax.const(np.float32(offset))))
            out = builder.emit_output(relax.Tuple([byte, number, back]))
        builder.emit_func_output(out)
    vm = relax.VirtualMachine(relaxvm.compile(builder.get(), target=target), relaxvm.cpu())
    for part in (x, x[:64], x[:37], x[:8], x[19:20]):
        got = [y.numpy() for y in vm["main"](relaxvm.runtime.tensor(np.ascontiguousarray(part)))]
        start = 19 if len(part) == 1 else 0
        want = whole[start : start + len(part)]
        np.testing.assert_array_equal(got[0], want)
        np.testing.assert_array_equal(got[1], want.astype("float32"))
        np.testing.assert_array_equal(got[2], want.astype("float32") - np.float32(offset))
        assert not np.signbit(got[2][want == offset]).any(), "0 has no sign"
