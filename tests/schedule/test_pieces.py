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


def test_pictures_of_a_batch_that_may_be_one_are_cut_further_for_threads() -> None:
    """Resized, joined and permuted: the stages share the batch alone."""
    n, h, w = (relaxvm.tirx.Var(name, "int64") for name in "nhw")
    builder = relax.BlockBuilder()
    params = [relax.Var(x, relax.TensorType([n, 8, h, w], "float32")) for x in "xy"]
    with builder.function("main", params):
        with builder.dataflow():
            size = relax.ShapeExpr([2 * h, 2 * w])
            bigger = [op.image.resize2d(p, size, layout="NCHW", method="linear") for p in params]
            out = builder.emit_output(op.permute_dims(op.concat(bigger, axis=1), [0, 2, 3, 1]))
        builder.emit_func_output(out)
    scheduled = relaxvm.compile(builder.get(), stop_after="scheduled")
    programs = [f for f in scheduled.functions.values() if not isinstance(f, relax.Function)]
    text = "".join(f.script() for f in programs)
    assert "T.parallel(" in text
    assert "T.parallel(n," not in text
    vm = relax.VirtualMachine(relaxvm.compile(builder.get()), relaxvm.cpu())
    for sizes in [(1, 8, 3, 17), (2, 8, 20, 5), (0, 8, 3, 3)]:
        x, y = whole(*sizes), whole(*sizes)
        got = vm["main"](relaxvm.runtime.tensor(x), relaxvm.runtime.tensor(y)).numpy()
        a, b = np.concatenate([x, y], 1), np.arange(2 * sizes[3])
        at = np.maximum((b + 0.5) / 2 - 0.5, 0)
        low = at.astype(int)
        a = a[..., low] * (1 - at + low) + a[..., np.minimum(low + 1, sizes[3] - 1)] * (at - low)
        b = np.arange(2 * sizes[2])
        at = np.maximum((b + 0.5) / 2 - 0.5, 0)
        low = at.astype(int)
        rows, high = (at - low)[:, None], np.minimum(low + 1, sizes[2] - 1)
        a = a[..., low, :] * (1 - rows) + a[..., high, :] * rows
        np.testing.assert_allclose(got, a.transpose(0, 2, 3, 1), atol=1e-6)
