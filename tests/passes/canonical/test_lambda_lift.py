# SPDX-License-Identifier: Apache-2.0
"""LambdaLift: local functions become functions of the module."""

from __future__ import annotations

import numpy as np

import relaxvm
from relaxvm.relax import transform
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.script import tirx as T


def names(mod: relaxvm.IRModule) -> set[str]:
    return {var.name_hint for var in transform.LambdaLift()(mod).get_global_vars()}


def test_function_without_captures_is_called_directly() -> None:
    @I.ir_module
    class Mod:
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            @R.function
            def twice(y: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
                z = R.add(y, y)
                return z

            a = twice(x)
            return a

    assert names(Mod) == {"main", "main_twice"}
    assert "make_closure" not in transform.LambdaLift()(Mod).script()


def test_captured_value_is_the_last_parameter_of_a_closure() -> None:
    @I.ir_module
    class Mod:
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            @R.function
            def plus_x(y: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
                z = R.add(y, x)
                return z

            a = plus_x(x)
            return a

    lifted = transform.LambdaLift()(Mod)
    assert [p.name_hint for p in lifted["main_plus_x"].params] == ["y", "x"]
    text = lifted.script()
    assert "plus_x: R.Any = R.make_closure(cls.main_plus_x, (x,))" in text
    assert "R.invoke_pure_closure(plus_x, (x,), ty_args=(R.Tensor((4,)" in text


def test_closure_that_calls_itself_hands_on_what_it_holds() -> None:
    @I.ir_module
    class Mod:
        @R.function
        def main(x: R.Tensor((), "int64")) -> R.Tensor((), "int64"):
            @R.function
            def power(n: R.Tensor((), "int64"), y: R.Tensor((), "int64")) -> R.Tensor((), "int64"):
                if R.equal(n, R.const(0, "int64")):
                    r = y
                else:
                    r = power(R.subtract(n, R.const(1, "int64")), R.multiply(y, x))
                return r

            a = power(R.const(5, "int64"), R.const(1, "int64"))
            return a

    text = transform.LambdaLift()(Mod).script()
    assert text.count("R.make_closure") == 1
    assert "cls.main_power(" in text
    vm = relaxvm.VirtualMachine(relaxvm.compile(Mod), relaxvm.cpu())
    assert vm["main"](relaxvm.runtime.tensor(np.array(3, "int64"))).numpy() == 3**5


def test_function_that_is_a_value_stays_callable() -> None:
    @I.ir_module
    class Mod:
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            @R.function
            def outer(y: R.Tensor((4,), "float32")):
                @R.function
                def inner(z: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
                    s = R.add(y, z)
                    return s

                return inner

            f = outer(x)
            a = f(x)
            return a

    assert relaxvm.relax.analysis.well_formed(transform.LambdaLift()(Mod))
    vm = relaxvm.VirtualMachine(relaxvm.compile(Mod), relaxvm.cpu())
    ones = np.ones(4, "float32")
    np.testing.assert_array_equal(vm["main"](relaxvm.runtime.tensor(ones)).numpy(), 2 * ones)


def test_size_that_only_the_surroundings_know_is_captured() -> None:
    @I.ir_module
    class Mod:
        @R.function
        def main(x: R.Tensor(("n",), "float32")):
            n = T.int64()

            @R.function
            def zeros(y: R.Tensor((2,), "float32")) -> R.Tensor(dtype="float32", ndim=1):
                z = R.zeros(R.shape([n]), "float32")
                return z

            a = zeros(R.const([1.0, 2.0], "float32"))
            return a

    vm = relaxvm.VirtualMachine(relaxvm.compile(Mod), relaxvm.cpu())
    assert vm["main"](relaxvm.runtime.tensor(np.ones(7, "float32"))).shape == (7,)
