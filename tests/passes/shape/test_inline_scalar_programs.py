# SPDX-License-Identifier: Apache-2.0
"""InlineScalarPrograms: tensor programs that return a scalar, `return value`, called from functions and from other tensor programs."""

from __future__ import annotations

import numpy as np
import pytest

import relaxvm
from relaxvm.script import from_source
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.script import tirx as T


@I.ir_module
class Formulas:
    @T.prim_func(private=True)
    def kernel(x: T.Buffer((16,), "float32"), y: T.Buffer((16,), "float32")):
        for i in range(16):
            with T.sblock("b"):
                vi = T.axis.remap("S", [i])
                y[vi] = Formulas.bounded(x[vi], T.float32(0.5)) + T.float32(1)

    @T.prim_func(private=True)
    def bounded(x: T.float32, y: T.float32) -> T.float32:
        z = Formulas.square(x) + y
        if z > T.float32(2):
            return T.float32(2)
        return z + Formulas.square(z)

    @T.prim_func(private=True)
    def square(x: T.float32) -> T.float32:
        return x * x

    @T.prim_func
    def padded(n: T.int64, step: T.int64) -> T.int64:
        if n % step == 0:
            return n
        else:
            return (n // step + 1) * step

    @R.function
    def main(x: R.Tensor((16,), "float32")):
        return R.call_tir(Formulas.kernel, (x,), R.Tensor((16,), "float32"))

    @R.function
    def size(x: R.Tensor(("n",), "float32")) -> R.Prim("int64"):
        n = T.int64()
        return Formulas.padded(n, 8)


def machine(mod: I.IRModule) -> relaxvm.VirtualMachine:
    return relaxvm.VirtualMachine(relaxvm.compile(mod), relaxvm.cpu())


def test_values_in_a_tensor_program() -> None:
    x = np.linspace(-2, 2, 16, dtype="float32")
    z = x * x + np.float32(0.5)
    got = machine(Formulas)["main"](relaxvm.runtime.tensor(x)).numpy()
    np.testing.assert_allclose(got, np.where(z > 2, 2, z + z * z) + 1, rtol=1e-6)


@pytest.mark.parametrize(("n", "padded"), [(1, 8), (8, 8), (9, 16), (24, 24)])
def test_values_in_a_function_and_by_itself(n: int, padded: int) -> None:
    vm = machine(Formulas)
    assert vm["size"](relaxvm.runtime.tensor(np.zeros(n, "float32"))) == padded
    assert vm["padded"](n, 8) == padded


def test_script_round_trip() -> None:
    text = Formulas.script()
    assert "def square(x: T.float32) -> T.float32:" in text
    again = from_source(text)
    assert again.script() == text
    relaxvm.ir.assert_structural_equal(again, Formulas)


def test_arguments_used_twice_are_computed_once() -> None:
    """Sixty squares of squares: copied into each use, the formula would have 2^60 parts."""
    levels = 60
    programs = "".join(
        f"""
    @T.prim_func(private=True)
    def f{i}(x: T.float32) -> T.float32:
        y = cls.f{i + 1}(x * T.float32(0.5) + x)
        return y + T.min(y, x)
""".replace("cls", "Module")
        for i in range(levels)
    )
    mod = from_source(
        f"""
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def k(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.sblock("b"):
                vi = T.axis.remap("S", [i])
                y[vi] = Module.f0(x[vi])
{programs}
    @T.prim_func(private=True)
    def f{levels}(x: T.float32) -> T.float32:
        return x

    @R.function
    def main(x: R.Tensor((4,), "float32")):
        return R.call_tir(Module.k, (x,), R.Tensor((4,), "float32"))
"""
    )

    def reference(x: np.ndarray, level: int = 0) -> np.ndarray:
        if level == levels:
            return x
        y = reference(x * np.float32(0.5) + x, level + 1)
        return y + np.minimum(y, x)

    x = np.array([0.25, -1, 2, 3], "float32")
    got = machine(mod)["main"](relaxvm.runtime.tensor(x)).numpy()
    np.testing.assert_allclose(got, reference(x), rtol=1e-4)


HEAD = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n",), "float32")) -> R.Prim("int64"):
        n = T.int64()
        return Module.f({argument})

    @T.prim_func(private=True)
    def f(n: T.int64) -> T.int64:
"""
ERRORS = {
    "itself": ("n", "        return Module.f(n - 1)", "calls itself"),
    "tensor": ("x", "        return n", "must be a scalar"),
    "count": ("n, n", "        return n", "has 1 parameters, but 2 arguments are given"),
    "loop": (
        "n",
        "        a = T.alloc_buffer((1,), 'int64')\n"
        "        for i in range(n):\n"
        "            a[0] = i\n"
        "        return a[0]",
        "takes buffers, loops or calls; write it to a buffer",
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name: str) -> None:
    argument, body, message = ERRORS[name]
    with pytest.raises((TypeError, ValueError), match=message):
        relaxvm.compile(from_source(HEAD.format(argument=argument) + body + "\n"))
