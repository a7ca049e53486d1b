# SPDX-License-Identifier: Apache-2.0
"""ShareTensorPrograms: programs that differ in numbers only become one that takes the numbers."""

import re

import numpy as np
import pytest
from pass_check import module

import relaxvm
from relaxvm.relax.transform import ShareTensorPrograms

PROGRAM = """
@T.prim_func(private=True)
def {name}(a: T.Buffer((4,), "float32"), b: T.Buffer((4,), "float32")):
    for i in range(4):
        with T.sblock("b"):
            vi = T.axis.spatial(4, i)
            b[vi] = {value}
"""
MAIN = """
@R.function
def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
    with R.dataflow():
        y = R.call_tir(Module.f, (x,), out_ty=R.Tensor((4,), "float32"))
        z = R.call_tir(Module.g, (y,), out_ty=R.Tensor((4,), "float32"))
        R.output(z)
    return z
"""
# What f and g store, how many programs are left, how many numbers they take, main([0, 1, 2, 3])
CASES = {
    "numbers": ("a[vi] * T.float32(2) + T.float32(1)", "a[vi] * T.float32(3) + T.float32(1)", 1, 1),
    "two": ("a[vi] * T.float32(2) + T.float32(1)", "a[vi] * T.float32(3) + T.float32(4)", 1, 2),
    "equal": ("a[vi] * T.float32(2)", "a[vi] * T.float32(2)", 1, 0),
    "integers": (
        'T.Cast("float32", T.Cast("int32", a[vi]) - T.int32(3))',
        'T.Cast("float32", T.Cast("int32", a[vi]) - T.int32(-5))',
        1,
        1,
    ),
    "operations": ("a[vi] * T.float32(2)", "a[vi] + T.float32(2)", 2, 0),
    "exponents": ("T.pow(a[vi], T.float32(2))", "T.pow(a[vi], T.float32(3))", 2, 0),
    "divisors": ("a[vi] / T.float32(2)", "a[vi] / T.float32(3)", 2, 0),
    "bounds": ("T.max(a[vi], T.float32(1))", "T.max(a[vi], T.float32(2))", 2, 0),
    "hidden by zero": (
        "a[vi] * T.float32(2) * a[vi]",
        "T.exp(a[vi]) * T.float32(3) * a[vi]",
        2,
        0,
    ),
    "conditions": (
        "T.Select(a[vi] + T.float32(1) < T.float32(2), a[vi], T.float32(5))",
        "T.Select(a[vi] + T.float32(1) < T.float32(3), a[vi], T.float32(5))",
        2,
        0,
    ),
    "indices": ("a[(vi + 1) % 4]", "a[(vi + 2) % 4]", 2, 0),
}


def evaluated(text: str, a: np.ndarray) -> np.ndarray:
    class T:
        float32, int32, pow, max, exp = np.float32, np.int32, np.power, np.maximum, np.exp
        Select = np.where

        @staticmethod
        def Cast(dtype: str, x: np.ndarray) -> np.ndarray:  # noqa: N802: a name of the script
            return x.astype(dtype)

    return eval(text, {"T": T, "a": a, "vi": np.arange(4)})


@pytest.mark.parametrize("case", CASES)
def test_programs(case):
    first, second, programs, numbers = CASES[case]
    text = MAIN + PROGRAM.format(name="f", value=first) + PROGRAM.format(name="g", value=second)
    before = module(text)
    after = ShareTensorPrograms()(before)
    functions = dict(after.functions_items())
    kept = [f for v, f in functions.items() if v.name_hint != "main"]
    assert len(kept) == programs
    assert [len(f.params) for f in kept] == [2 + numbers] * programs
    vm = relaxvm.VirtualMachine(relaxvm.compile(after), relaxvm.cpu())
    x = np.arange(4, dtype="float32")
    want = evaluated(second, evaluated(first, x))
    np.testing.assert_allclose(vm["main"](x).numpy(), want, rtol=1e-6)


SIZED = """
@T.prim_func(private=True)
def {name}(a: T.handle, b: T.handle, n: T.int64):
    A = T.match_buffer(a, ({size},), "float32")
    B = T.match_buffer(b, ({size},), "float32")
    for i in range({size}):
        with T.sblock("b"):
            vi = T.axis.spatial({size}, i)
            B[vi] = A[vi] + {value}
"""
SIZED_MAIN = """
@R.function
def main(s: R.Shape(["n"]), x: R.Tensor(("(n + 7) // 8",), "float32"), y: R.Tensor(("(n + 15) // 16",), "float32")) -> R.Tuple(R.Tensor(("(n + 7) // 8",), "float32"), R.Tensor(("(n + 15) // 16",), "float32")):
    n = T.int64()
    with R.dataflow():
        u = R.call_tir(Module.f, (x,), out_ty=R.Tensor(((n + 7) // 8,), "float32"), tir_vars=R.shape([n]))
        v = R.call_tir(Module.g, (y,), out_ty=R.Tensor(((n + 15) // 16,), "float32"), tir_vars=R.shape([n]))
        R.output(u, v)
    return (u, v)
"""  # noqa: E501: one line for each call
# What f and g add, programs that are left, their parameters
SIZES = {
    "sizes": ("T.float32(1)", "T.float32(1)", 1, 2),
    "sizes and numbers": ("T.float32(1)", "T.float32(5)", 1, 3),
    "a size that is no size of an argument": (
        'T.Cast("float32", n)',
        'T.Cast("float32", n)',
        1,
        3,
    ),
    "operations": ("T.float32(1)", "A[vi]", 2, 3),
}


@pytest.mark.parametrize("case", SIZES)
def test_sizes(case):
    first, second, programs, params = SIZES[case]
    text = SIZED_MAIN + SIZED.format(name="f", size="(n + 7) // 8", value=first)
    after = ShareTensorPrograms()(
        module(text + SIZED.format(name="g", size="(n + 15) // 16", value=second))
    )
    kept = [f for v, f in after.functions_items() if v.name_hint != "main"]
    assert [len(f.params) for f in kept] == [params] * programs
    vm = relaxvm.VirtualMachine(relaxvm.compile(after), relaxvm.cpu())
    x, y = np.arange(3, dtype="float32"), np.arange(2, dtype="float32")
    n = 20
    added = lambda value, a: {"A[vi]": a, 'T.Cast("float32", n)': n}.get(value, value[10:-1])
    u, v = vm["main"](relaxvm.runtime.ShapeTuple([n]), x, y)
    np.testing.assert_array_equal(u.numpy(), x + np.float32(added(first, x)))
    np.testing.assert_array_equal(v.numpy(), y + np.float32(added(second, y)))


DOUBLED = """
@T.prim_func(private=True)
def {name}(a: T.handle, b: T.handle, n: T.int64):
    A = T.match_buffer(a, ({size},), "float32")
    B = T.match_buffer(b, ({size} * 2,), "float32")
    for i in range({size} * 2):
        with T.sblock("b"):
            vi = T.axis.spatial({size} * 2, i)
            B[vi] = A[vi // 2]
"""
DOUBLED_MAIN = """
@R.function
def main(s: R.Shape(["n"]), x: R.Tensor(("(n + 7) // 8",), "float32")) -> R.Tensor(("(n + 7) // 8 * 2 * 2",), "float32"):
    n = T.int64()
    with R.dataflow():
        u = R.call_tir(Module.f, (x,), out_ty=R.Tensor(((n + 7) // 8 * 2,), "float32"), tir_vars=R.shape([n]))
        v = R.call_tir(Module.g, (u,), out_ty=R.Tensor(((n + 7) // 8 * 2 * 2,), "float32"), tir_vars=R.shape([n]))
        R.output(v)
    return v
"""  # noqa: E501: one line for each call


def test_a_size_made_of_others_stays():
    """Schedules of what doubles a size need to know."""
    first, second = "(n + 7) // 8", "(n + 7) // 8 * 2"
    text = DOUBLED_MAIN + DOUBLED.format(name="f", size=first)
    after = ShareTensorPrograms()(module(text + DOUBLED.format(name="g", size=second)))
    (kept,) = [f for v, f in after.functions_items() if v.name_hint != "main"]
    assert re.search(
        r"match_buffer\(\w+, \((\w+),\)(.|\n)*match_buffer\(\w+, \(\1 \* 2,\)", kept.script()
    )
    vm = relaxvm.VirtualMachine(relaxvm.compile(after), relaxvm.cpu())
    x = np.arange(3, dtype="float32")
    got = vm["main"](relaxvm.runtime.ShapeTuple([20]), x)
    np.testing.assert_array_equal(got.numpy(), np.repeat(x, 4))
