# SPDX-License-Identifier: Apache-2.0
"""Sizes, ranks and dtypes that only the run knows, and objects that the compiler knows nothing of."""

from __future__ import annotations

import re

import numpy as np
import pytest
from data_type_programs import vm_of

import relaxvm
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.script import tirx as T


def tensor(value, dtype="float32"):
    return relaxvm.runtime.tensor(np.asarray(value, dtype))


# ---- the four codes of match_shape, and the heap


@I.ir_module
class Heap:
    @R.function
    def main(x: R.Tensor(("n", 3, "n", "n + m", "m"), "float32")) -> R.Shape(ndim=4):
        n, m = T.int64(), T.int64()
        s = R.shape([m, n * 2, 7, n + m])
        return s

    @R.function
    def scalar(k: R.Prim("int64"), x: R.Tensor(("k", "j"), "float32")) -> R.Shape(ndim=2):
        j = T.int64()
        s = R.shape([k + 1, j])
        return s


def codes_of(exe, function: str, builtin: str) -> list[list[int]]:
    """The (code, value) numbers of calls of a builtin in a function of the bytecode."""
    text = exe.as_text()
    body = text.split(f"@{function}", 1)[1].split("\n@", 1)[0]
    lines = [line for line in body.splitlines() if f"vm.builtin.{builtin}" in line]
    return [[int(i) for i in re.findall(r"\bi(-?\d+)", line)] for line in lines]


def test_match_shape_uses_all_four_codes():
    exe = relaxvm.compile(Heap)
    matches = codes_of(exe, "main", "match_shape")
    codes = {row[1::2][i] for row in matches for i in range(len(row[1::2]))}
    # 0 equal to an immediate, 1 store, 2 nothing, 3 equal to a slot
    assert codes == {0, 1, 2, 3}, exe.as_text()
    vm = relaxvm.VirtualMachine(exe, relaxvm.cpu())
    assert tuple(vm["main"](tensor(np.zeros((2, 3, 2, 7, 5))))) == (5, 4, 7, 7)


@pytest.mark.parametrize(
    "shape, message",
    [
        ((2, 4, 2, 7, 5), r"dimension 1 expected to be 3, but it is 4"),
        ((2, 3, 9, 7, 5), r"dimension 2 expected to be 2, but it is 9"),
        ((2, 3, 2, 8, 5), r"dimension 3 expected to be 7, but it is 8"),
    ],
)
def test_each_mismatch_says_where_expected_and_found(shape, message):
    vm = vm_of(Heap)
    with pytest.raises((RuntimeError, ValueError), match=rf"main: parameter 'x' .*{message}"):
        vm["main"](tensor(np.zeros(shape)))


def test_match_prim_value_and_make_shape():
    exe = relaxvm.compile(Heap)
    assert codes_of(exe, "scalar", "match_prim_value"), exe.as_text()
    assert codes_of(exe, "scalar", "make_shape"), exe.as_text()
    vm = relaxvm.VirtualMachine(exe, relaxvm.cpu())
    assert tuple(vm["scalar"](4, tensor(np.zeros((4, 9))))) == (5, 9)
    with pytest.raises((RuntimeError, ValueError), match="scalar: parameter 'x' .*dimension 0"):
        vm["scalar"](3, tensor(np.zeros((4, 9))))


# ---- results that only the run knows


@I.ir_module
class Results:
    @R.function
    def nonzero_rows(x: R.Tensor(("n",), "int64")) -> R.Tensor(ndim=2, dtype="int64"):
        """A function that allocates its result; what it gives is used under a new size."""
        where = R.nonzero(x)
        k = T.int64()
        rows = R.match_cast(where, R.Tensor((1, k), "int64"))
        both = R.concat((rows, rows), axis=0)
        return both

    @R.function
    def dps(x: R.Tensor(("n", "m"), "float32")) -> R.Tensor(("m",), "float32"):
        n, m = T.int64(), T.int64()
        y = R.call_dps_packed("test.shapes.columns", (x,), out_ty=R.Tensor((m,), "float32"))
        z = R.add(y, y)
        return z

    @R.function
    def allocated(x: R.Tensor(("n",), "float32")) -> R.Tensor(ndim=1, dtype="float32"):
        y = R.call_pure_packed("test.shapes.positive", x, ty_args=R.Tensor(ndim=1, dtype="float32"))
        k = T.int64()
        z = R.match_cast(y, R.Tensor((k,), "float32"))
        w = R.multiply(z, z)
        return w

    @R.function
    def shape_from_packed(x: R.Tensor(("n",), "float32")) -> R.Tensor(ndim=1, dtype="float32"):
        """A shape that a packed function gives is the output shape of a call_tir."""
        cls = Results
        s = R.call_pure_packed("test.shapes.twice", x, ty_args=R.Shape(ndim=1))
        k = T.int64()
        _ = R.match_cast(s, R.Shape([k]))
        y = R.call_tir(cls.count, R.tuple(), out_ty=R.Tensor((k,), "float32"))
        return y

    @T.prim_func(private=True)
    def count(out: T.handle):
        k = T.int64()
        o = T.match_buffer(out, (k,), "float32")
        for i in range(k):
            o[i] = T.Cast("float32", i)

    @R.function
    def zeros_of(x: R.Tensor) -> R.Tensor(dtype="float32"):
        """The shape of a tensor of unknown rank."""
        s = R.shape_of(x)
        y = R.call_pure_packed("test.shapes.zeros", s, ty_args=R.Tensor(dtype="float32"))
        return y


@pytest.fixture(scope="module", autouse=True)
def functions():
    register = relaxvm.register_global_func

    def columns(x, out):
        np.from_dlpack(out)[...] = np.from_dlpack(x).sum(axis=0)

    def positive(x):
        values = x.numpy()
        return relaxvm.runtime.tensor(values[values > 0])

    register("test.shapes.columns", columns, override=True)
    register("test.shapes.positive", positive, override=True)
    register(
        "test.shapes.twice",
        lambda x: relaxvm.runtime.Shape((2 * x.shape[0],)),
        override=True,
    )
    register(
        "test.shapes.zeros",
        lambda s: relaxvm.runtime.tensor(np.zeros(tuple(s), "float32")),
        override=True,
    )


@pytest.fixture(scope="module", params=["bytecode", "compiled"])
def results(functions, request) -> relaxvm.VirtualMachine:
    return vm_of(Results, exec_mode=request.param)


def test_nonzero_allocates_its_result(results):
    found = results["nonzero_rows"](tensor([0, 3, 0, 5, 6], "int64")).numpy()
    np.testing.assert_array_equal(found, [[1, 3, 4], [1, 3, 4]])
    assert results["nonzero_rows"](tensor([0, 0], "int64")).shape == (2, 0)


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (0, 4)])
def test_call_dps_packed(results, shape):
    x = np.random.default_rng(0).standard_normal(shape).astype("float32")
    np.testing.assert_allclose(results["dps"](tensor(x)).numpy(), 2 * x.sum(axis=0), rtol=1e-6)


def test_a_packed_function_allocates(results):
    x = np.array([1, -2, 3, 4], "float32")
    np.testing.assert_array_equal(results["allocated"](tensor(x)).numpy(), [1, 9, 16])


@pytest.mark.parametrize("size", [0, 1, 6])
def test_a_shape_from_a_packed_function_sizes_a_call_tir(results, size):
    found = results["shape_from_packed"](tensor(np.zeros(size))).numpy()
    np.testing.assert_array_equal(found, np.arange(2 * size))


@pytest.mark.parametrize("shape", [(), (3,), (2, 1, 4)])
def test_shape_of_unknown_rank(results, shape):
    assert results["zeros_of"](tensor(np.ones(shape))).shape == shape


# ---- unknown rank and dtype


@I.ir_module
class Unknown:
    @R.function
    def choose(c: R.Tensor((), "bool"), a: R.Tensor, b: R.Tensor) -> R.Tensor:
        if c:
            r = a
        else:
            r = b
        return r

    @R.function
    def last(steps: R.Tensor((), "int64"), a: R.Tensor, b: R.Tensor) -> R.Tensor:
        cls = Unknown
        done = R.equal(steps, R.const(0, "int64"))
        if done:
            r = a
        else:
            less = R.subtract(steps, R.const(1, "int64"))
            r = cls.last(less, b, a)
        return r

    @R.function
    def known(x: R.Tensor) -> R.Tensor(("n",), "float32"):
        n = T.int64()
        y = R.match_cast(x, R.Tensor((n,), "float32"))
        z = R.add(y, y)
        return z

    @R.function
    def of_any(x: R.Any) -> R.Tensor(ndim=2, dtype="int32"):
        n, m = T.int64(), T.int64()
        y = R.match_cast(x, R.Tensor((n, m), "int32"))
        z = R.add(y, y)
        return z

    @R.function
    def fields(x: R.Tuple(R.Tensor, R.Tuple(R.Any, R.Tensor(dtype="float32")))) -> R.Any:
        n = T.int64()
        t = x[1]
        y = R.match_cast(t, R.Tuple(R.Shape([n]), R.Tensor((n,), "float32")))
        z = y[1]
        w = R.add(z, z)
        return w


@pytest.fixture(scope="module", params=["bytecode", "compiled"])
def unknown(request) -> relaxvm.VirtualMachine:
    return vm_of(Unknown, exec_mode=request.param)


def test_values_of_any_rank_and_dtype_flow_through_if_and_recursion(unknown):
    a, b = tensor(np.ones((2, 3))), tensor(7, "int8")
    for flag in (True, False):
        found = unknown["choose"](tensor(flag, "bool"), a, b)
        assert found.same_as(a if flag else b)
    for steps in (0, 1, 2, 5):
        found = unknown["last"](tensor(steps, "int64"), a, b)
        assert found.same_as(b if steps % 2 else a)


def test_match_cast_finds_rank_and_dtype(unknown):
    np.testing.assert_array_equal(unknown["known"](tensor([1, 2])).numpy(), [2, 4])
    np.testing.assert_array_equal(unknown["of_any"](tensor([[1, 2]], "int32")).numpy(), [[2, 4]])
    value = (tensor(1), (relaxvm.runtime.Shape((3,)), tensor([1, 2, 3])))
    np.testing.assert_array_equal(unknown["fields"](value).numpy(), [2, 4, 6])


@pytest.mark.parametrize(
    "function, make, message",
    [
        ("known", lambda: tensor([[1]]), r"known: match_cast of 'y' .*ndim 1.* \(1, 1\)"),
        ("known", lambda: tensor([1], "int8"), r"known: match_cast of 'y' .*float32.* int8"),
        ("known", lambda: 3, r"known: parameter 'x' .*expected a tensor, but it is an integer 3"),
        ("of_any", lambda: 3, r"of_any: match_cast of 'y' .*expected a tensor.*integer 3"),
        (
            "fields",
            lambda: (tensor(1), (relaxvm.runtime.Shape((3,)), tensor([1, 2]))),
            r"fields: match_cast of 'y' .*expected to be 3, but it is 2",
        ),
        (
            "fields",
            lambda: (tensor(1),),
            r"fields: parameter 'x' .*expected a tuple of 2 elements.*tuple of 1",
        ),
    ],
)
def test_errors_name_function_value_expected_and_found(unknown, function, make, message):
    with pytest.raises((TypeError, ValueError, RuntimeError), match=message):
        unknown[function](make())


# ---- objects that the compiler knows nothing of


@I.ir_module
class Opaque:
    @R.function
    def same(x: R.Any) -> R.Any:
        return x

    @R.function
    def kept(x: R.Any, y: R.Tensor((2,), "float32")) -> R.Tuple(R.Any, R.Tuple(R.Tensor, R.Any)):
        z = R.add(y, y)
        t = (x, (z, x))
        return t

    @R.function
    def taken(t: R.Tuple(R.Any, R.Tuple(R.Tensor, R.Any))) -> R.Any:
        inner = t[1]
        x = inner[1]
        return x

    @R.function
    def chosen(c: R.Tensor((), "bool"), a: R.Any, b: R.Any) -> R.Any:
        if c:
            r = a
        else:
            r = b
        return r

    @R.function(pure=False)
    def draw(rng: R.Any) -> R.Tuple(R.Tensor((2,), "float32"), R.Tensor((2,), "float32")):
        """A generator's handle: every call moves it on, so none is merged or left out."""
        a = R.call_packed("test.shapes.draw", rng, ty_args=R.Tensor((2,), "float32"))
        b = R.call_packed("test.shapes.draw", rng, ty_args=R.Tensor((2,), "float32"))
        t = (a, b)
        return t


class Handle:
    """A class of the user, with state."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)


@pytest.fixture(scope="module", params=["bytecode", "compiled"])
def opaque(request) -> relaxvm.VirtualMachine:
    def draw(handle):
        return relaxvm.runtime.tensor(handle.rng.standard_normal(2).astype("float32"))

    relaxvm.register_global_func("test.shapes.draw", draw, override=True)
    return vm_of(Opaque, exec_mode=request.param)


def test_objects_pass_through_functions_tuples_and_branches(opaque):
    vm = opaque
    one, two = Handle(1), Handle(2)
    assert vm["same"](one) is one
    kept = vm["kept"](one, tensor([1, 2]))
    assert kept[0] is one and kept[1][1] is one
    np.testing.assert_array_equal(kept[1][0].numpy(), [2, 4])
    assert vm["taken"](kept) is one
    assert vm["chosen"](tensor(True, "bool"), one, two) is one
    assert vm["chosen"](tensor(False, "bool"), one, two) is two


def test_a_generator_handle_keeps_its_state(opaque):
    a, b = opaque["draw"](Handle(3))
    wanted = np.random.default_rng(3)
    np.testing.assert_array_equal(a.numpy(), wanted.standard_normal(2).astype("float32"))
    np.testing.assert_array_equal(b.numpy(), wanted.standard_normal(2).astype("float32"))


def test_an_object_where_a_tensor_is_expected_is_an_error(opaque):
    with pytest.raises(TypeError, match=r"kept: parameter 'y' .*expected a tensor"):
        opaque["kept"](Handle(1), Handle(2))
