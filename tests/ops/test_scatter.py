# SPDX-License-Identifier: Apache-2.0
"""scatter_nd adds runs of elements: a run goes by vectors, runs follow each other."""

import numpy as np
import pytest

import relaxvm
from relaxvm import relax, runtime, tirx


def module_of(width, dtype: str, reduction: str):
    rows, edges = tirx.Var("n", "int64"), tirx.Var("e", "int64")
    x = relax.Var("x", relax.TensorType([rows, width], dtype))
    places = relax.Var("places", relax.TensorType([edges, 1], "int64"))
    updates = relax.Var("updates", relax.TensorType([edges, width], dtype))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, places, updates]):
        builder.emit_func_output(
            builder.emit(relax.op.scatter_nd(x, places, updates, reduction=reduction))
        )
    return builder.get()


@pytest.mark.parametrize("reduction", ["update", "add", "max"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
@pytest.mark.parametrize("symbolic", [False, True])
def test_runs_of_any_length(symbolic, dtype, reduction):
    rng = np.random.default_rng(0)
    for width in (1, 15, 16, 33):
        given = tirx.Var("w", "int64") if symbolic else width
        vm = relaxvm.VirtualMachine(
            relaxvm.compile(module_of(given, dtype, reduction)), relaxvm.cpu()
        )
        x = rng.integers(-9, 9, (5, width)).astype(dtype)
        places = np.array([[3], [0], [3], [-1], [7], [-6]], np.int64)  # the last two lie outside
        updates = rng.integers(-9, 9, (len(places), width)).astype(dtype)
        want = x.copy()
        for (place,), update in zip(places[:4], updates):
            old = want[place]
            want[place] = {"update": update, "add": old + update, "max": np.maximum(old, update)}[
                reduction
            ]
        have = vm["main"](*map(runtime.tensor, (x, places, updates))).numpy()
        np.testing.assert_array_equal(have, want)


def test_runs_go_by_vectors():
    lowered = relax.transform.LegalizeOps()(module_of(64, "float32", "add"))
    assert "T.vectorized" in lowered.script()
