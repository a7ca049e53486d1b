# SPDX-License-Identifier: Apache-2.0
"""Tensors joined of parts that are joined themselves: each part is copied once, as long as it lies in memory."""

import numpy as np

import relaxvm
from relaxvm import relax
from relaxvm.relax import op

RNG = np.random.default_rng(0)


def whole(*shape: int) -> np.ndarray:
    return RNG.integers(-3, 4, shape).astype("float32")


def test_a_part_that_is_joined_of_parts_leaves_the_other_whole() -> None:
    n, m = (relaxvm.tirx.Var(name, "int64") for name in "nm")
    builder = relax.BlockBuilder()
    shapes = [[n, 24], [m, 8], [m, 16]]
    params = [relax.Var(x, relax.TensorType(shape, "float32")) for x, shape in zip("xyz", shapes)]
    with builder.function("main", params):
        with builder.dataflow():
            part = op.concat([op.negative(params[1]), params[2]], axis=1)
            out = builder.emit_output(op.concat([params[0], part], axis=0))
        builder.emit_func_output(out)
    scheduled = relaxvm.compile(builder.get(), stop_after="scheduled")
    programs = [f for f in scheduled.functions.values() if not isinstance(f, relax.Function)]
    # One loop copies x, one for each part of the rest.
    assert sum(f.script().count("T.parallel") for f in programs) == 3
    vm = relax.VirtualMachine(relaxvm.compile(builder.get()), relaxvm.cpu())
    for sizes in [(0, 3), (5, 0), (7, 2)]:
        x, y, z = (whole(sizes[i > 0], w) for i, w in enumerate((24, 8, 16)))
        got = vm["main"](*(relaxvm.runtime.tensor(a) for a in (x, y, z))).numpy()
        np.testing.assert_array_equal(got, np.concatenate([x, np.concatenate([-y, z], 1)], 0))
