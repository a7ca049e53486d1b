# SPDX-License-Identifier: Apache-2.0
"""Calls with effects keep their place and their number; memory that a packed function may keep is never reused."""

from __future__ import annotations

import numpy as np
import pytest

import relaxvm
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.script import tirx as T

pytestmark = pytest.mark.usefixtures("exec_mode")

log: list[object] = []


@pytest.fixture(autouse=True)
def _functions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELAXVM_VERIFY", "1")
    log.clear()
    relaxvm.register_global_func(
        "test.effects.note", lambda x: log.append(float(x.numpy().sum())), override=True
    )
    relaxvm.register_global_func("test.effects.keep", log.append, override=True)
    relaxvm.register_global_func("test.effects.double_in_place", double_in_place, override=True)
    relaxvm.register_global_func("test.effects.same", lambda x: x, override=True)


def double_in_place(x) -> None:
    x.copyfrom(x.numpy() * 2)


def run(mod: relaxvm.IRModule, *inputs: np.ndarray):
    vm = relaxvm.VirtualMachine(relaxvm.compile(mod), relaxvm.cpu())
    return vm["main"](*map(relaxvm.runtime.tensor, inputs))


ONES = np.ones(5, "float32")


@I.ir_module
class InPlace:
    @T.prim_func(private=True)
    def double(a: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n,), "float32")
        for i in range(n):
            with T.sblock("double"):
                vi = T.axis.spatial(n, i)
                A[vi] = A[vi] * T.float32(2)

    @R.function
    def main(x: R.Tensor(("n",), "float32")):
        n = T.int64()
        cls = InPlace
        y = R.add(x, x)
        z = R.call_tir_inplace(cls.double, (y,), [0], R.Tensor((n,), "float32"))
        w = R.add(z, z)
        return w


def test_equal_calls_of_a_packed_function_all_happen_and_in_order() -> None:
    @I.ir_module
    class Mod:
        @R.function(pure=False)
        def main(x: R.Tensor(("n",), "float32")):
            _ = R.call_packed("test.effects.note", x, ty_args=(R.Tuple(),))
            y = R.add(x, x)
            _1 = R.call_packed("test.effects.note", y, ty_args=(R.Tuple(),))
            _2 = R.call_packed("test.effects.note", x, ty_args=(R.Tuple(),))
            _3 = R.call_packed("test.effects.note", x, ty_args=(R.Tuple(),))
            return x

    run(Mod, ONES)
    assert log == [5.0, 10.0, 5.0, 5.0]


def test_update_in_place_is_seen_by_later_calls_and_not_by_earlier_ones() -> None:
    @I.ir_module
    class Mod:
        @R.function(pure=False)
        def main(x: R.Tensor(("n",), "float32")):
            y = R.add(x, x)
            before = R.multiply(y, y)
            _ = R.call_packed("test.effects.double_in_place", y, ty_args=(R.Tuple(),))
            after = R.multiply(y, y)
            return (before, after)

    before, after = run(Mod, ONES)
    np.testing.assert_array_equal(before.numpy(), np.full(5, 4, "float32"))
    np.testing.assert_array_equal(after.numpy(), np.full(5, 16, "float32"))


def test_tensor_that_a_packed_function_keeps_is_not_overwritten() -> None:
    @I.ir_module
    class Mod:
        @R.function(pure=False)
        def main(x: R.Tensor(("n",), "float32")):
            a = R.add(x, x)
            _ = R.call_packed("test.effects.keep", a, ty_args=(R.Tuple(),))
            b = R.multiply(a, a)
            c = R.exp(b)
            d = R.subtract(c, b)
            e = R.exp(d)
            return e

    run(Mod, ONES)
    np.testing.assert_array_equal(log[0].numpy(), ONES * 2)


def test_tensor_that_comes_back_from_a_packed_function_is_not_overwritten() -> None:
    @I.ir_module
    class Mod:
        @R.function(pure=False)
        def main(x: R.Tensor(("n", "n"), "float32")):
            n = T.int64()
            a = R.matmul(x, x)
            same = R.call_packed("test.effects.same", a, ty_args=(R.Tensor((n, n), "float32"),))
            b = R.matmul(x, x)
            c = R.matmul(b, x)
            d = R.matmul(c, b)
            e = R.add(d, same)
            return e

    x = np.eye(4, dtype="float32") * 3
    np.testing.assert_allclose(run(Mod, x).numpy(), x @ x @ x @ x @ x + x @ x)


def test_program_in_place_writes_into_its_argument() -> None:
    np.testing.assert_array_equal(run(InPlace, ONES).numpy(), ONES * 8)
