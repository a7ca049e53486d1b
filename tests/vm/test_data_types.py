# SPDX-License-Identifier: Apache-2.0
"""Algebraic data types seen running: lists, trees, mutual recursion, fatal, values from Python."""

from __future__ import annotations

import numpy as np
import pytest
from data_type_programs import Lists, Parity, Shapes, adt_list, arrays, python_list, vm_of

import relaxvm
from relaxvm.runtime import ADT

PAIRS = [np.array(v, "float32") for v in ([1, 2], [-3, 1], [0.5, 0.25], [2, -5])]


MODES = ["bytecode", "compiled"]


@pytest.fixture(scope="module", params=MODES)
def lists(request) -> relaxvm.VirtualMachine:
    return vm_of(Lists, exec_mode=request.param)


@pytest.fixture(scope="module", params=MODES)
def shapes(request) -> relaxvm.VirtualMachine:
    return vm_of(Shapes, exec_mode=request.param)


@pytest.mark.parametrize("count", [0, 1, 4])
def test_map(lists, count):
    given = PAIRS[:count]
    found = arrays(python_list(lists["doubled"](adt_list(given))))
    assert len(found) == count
    for x, y in zip(given, found):
        np.testing.assert_array_equal(y, 2 * x)


def test_map_of_a_closure(lists):
    factor = np.array([3, 7], "float32")
    found = arrays(python_list(lists["scaled"](relaxvm.runtime.tensor(factor), adt_list(PAIRS))))
    for x, y in zip(PAIRS, found):
        np.testing.assert_array_equal(y, x * factor)


def test_filter(lists):
    found = arrays(python_list(lists["positives"](adt_list(PAIRS))))
    wanted = [x for x in PAIRS if x.sum() > 0]
    assert len(found) == len(wanted) == 2
    for x, y in zip(wanted, found):
        np.testing.assert_array_equal(x, y)


def test_fold_keeps_the_order(lists):
    start = np.array([8, 4], "float32")
    found = lists["folded"](relaxvm.runtime.tensor(start), adt_list(PAIRS)).numpy()
    wanted = start
    for x in PAIRS:
        wanted = wanted * np.float32(0.5) - x
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_functions_of_python_are_arguments(lists):
    seen = []

    def watch(x):
        seen.append(x.numpy().copy())
        return x

    lists["map"](watch, adt_list(PAIRS))
    for x, y in zip(PAIRS, seen):
        np.testing.assert_array_equal(x, y)


def test_elements_of_different_shapes(lists):
    xs = adt_list([np.zeros((n, 3), "float32") for n in (2, 5, 1)])
    assert [tuple(s) for s in python_list(lists["rows"](xs))] == [(6,), (15,), (3,)]


def test_fatal_is_an_error_of_the_run(lists):
    np.testing.assert_array_equal(lists["head"](adt_list(PAIRS)).numpy(), PAIRS[0] + 1)
    with pytest.raises(RuntimeError, match="head of an empty list"):
        lists["head"](adt_list([]))


@pytest.mark.parametrize("count", [0, 1, 7, 20000])
def test_mutual_recursion(count):
    vm = vm_of(Parity)
    n = ADT(0)
    for _ in range(count):
        n = ADT(1, [n])
    assert bool(vm["even"](n).numpy()) == (count % 2 == 0)
    assert bool(vm["odd"](n).numpy()) == (count % 2 == 1)


def test_constructors_and_fields_of_python():
    shape = Shapes.data_types["Shape"]
    box = shape.Box.value(np.float32(2), np.float32(3))
    assert (box.tag, len(box)) == (2, 2)
    assert [float(f.numpy()) for f in box] == [2, 3]
    assert shape.constructor_of(box).name == "Box"
    named = shape.Named.value(inner=box, label=4)
    assert named[0] == 4 and named[1].same_as(box)
    with pytest.raises(TypeError, match=r"Shape.Box has 2 fields, but 1 is given"):
        shape.Box.value(np.float32(2))


def test_many_constructors(shapes):
    shape = Shapes.data_types["Shape"]
    circle = shape.Circle.value(np.float32(2))
    box = shape.Box.value(np.float32(2), np.float32(3))
    values = [shape.Point.value(), circle, box, shape.Named.value(1, box)]
    assert [float(shapes["area"](v).numpy()) for v in values] == [0, 12, 6, 6]
    assert [bool(shapes["is_box"](v).numpy()) for v in values] == [False, False, True, False]
    pair = ADT(0, [box, circle])
    assert [float(f.numpy()) for f in shapes["both"](pair)] == [12, 6]


def test_values_travel_through_a_saved_executable(tmp_path, lists):
    path = tmp_path / "lists.so"
    relaxvm.compile(Lists).export_library(str(path))
    vm = relaxvm.VirtualMachine(relaxvm.runtime.load_module(str(path)), relaxvm.cpu())
    found = arrays(python_list(vm["doubled"](adt_list(PAIRS))))
    np.testing.assert_array_equal(found[3], 2 * PAIRS[3])


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: 3, r"doubled: parameter 'xs' \(List\[.*\]\): expected a value of a data type"),
        (lambda: ADT(2), r"doubled: parameter 'xs' .* expected a value with a tag below 2"),
        (lambda: ADT(1, [1]), r"doubled: parameter 'xs' .* expected tag 1 with 2 fields"),
    ],
)
def test_a_wrong_value_names_function_and_parameter(lists, make, message):
    with pytest.raises((TypeError, ValueError), match=message):
        lists["doubled"](make())


def test_a_wrong_field_is_found_where_it_is_taken_out(lists):
    with pytest.raises(
        Exception, match=r"map: match_cast of 'head' .*dimension 0 expected to be 2, but it is 3"
    ):
        lists["doubled"](adt_list([np.zeros(3, "float32")]))
