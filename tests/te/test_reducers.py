# SPDX-License-Identifier: Apache-2.0
"""Reductions by functions of the caller's own."""

import numpy as np
import pytest

import relaxvm
from relaxvm import te, tirx

X = np.random.default_rng(5).random((4, 7), "f4")


def run(formula, num_results=1):
    x = te.placeholder((4, 7), name="x")
    k = te.reduce_axis((0, 7), "k")
    made = te.compute((4,), lambda i: formula(x, i, k), name="out")
    outputs = made if isinstance(made, list) else [made]
    assert len(outputs) == num_results
    program = relaxvm.compile(te.create_prim_func([x, *outputs]))
    results = [relaxvm.runtime.empty((4,), str(t.dtype)) for t in outputs]
    program(relaxvm.runtime.tensor(X), *results)
    return [r.numpy() for r in results]


def test_one_value_is_combined():
    product = te.comm_reducer(lambda a, b: a * b, lambda t: tirx.const(1, t), name="product")
    (result,) = run(lambda x, i, k: product(x[i, k] + 1.0, axis=k))
    np.testing.assert_allclose(result, (X + 1).prod(1), rtol=1e-5)


def test_a_value_and_its_place_are_combined_together():
    def greater(a, b):
        first = a[1] >= b[1]
        return tirx.Select(first, a[0], b[0]), tirx.Select(first, a[1], b[1])

    argmax = te.comm_reducer(greater, lambda i, v: (tirx.const(-1, i), te.min_value(v)))
    place, value = run(lambda x, i, k: argmax((k, x[i, k]), axis=k), 2)
    np.testing.assert_array_equal(place, X.argmax(1))
    np.testing.assert_array_equal(value, X.max(1))


def test_other_types_and_numbers_of_values_are_refused():
    wrong_type = te.comm_reducer(lambda a, b: a + b, lambda t: tirx.const(0, "int32"))
    with pytest.raises(TypeError, match="begins, as int32"):
        run(lambda x, i, k: wrong_type(x[i, k], axis=k))
    too_few = te.comm_reducer(lambda a, b: (a[0],), lambda s, t: (tirx.const(0, s),))
    with pytest.raises(ValueError, match="2 values are reduced, 1 are combined"):
        run(lambda x, i, k: too_few((x[i, k], x[i, k]), axis=k))
    with pytest.raises(NotImplementedError, match="where and init"):
        run(lambda x, i, k: wrong_type(x[i, k], axis=k, where=k < 3))
