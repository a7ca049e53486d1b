# SPDX-License-Identifier: Apache-2.0
"""Closures seen running: partial application, functions as arguments and results, nested functions."""

from __future__ import annotations

import numpy as np
import pytest
from data_type_programs import vm_of

import relaxvm
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.script import tirx as T


@I.ir_module
class Closures:
    @R.function
    def three(
        a: R.Tensor((2,), "float32"), b: R.Tensor((2,), "float32"), c: R.Tensor((2,), "float32")
    ) -> R.Tensor((2,), "float32"):
        x = R.subtract(R.multiply(a, R.const(100, "float32")), b)
        y = R.add(x, R.multiply(c, R.const(10, "float32")))
        return y

    @R.function
    def bind_last(
        a: R.Tensor((2,), "float32"), b: R.Tensor((2,), "float32"), c: R.Tensor((2,), "float32")
    ) -> R.Tensor((2,), "float32"):
        cls = Closures
        needs_two = R.make_closure(cls.three, (c,))
        needs_one = R.make_closure(needs_two, (b,))
        y = R.invoke_pure_closure(needs_one, (a,), ty_args=R.Tensor((2,), "float32"))
        return y

    @R.function
    def adder(x: R.Tensor(("n",), "float32")) -> R.Callable(
        (R.Tensor(ndim=1, dtype="float32"),), R.Tensor(ndim=1, dtype="float32")
    ):
        n = T.int64()

        @R.function
        def add(y: R.Tensor(ndim=1, dtype="float32")) -> R.Tensor(ndim=1, dtype="float32"):
            z = R.match_cast(y, R.Tensor((n,), "float32"))
            r = R.add(x, z)
            return r

        return add

    @R.function
    def compose(
        f: R.Callable((R.Tensor((2,), "float32"),), R.Tensor((2,), "float32"), True),
        g: R.Callable((R.Tensor((2,), "float32"),), R.Tensor((2,), "float32"), True),
    ) -> R.Callable((R.Tensor((2,), "float32"),), R.Tensor((2,), "float32"), True):
        @R.function
        def both(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            y = g(x)
            z = f(y)
            return z

        return both

    @R.function
    def negate(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        y = R.negative(x)
        return y

    @R.function
    def square(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        y = R.multiply(x, x)
        return y

    @R.function
    def composed(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        cls = Closures
        f = cls.compose(cls.negate, cls.square)
        g = cls.compose(f, f)
        y = g(x)
        return y

    @R.function
    def chosen(c: R.Tensor((), "bool"), x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        cls = Closures
        if c:
            f = cls.negate
        else:
            f = cls.square
        y = f(x)
        return y

    @R.function
    def power(x: R.Tensor((2,), "float32"), steps: R.Tensor((), "int64")) -> R.Tensor(
        (2,), "float32"
    ):
        """A nested function that calls itself and captures x."""

        @R.function
        def loop(i: R.Tensor((), "int64"), acc: R.Tensor((2,), "float32")) -> R.Tensor(
            (2,), "float32"
        ):
            more = R.greater(i, R.const(0, "int64"))
            if more:
                less = R.subtract(i, R.const(1, "int64"))
                next = R.multiply(acc, x)
                r = loop(less, next)
            else:
                r = acc
            return r

        one = R.ones((2,), "float32")
        y = loop(steps, one)
        return y

    @R.function
    def nested(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        """Two levels: the inner function captures from both."""

        @R.function
        def outer(y: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            @R.function
            def inner(z: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
                r = R.add(R.multiply(x, y), z)
                return r

            a = inner(y)
            b = inner(a)
            return b

        c = R.add(x, x)
        d = outer(c)
        return d

    @R.function
    def in_tuple(x: R.Tensor((2,), "float32")) -> R.Tuple(R.Any, R.Tuple(R.Any, R.Tensor)):
        @R.function
        def plus(y: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            r = R.add(x, y)
            return r

        t = (plus, (plus, x))
        return t

    @R.function
    def from_tuple(
        t: R.Tuple(R.Any, R.Tuple(R.Any, R.Tensor)), y: R.Tensor((2,), "float32")
    ) -> R.Tensor((2,), "float32"):
        f = t[1][0]
        r = R.invoke_pure_closure(f, (y,), ty_args=R.Tensor((2,), "float32"))
        return r

    @R.function(pure=False)
    def counted(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        """A closure over a packed function with an effect keeps its calls."""

        @R.function(pure=False)
        def call(y: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            r = R.call_packed("test.closures.count", y, ty_args=R.Tensor((2,), "float32"))
            return r

        a = call(x)
        b = call(x)
        return b


CALLS: list[object] = []


def count(x):
    CALLS.append(x)
    return x


@pytest.fixture(scope="module", params=["bytecode", "compiled"])
def vm(request) -> relaxvm.VirtualMachine:
    relaxvm.register_global_func("test.closures.count", count, override=True)
    return vm_of(Closures, exec_mode=request.param)


def tensor(*values):
    return relaxvm.runtime.tensor(np.array(values, "float32"))


def test_later_captures_stand_before_earlier_ones(vm):
    found = vm["bind_last"](tensor(1, 2), tensor(3, 4), tensor(5, 6)).numpy()
    np.testing.assert_array_equal(found, [100 - 3 + 50, 200 - 4 + 60])


@pytest.mark.parametrize("size", [1, 5])
def test_a_closure_over_a_size_is_a_result(vm, size):
    add = vm["adder"](relaxvm.runtime.tensor(np.arange(size, dtype="float32")))
    y = relaxvm.runtime.tensor(np.ones(size, "float32"))
    np.testing.assert_array_equal(vm.invoke_closure(add, y).numpy(), np.arange(size) + 1)
    np.testing.assert_array_equal(add(y).numpy(), np.arange(size) + 1)
    with pytest.raises((RuntimeError, ValueError), match=r"adder_add: match_cast of 'z'"):
        add(relaxvm.runtime.tensor(np.ones(size + 1, "float32")))


def test_functions_are_arguments_and_results(vm):
    # -(x^2), twice: -((-(x^2))^2)
    np.testing.assert_array_equal(vm["composed"](tensor(2, 3)).numpy(), [-16, -81])
    both = vm["compose"](vm["square"], vm["negate"])
    np.testing.assert_array_equal(both(tensor(2, 3)).numpy(), [4, 9])


def test_a_function_is_chosen_at_run_time(vm):
    for c, wanted in ((True, [-2, -3]), (False, [4, 9])):
        flag = relaxvm.runtime.tensor(np.array(c))
        np.testing.assert_array_equal(vm["chosen"](flag, tensor(2, 3)).numpy(), wanted)


@pytest.mark.parametrize("steps", [0, 1, 5])
def test_a_nested_function_calls_itself(vm, steps):
    count = relaxvm.runtime.tensor(np.array(steps, "int64"))
    np.testing.assert_array_equal(vm["power"](tensor(2, 3), count).numpy(), [2**steps, 3**steps])


def test_functions_in_functions_in_functions(vm):
    x = np.array([2, 3], "float32")
    y = 2 * x
    np.testing.assert_array_equal(vm["nested"](tensor(2, 3)).numpy(), x * y + (x * y + y))


def test_closures_lie_in_tuples(vm):
    made = vm["in_tuple"](tensor(1, 2))
    np.testing.assert_array_equal(made[0](tensor(5, 5)).numpy(), [6, 7])
    np.testing.assert_array_equal(vm["from_tuple"](made, tensor(7, 7)).numpy(), [8, 9])


def test_effects_of_a_closure_are_kept(vm):
    CALLS.clear()
    vm["counted"](tensor(1, 2))
    assert len(CALLS) == 2


def test_a_wrong_number_of_arguments_names_the_function(vm):
    add = vm["adder"](tensor(1, 2))
    with pytest.raises(
        (TypeError, ValueError), match=r"adder_add expects 1 arguments \(y\), but 0"
    ):
        add()
    with pytest.raises((TypeError, ValueError), match="negate.*expects 1 argument"):
        vm["negate"](tensor(1, 2), tensor(1, 2))


def test_what_is_no_function_cannot_be_called(vm):
    with pytest.raises(TypeError, match=r"compose: parameter 'f' .*expected a function"):
        vm["compose"](tensor(1, 2), vm["negate"])
